"""InstancePersistentVolumeType: where volumes come from, kept as a StorageClass of the same name (spec 02 §11).

For S3 a Secret in the system namespace, owned by the StorageClass, holds the credentials for the driver.
Promises: exactly one source; what a StorageClass cannot change is refused before anything is written; the secret key is
never read back, and one that is not given again stays; a new class whose Secret cannot be written is taken back.
"""

from __future__ import annotations

from collections.abc import Mapping as Map
from typing import Any

from api.instance_persistent_volume_type import (
    NFS_MOUNT_OPTIONS,
    S3,
    InstancePersistentVolumeTypeSpec,
    cells,
    credentials_name,
    nfs_parameters,
    s3_parameters,
    spec_problems,
    update_problems,
    with_s3_defaults,
)
from api.models.mapped_kinds import InstancePersistentVolumeType
from api.secret_data import encoded
from apiserver.context import Context
from apiserver.mapping.mapping import Mapping, Write
from apiserver.mapping.metadata import TEXTS, Object, described, note
from apiserver.mapping.refusals import invalid, translated
from apiserver.mapping.served import mapped_resource
from apiserver.rest import status
from apiserver.rest.storage import Column, Resource
from kube.errors import AlreadyExists
from kube.reconciler import Rule
from nodefeature.fields import as_list, as_map, as_str, at, labels_of, name_of, str_map, uid_of
from nodefeature.kinds import SECRET, STORAGE_CLASS, Kind
from nodefeature.labels import RESOURCE_TYPE, TRUE

MARK = "instancepersistentvolumetypes"
KIND = Kind("worker.gpustack.ai", "v1", MARK, "InstancePersistentVolumeType", namespaced=False)
NFS_PROVISIONER = "nfs.csi.k8s.io"
S3_PROVISIONER = "ru.yandex.s3.csi"
RBAC = (
    Rule(STORAGE_CLASS.group, "storageclasses", ("get", "list", "watch", "create", "update", "patch", "delete")),
    Rule("", "secrets", ("get", "create", "patch")),
)
_S3_NOTES = ("endpoint", "region", "insecure", "accessKey")
COLUMNS = (
    Column("Type", render=lambda obj: cells(_spec(obj))[0]),
    Column("Endpoint", render=lambda obj: cells(_spec(obj))[1]),
    Column("Account", render=lambda obj: cells(_spec(obj))[2]),
)


