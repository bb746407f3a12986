"""Models of the v1 kinds that are kept in other objects (spec 02 §5, §8-§12)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.models.instance import MountPath
from api.models.objects import Object, Reference
from api.schema import Model, Quantity, Text, Word

DisplayName = Annotated[str, Field(max_length=64)]


class Described(Model):
    """What every kind for people has."""

    display_name: DisplayName | None = None
    description: Text | None = None


class InstanceTypeFlavorSpec(Model):
    """One pool, whatever its os and arch."""

    general_group: Word | None = None
    accelerator_group: Word | None = None
    acceleratable: bool
    manufacturer: Word | None = None
    product: Word | None = None
    family: Word | None = None
    memory: Word | None = None
    cores: Word | None = None


class InstanceTypeFlavor(Object):
    """An InstanceTypeFlavor is an entry of the catalogue of pools."""

    spec: InstanceTypeFlavorSpec


class InstanceSSHPublicKeySpec(Described):
    """The key."""

    data: Annotated[str, Field(max_length=65536)]


class InstanceSSHPublicKey(Object):
    """An InstanceSSHPublicKey opens SSH on Instances that name it."""

    spec: InstanceSSHPublicKeySpec


class InstanceImagePullSecretSpec(Described):
    """Registry credentials; written, never read back."""

    registry: Text
    username: Text
    password: Annotated[str, Field(max_length=65536)]
    email: Text | None = None


class InstanceImagePullSecret(Object):
    """An InstanceImagePullSecret lets Instances that name it pull from a registry."""

    spec: InstanceImagePullSecretSpec


class InstancePersistentVolumeSpec(Described):
    """What is claimed."""

    type: Word | None = Field(default=None, json_schema_extra={"nullable": True})
    capacity: Quantity = "20Gi"
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"] | None = None


class InstancePersistentVolumeStatus(Model):
    """What became of the claim."""

    phase: Word | None = None
    volume: Reference | None = None


class InstancePersistentVolume(Object):
    """An InstancePersistentVolume is storage that outlives Instances."""

    spec: InstancePersistentVolumeSpec
    status: InstancePersistentVolumeStatus | None = None


class Nfs(Model):
    """An NFS share."""

    server: Word
    share: MountPath
    sub_directory: Text | None = None
    mount_permissions: Word | None = None
    mount_options: list[Text] | None = Field(default=None, max_length=64)


class S3(Model):
    """An S3 bucket."""

    endpoint: Text
    region: Word | None = None
    insecure: bool | None = None
    access_key: Text | None = None
    secret_key: Text | None = None
    bucket: Word | None = None
    prefix: Text | None = None
    mounter: Literal["geesefs", "rclone", "s3fs"] = "geesefs"
    mount_options: list[Text] | None = Field(default=None, max_length=64)


class InstancePersistentVolumeTypeSpec(Described):
    """Exactly one source."""

    nfs: Nfs | None = None
    s3: S3 | None = None


class InstancePersistentVolumeType(Object):
    """An InstancePersistentVolumeType is a source of persistent volumes."""

    spec: InstancePersistentVolumeTypeSpec


class SettingSpec(Model):
    """The new value; never returned."""

    value: Annotated[str, Field(max_length=65536)] | None = Field(default=None, json_schema_extra={"nullable": True})


class SettingStatus(Model):
    """The value in force."""

    description: Text
    editable: bool
    sensitive: bool
    value: str


class Setting(Object):
    """A Setting is one switch of the operator."""

    spec: SettingSpec | None = None
    status: SettingStatus | None = None
