"""InstancePersistentVolumeType: where volumes come from, kept as a StorageClass (and a Secret for S3).

For: the v1 resource (spec 02 §11). In: specs. Out: defaults, problems, StorageClass parameters, table cells.
Promises: pure; the secret key never stands in a problem or a cell.
"""

from __future__ import annotations

import re
from typing import TypedDict

from api.problems import Problem, problem, require
from api.setting_rules import SettingInvalid, http_url

MOUNTERS = ("geesefs", "rclone", "s3fs")
NFS_MOUNT_OPTIONS = ("hard", "vers=4", "rsize=1048576", "wsize=1048576", "noatime", "nodiratime")
S3_MOUNT_OPTIONS = (
    "--no-checksum",
    "--memory-limit=4000",
    "--max-flushers=32",
    "--max-parallel-parts=32",
    "--part-sizes=25",
    "--list-type=2",
    "--no-specials",
)
_SECRET_USERS = ("provisioner", "controller-publish", "node-stage", "node-publish")


class Nfs(TypedDict, total=False):
    """An NFS share."""

    server: str
    share: str
    subDirectory: str
    mountPermissions: str
    mountOptions: list[str]


class S3(TypedDict, total=False):
    """An S3 bucket."""

    endpoint: str
    region: str
    insecure: bool
    accessKey: str
    secretKey: str
    bucket: str
    prefix: str
    mounter: str
    mountOptions: list[str]


class InstancePersistentVolumeTypeSpec(TypedDict, total=False):
    """Exactly one of both sources."""

    displayName: str
    description: str
    nfs: Nfs
    s3: S3


def spec_problems(spec: InstancePersistentVolumeTypeSpec) -> list[Problem]:
    """Return what is wrong with a type."""
    nfs, s3 = spec.get("nfs"), spec.get("s3")
    if nfs is None and s3 is None:
        return [problem("spec", None, "one of NFS and S3 must be specified")]
    if nfs is not None and s3 is not None:
        return [problem("spec", None, "only one of NFS and S3 can be specified")]
    return _nfs_problems(nfs) if nfs is not None else _s3_problems(s3 or {})


def update_problems(old: InstancePersistentVolumeTypeSpec, new: InstancePersistentVolumeTypeSpec) -> list[Problem]:
    """Return every immutable field that an update changes."""
    if ("nfs" in old) != ("nfs" in new):
        return [problem("spec", None, "NFS and S3 cannot be exchanged")]
    if "nfs" in old:
        before, after = old.get("nfs", {}), new.get("nfs", {})
        pairs = [(name, before.get(name), after.get(name)) for name in ("server", "share")]
    else:
        was, now = with_s3_defaults(old.get("s3", {})), with_s3_defaults(new.get("s3", {}))
        pairs = [(name, was.get(name), now.get(name)) for name in ("bucket", "prefix", "mounter", "mountOptions")]
    source = "nfs" if "nfs" in old else "s3"
    return [
        problem(f"spec.{source}.{name}", value, "field is immutable")
        for name, had, value in pairs
        if (had or None) != (value or None)
    ]


def with_s3_defaults(s3: S3) -> S3:
    """Return an S3 source with its mounter and options filled in."""
    return {
        **s3,
        "mounter": s3.get("mounter") or "geesefs",
        "mountOptions": s3.get("mountOptions") or [*S3_MOUNT_OPTIONS],
    }


def nfs_parameters(nfs: Nfs) -> dict[str, str]:
    """Return the StorageClass parameters of an NFS share."""
    parameters = {"server": nfs.get("server", ""), "share": nfs.get("share", "")}
    if nfs.get("subDirectory"):
        parameters["subDir"] = nfs["subDirectory"]
    if nfs.get("mountPermissions"):
        parameters["mountPermissions"] = nfs["mountPermissions"]
    return parameters


def s3_parameters(s3: S3, *, name: str, namespace: str) -> dict[str, str]:
    """Return the StorageClass parameters of an S3 bucket; `namespace` is that of the credentials' Secret."""
    filled = with_s3_defaults(s3)
    parameters = {"mounter": filled["mounter"], "options": " ".join(filled["mountOptions"])}
    parameters |= {key: value for key, value in (("bucket", s3.get("bucket")), ("prefix", s3.get("prefix"))) if value}
    for user in _SECRET_USERS:
        parameters[f"csi.storage.k8s.io/{user}-secret-name"] = credentials_name(name)
        parameters[f"csi.storage.k8s.io/{user}-secret-namespace"] = namespace
    return parameters


def credentials_name(name: str) -> str:
    """Return the name of an S3 type's Secret."""
    return f"gpustack-pvt-s3-{name}"


def cells(spec: InstancePersistentVolumeTypeSpec) -> tuple[str, str, str]:
    """Return the table's Type, Endpoint and Account."""
    nfs = spec.get("nfs")
    if nfs is not None:
        directory = f"[{nfs['subDirectory']}]" if nfs.get("subDirectory") else ""
        return "NFS", f"{nfs.get('server', '')} ({nfs.get('share', '')}{directory})", ""
    s3 = spec.get("s3", {})
    bucket = f"[{s3['bucket']}]" if s3.get("bucket") else ""
    return "S3", f"{s3.get('endpoint', '')} ({s3.get('region', '')}{bucket})", s3.get("accessKey", "")


def _nfs_problems(nfs: Nfs) -> list[Problem]:
    problems = require(bool(nfs.get("server")), "spec.nfs.server", None, "is required")
    problems += require(bool(nfs.get("share")), "spec.nfs.share", None, "is required")
    permissions = nfs.get("mountPermissions") or "0"
    octal = re.fullmatch("[0-7]{1,5}", permissions) is not None
    return problems + require(octal, "spec.nfs.mountPermissions", permissions, "must be an octal number")


def _s3_problems(s3: S3) -> list[Problem]:
    endpoint = s3.get("endpoint")
    problems = _url_problems(endpoint) if endpoint else [problem("spec.s3.endpoint", None, "is required")]
    mounter = s3.get("mounter") or "geesefs"
    return problems + require(mounter in MOUNTERS, "spec.s3.mounter", mounter, f"must be one of {', '.join(MOUNTERS)}")


def _url_problems(endpoint: str) -> list[Problem]:
    try:
        http_url(endpoint)
    except SettingInvalid as broken:
        return [problem("spec.s3.endpoint", endpoint, str(broken))]
    return []