class PersistentVolumeTypes(Mapping):
    """Types in StorageClasses. `namespace` is where the credentials live."""

    kind = KIND
    backing = STORAGE_CLASS
    model = InstancePersistentVolumeType
    mark = MARK
    label_selector = f"{RESOURCE_TYPE}={MARK}"
    note_keys = (*TEXTS, *_S3_NOTES)

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def owns(self, stored: Map[str, Any]) -> bool:
        """Say whether a class is marked and of a driver we know."""
        marked = labels_of(stored).get(RESOURCE_TYPE) == MARK
        return marked and stored.get("provisioner") in (NFS_PROVISIONER, S3_PROVISIONER)

    def shown(self, stored: Map[str, Any]) -> Object:
        """Return the source, without the secret key."""
        source = {"nfs": _nfs_of(stored)} if stored.get("provisioner") == NFS_PROVISIONER else {"s3": _s3_of(stored)}
        return {"spec": {**described(stored), **source}}

    def notes(self, obj: Map[str, Any]) -> dict[str, str]:
        """Return the texts, and what of S3 is in no parameter."""
        spec = as_map(obj.get("spec"))
        notes = {key: as_str(spec.get(key)) for key in TEXTS if spec.get(key)}
        s3 = as_map(spec.get("s3"))
        notes |= {key: as_str(s3.get(key)) for key in _S3_NOTES if as_str(s3.get(key))}
        return notes | ({"insecure": TRUE} if s3.get("insecure") else {})

    def content(self, obj: Map[str, Any], stored: Map[str, Any] | None) -> Object:
        """Return the class's fields."""
        spec = _spec(obj)
        fixed: Object = {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
        if "nfs" in spec:
            options = spec["nfs"].get("mountOptions") or [*NFS_MOUNT_OPTIONS]
            parameters = nfs_parameters(spec["nfs"])
            return {**fixed, "provisioner": NFS_PROVISIONER, "parameters": parameters, "mountOptions": options}
        parameters = s3_parameters(spec.get("s3", {}), name=name_of(obj), namespace=self._namespace)
        return {**fixed, "provisioner": S3_PROVISIONER, "parameters": parameters}

    async def prepare(self, write: Write, obj: Object, stored: Map[str, Any] | None) -> Object:
        """Judge the source, and what changes of it."""
        info, spec = write.call.info, _spec(obj)
        if ("nfs" in spec) == ("s3" in spec):
            raise status.bad_request(spec_problems(spec)[0].rule)
        if not name_of(obj):
            raise status.bad_request("a type needs a name of its own: its credentials are named after it")
        problems = spec_problems(spec)
        if problems:
            raise _unprocessable(invalid(info, KIND.kind, problems))
        if stored is not None:
            frozen = update_problems(_spec({"spec": self.shown(stored)["spec"]}), spec)
            if frozen:
                raise invalid(info, KIND.kind, frozen, reason="FieldValueForbidden")
        return obj

    async def written(self, write: Write, stored: Map[str, Any], obj: Map[str, Any], *, created: bool) -> None:
        """Write the credentials of an S3 source."""
        spec = _spec(obj)
        if "s3" not in spec:
            return
        try:
            with translated(write.call.info, SECRET):
                await self._write_credentials(write, stored, spec["s3"])
        except status.Refusal:
            if created and not write.options.dry_run:
                with translated(write.call.info, STORAGE_CLASS):
                    await write.client.delete(STORAGE_CLASS, name_of(stored), uid=uid_of(stored))
            raise

    async def _write_credentials(self, write: Write, stored: Map[str, Any], s3: S3) -> None:
        name, dry_run = credentials_name(name_of(stored)), write.options.dry_run
        owner = {"apiVersion": STORAGE_CLASS.api_version, "kind": STORAGE_CLASS.kind}
        owner |= {"name": name_of(stored), "uid": uid_of(stored)}
        data = _credentials(s3)
        meta = {"name": name, "namespace": self._namespace, "ownerReferences": [owner]}
        try:
            await write.client.create(SECRET, {"metadata": meta, "data": data}, dry_run=dry_run)
        except AlreadyExists:
            live = await write.client.get(SECRET, name, self._namespace)
            if not _is_owned(live, name_of(stored)):
                raise
            # The secret key cannot be read back, so one that is not given again stays.
            gone = as_map(live.get("data")).keys() - data.keys() - {"secretAccessKey"}
            patch = {"metadata": {"ownerReferences": [owner]}, "data": {**data, **dict.fromkeys(gone)}}
            await write.client.patch(SECRET, name, patch, self._namespace, dry_run=dry_run)


def _is_owned(secret: Map[str, Any], name: str) -> bool:
    """Say whether a Secret was made for the class of this name, be it an earlier one."""
    return any(owner.get("kind") == STORAGE_CLASS.kind and owner.get("name") == name for owner in _owners(secret))


def _owners(secret: Map[str, Any]) -> list[Map[str, Any]]:
    return [as_map(owner) for owner in as_list(at(secret, "metadata", "ownerReferences"))]


def _credentials(s3: S3) -> dict[str, str]:
    texts = {
        "endpoint": s3.get("endpoint"),
        "region": s3.get("region"),
        "insecure": TRUE if s3.get("insecure") else "",
        "accessKeyID": s3.get("accessKey"),
        "secretAccessKey": s3.get("secretKey"),
    }
    return {key: encoded(text) for key, text in texts.items() if text}


def _spec(obj: Map[str, Any]) -> InstancePersistentVolumeTypeSpec:
    spec = {key: value for key, value in as_map(obj.get("spec")).items() if value is not None}
    return spec  # type: ignore[return-value]  # the model has checked its shape


def _nfs_of(stored: Map[str, Any]) -> Object:
    parameters = str_map(stored.get("parameters"))
    names = {"server": "server", "share": "share", "subDir": "subDirectory", "mountPermissions": "mountPermissions"}
    out: Object = {wanted: parameters[key] for key, wanted in names.items() if parameters.get(key)}
    options = as_list(stored.get("mountOptions"))
    return {**out, "mountOptions": options} if options else out


def _s3_of(stored: Map[str, Any]) -> Object:
    parameters = str_map(stored.get("parameters"))
    out: Object = {key: note(stored, key) for key in ("endpoint", "region", "accessKey") if note(stored, key)}
    if note(stored, "insecure") == TRUE:
        out["insecure"] = True
    out |= {key: parameters[key] for key in ("bucket", "prefix", "mounter") if parameters.get(key)}
    options = parameters.get("options", "").split()
    return {**out, "mountOptions": options} if options else dict(with_s3_defaults(_as_s3(out)))


def _as_s3(fields: Object) -> S3:
    return fields  # type: ignore[return-value]  # the keys are those of the source


def _unprocessable(refusal: status.Refusal) -> status.Refusal:
    """A source is judged as a list of errors, also when it is one."""
    refusal.code = 422
    return refusal


def resource(context: Context) -> Resource:
    """Return the served resource."""
    return mapped_resource(context, PersistentVolumeTypes(context.system_namespace), columns=COLUMNS)
