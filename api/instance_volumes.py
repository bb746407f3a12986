"""Rules of an Instance's additional volumes.

For: `api.instance_rules` (spec 02 §6.4, spec 05 §7.4).
In: the raw spec. Out: problems. Promises: paths are compared as cleaned paths; existence is never checked.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from api.instance_pod_rules import OBJECT_NAME_RULE
from api.problems import Problem, problem, require
from nodefeature.destinations import is_object_name
from nodefeature.fields import as_maps, as_str, at

SOURCES = ("persistent", "configMap", "secret", "hostPath")
HOST_PATH_TYPES = (
    "",
    "DirectoryOrCreate",
    "Directory",
    "FileOrCreate",
    "File",
    "Socket",
    "CharDevice",
    "BlockDevice",
)


def additional_volume_problems(spec: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with `spec.additionalVolumes`."""
    problems: list[Problem] = []
    taken = {clean_path(as_str(spec.get("volumeMount")) or "/workspace"): "spec.volumeMount"}
    for index, volume in enumerate(as_maps(spec.get("additionalVolumes"))):
        path = f"spec.additionalVolumes[{index}]"
        problems += _mount_problems(volume, path, taken)
        problems += _sub_path_problems(as_str(volume.get("subPath")), f"{path}.subPath")
        problems += _source_problems(volume, path)
    return problems


def clean_path(path: str) -> str:
    """Return a path without `.`, `..` and doubled slashes."""
    return posixpath.normpath(path) if path else ""


def _mount_problems(volume: Mapping[str, Any], path: str, taken: dict[str, str]) -> list[Problem]:
    raw = as_str(volume.get("mountPath"))
    mount = clean_path(raw)
    if not mount.startswith("/"):
        return [problem(f"{path}.mountPath", raw, "must be an absolute path")]
    if mount in taken:
        return [problem(f"{path}.mountPath", raw, f"is already the path of {taken[mount]}")]
    taken[mount] = f"{path}.mountPath"
    return []


def _sub_path_problems(sub_path: str, path: str) -> list[Problem]:
    fine = not sub_path.startswith("/") and ".." not in sub_path.split("/")
    return require(fine, path, sub_path, "must be a relative path without '..'")


def _source_problems(volume: Mapping[str, Any], path: str) -> list[Problem]:
    sources = [name for name in SOURCES if volume.get(name) is not None]
    if len(sources) != 1:
        rule = f"exactly one of {', '.join(SOURCES)} must be specified"
        return [problem(path, ", ".join(sources) or None, rule)]
    source = sources[0]
    if source == "hostPath":
        return _host_path_problems(volume["hostPath"], f"{path}.hostPath")
    name = as_str(at(volume[source], "name"))
    return require(is_object_name(name), f"{path}.{source}.name", name, OBJECT_NAME_RULE)


def _host_path_problems(host: object, path: str) -> list[Problem]:
    where, kind = as_str(at(host, "path")), as_str(at(host, "type"))
    fine = where.startswith("/") and ".." not in where.split("/")
    problems = require(fine, f"{path}.path", where, "must be an absolute path without '..'")
    return problems + require(kind in HOST_PATH_TYPES, f"{path}.type", kind, "must be a type of hostPath volumes")
