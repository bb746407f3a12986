"""Kinds kept in other objects: spec 02 §5, §8-§11."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from api import instance_image_pull_secret as pull_secret
from api import instance_persistent_volume as volume
from api import instance_persistent_volume_type as volume_type
from api import instance_ssh_public_key as ssh_key
from api.instance_type_flavor import flavors_of
from api.models import mapped_kinds
from api.schema import structural
from api.validation import shape_problems
from tests.builders.structural import broken_rules

A10G = {
    "acceleratable": "true", "acceleratorGroup": "nvidia-a10g", "manufacturer": "nvidia", "product": "NVIDIA A10G",
    "memory": "24576Mi", "cores": "9216", "generalGroup": "amd-epyc-7763",
}  # fmt: skip


def flavor(notes: dict[str, str], **metadata: Any) -> Any:
    return {"metadata": {"annotations": {f"note.gpustack.ai/{k}": v for k, v in notes.items()}, **metadata}}


def names(flavors: Any, *, aware: bool) -> list[str]:
    return [row["metadata"]["name"] for row in flavors_of(flavors, aware=aware)]


def test_flavor_rows() -> None:
    assert names([flavor(A10G)], aware=False) == ["gpustack-nvidia-a10g"]
    assert names([flavor(A10G)], aware=True) == ["gpustack-amd-epyc-7763--nvidia-a10g"]
    (row,) = flavors_of([flavor(A10G)], aware=False)
    assert row["spec"] == {
        "acceleratorGroup": "nvidia-a10g",
        "acceleratable": True,
        "manufacturer": "nvidia",
        "product": "NVIDIA A10G",
        "memory": "24576Mi",
        "cores": "9216",
    }


def test_flavors_of_different_cpus_collapse_unless_aware() -> None:
    two = [flavor(A10G), flavor(A10G | {"generalGroup": "intel-8358"})]
    assert len(flavors_of(two, aware=False)) == 1
    assert len(flavors_of(two, aware=True)) == 2


def test_cpu_only_flavors_collapse_to_generic() -> None:
    three = [flavor({"acceleratable": "false", "generalGroup": f"cpu-{i}", "family": "zen"}) for i in range(3)]
    (row,) = flavors_of(three, aware=False)
    assert row["metadata"]["name"] == "gpustack-generic"
    assert row["spec"] == {"acceleratable": False, "generalGroup": "generic", "manufacturer": "generic"}
    assert names(three, aware=True) == ["gpustack-cpu-0", "gpustack-cpu-1", "gpustack-cpu-2"]


def test_flavors_are_sorted_memory_by_amount() -> None:
    sizes = ["16Gi", "8Gi", "unknown", "9000Mi"]
    flavors = [flavor(A10G | {"memory": size, "acceleratorGroup": f"nvidia-{size.lower()}"}) for size in sizes]
    assert [row["spec"]["memory"] for row in flavors_of(flavors, aware=False)] == ["8Gi", "9000Mi", "16Gi", "unknown"]


def test_flavors_left_out() -> None:
    assert names([flavor(A10G, deletionTimestamp="x")], aware=False) == []
    assert names([flavor({"acceleratable": "true"})], aware=False) == []
    assert names([{"metadata": {"annotations": None}}], aware=False) == ["gpustack-generic"]


def test_ssh_key_round_trip() -> None:
    stored = {"data": ssh_key.secret_data({"data": "ssh-ed25519 AAAA laptop"})}
    assert list(stored["data"]) == ["authorized-keys"]
    assert ssh_key.data_of(stored) == "ssh-ed25519 AAAA laptop"
    assert ssh_key.data_of({"data": {"authorized-keys": "%"}}) == ""
    assert ssh_key.data_of({"data": None}) == ""


def test_pull_secret_example() -> None:
    spec: Any = {"registry": "reg.example.com", "username": "bob", "password": "s3"}
    config = json.loads(base64.b64decode(pull_secret.secret_data(spec)[".dockerconfigjson"]))
    assert config == {"auths": {"reg.example.com": {"auth": "Ym9iOnMz"}}}
    with_mail = json.loads(base64.b64decode(pull_secret.secret_data(spec | {"email": "b@x"})[".dockerconfigjson"]))
    assert with_mail["auths"]["reg.example.com"]["email"] == "b@x"
    assert pull_secret.spec_problems(spec) == []
    assert [str(p) for p in pull_secret.spec_problems({"registry": "r"})] == [
        "spec.username: username is required",
        "spec.password: password is required",
    ]


@pytest.mark.parametrize(
    ("storage_class", "mode"),
    [
        ({"volumeBindingMode": "Immediate", "allowVolumeExpansion": True}, "ReadWriteOnce"),
        ({"volumeBindingMode": "Immediate"}, "ReadWriteMany"),
        ({}, "ReadWriteMany"),
        ({"volumeBindingMode": "WaitForFirstConsumer"}, "ReadWriteOnce"),
    ],
)
def test_default_access_mode(storage_class: Any, mode: str) -> None:
    assert volume.default_access_mode(storage_class) == mode


@pytest.mark.parametrize("prefix", ["storageclass.kubernetes.io", "storageclass.beta.kubernetes.io"])
def test_default_class(prefix: str) -> None:
    chosen = {"metadata": {"name": "b", "annotations": {f"{prefix}/is-default-class": "true"}}}
    assert volume.default_class([{"metadata": {"name": "a"}}, chosen]) is chosen
    assert volume.default_class([]) is None


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"type": "b"}, "spec.type"),
        ({"capacity": "30Gi", "accessMode": "ReadOnlyMany"}, "spec.capacity"),
        ({"accessMode": "ReadOnlyMany"}, "spec.accessMode"),
        ({"capacity": "20480Mi"}, ""),
        ({"displayName": "new"}, ""),
    ],
)
def test_volume_updates(change: Any, path: str) -> None:
    old: Any = {"type": "a", "capacity": "20Gi", "accessMode": "ReadWriteOnce"}
    found = volume.update_problems(old, old | change)
    assert [(p.path, p.rule) for p in found] == ([(path, "field is immutable")] if path else [])


def test_volume_phases_and_modes() -> None:
    phases = {claim: volume.phase_of_claim(claim) for claim in ("Bound", "Lost", "Pending", "")}
    assert phases == {"Bound": "Available", "Lost": "Unavailable", "Pending": "Pending", "": "Pending"}
    assert volume.spec_problems({"accessMode": "ReadWriteSometimes"})[0].path == "spec.accessMode"
    assert volume.spec_problems({"accessMode": "ReadWriteOncePod"}) == []


S3: Any = {
    "endpoint": "https://s3.example.com",
    "region": "eu",
    "bucket": "data",
    "accessKey": "AK1",
    "secretKey": "SK",
}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, "one of NFS and S3 must be specified"),
        ({"nfs": {}, "s3": {}}, "only one of NFS and S3 can be specified"),
        ({"nfs": {"server": "s"}}, "is required"),
        ({"nfs": {"server": "s", "share": "/x", "mountPermissions": "999"}}, "must be an octal number"),
        ({"nfs": {"server": "s", "share": "/x", "mountPermissions": "0777"}}, ""),
        ({"s3": {}}, "is required"),
        ({"s3": {"endpoint": "ftp://x"}}, "http or https"),
        ({"s3": S3 | {"mounter": "fuse"}}, "must be one of geesefs, rclone, s3fs"),
        ({"s3": S3}, ""),
    ],
)
def test_volume_types(spec: Any, want: str) -> None:
    found = volume_type.spec_problems(spec)
    assert bool(found) is bool(want)
    assert all(want in p.rule for p in found)
    assert "SK" not in repr(found)


def test_volume_type_cells() -> None:
    assert volume_type.cells({"s3": S3}) == ("S3", "https://s3.example.com (eu[data])", "AK1")
    nfs: Any = {"server": "10.0.0.1", "share": "/x", "subDirectory": "d"}
    assert volume_type.cells({"nfs": nfs}) == ("NFS", "10.0.0.1 (/x[d])", "")


def test_volume_type_parameters() -> None:
    parameters = volume_type.s3_parameters(S3, name="t", namespace="gpustack-system")
    assert parameters["mounter"] == "geesefs"
    assert parameters["options"].startswith("--no-checksum --memory-limit=4000")
    assert parameters["csi.storage.k8s.io/node-stage-secret-name"] == "gpustack-pvt-s3-t"
    assert sum(key.startswith("csi.storage.k8s.io/") for key in parameters) == 8
    assert volume_type.nfs_parameters({"server": "s", "share": "/x", "subDirectory": "d", "mountPermissions": "0"}) == {
        "server": "s",
        "share": "/x",
        "subDir": "d",
        "mountPermissions": "0",
    }


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        ({"s3": S3}, {"s3": S3 | {"mounter": "geesefs"}}, []),
        ({"s3": S3}, {"s3": S3 | {"endpoint": "https://other"}}, []),
        ({"s3": S3}, {"s3": S3 | {"mounter": "rclone", "bucket": "x"}}, ["spec.s3.bucket", "spec.s3.mounter"]),
        ({"s3": S3}, {"nfs": {"server": "s", "share": "/x"}}, ["spec"]),
        ({"nfs": {"server": "s", "share": "/x"}}, {"nfs": {"server": "t", "share": "/x"}}, ["spec.nfs.server"]),
    ],
)
def test_volume_type_updates(old: Any, new: Any, paths: list[str]) -> None:
    assert [p.path for p in volume_type.update_problems(old, new)] == paths


MODELS = [
    mapped_kinds.InstanceTypeFlavor,
    mapped_kinds.InstanceSSHPublicKey,
    mapped_kinds.InstanceImagePullSecret,
    mapped_kinds.InstancePersistentVolume,
    mapped_kinds.InstancePersistentVolumeType,
    mapped_kinds.Setting,
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_models_have_schemas(model: Any) -> None:
    schema = structural(model)
    assert [rule for rule in broken_rules(schema) if "list" not in rule] == []
    assert schema["properties"]["spec"]["type"] == "object"


def test_model_limits() -> None:
    found = shape_problems(mapped_kinds.InstanceSSHPublicKey, {"spec": {"displayName": "x" * 65}})
    assert [p.path for p in found] == ["spec.displayName", "spec.data"]
