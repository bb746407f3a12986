"""What of the host an Instance newly takes: privileges, paths (spec 05 §7.5).

For: the Instance webhook. In: specs before and after, the two settings. Out: a problem for each grant that is neither
allowed nor held already.
Promises: grants are compared by value, never by index: reordering is fine, repointing or widening is a new grant; each
setting opens its own field alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.instance_volumes import clean_path
from api.problems import Fault, Problem, problem
from nodefeature.fields import as_bool, as_maps, as_str, at


@dataclass(frozen=True, slots=True)
class Grant:
    """One path of the host."""

    path: str
    type: str
    sub_path: str
    read_only: bool

    def covers(self, other: Grant) -> bool:
        """Say whether `other` takes no more than this."""
        if (self.path, self.type) != (other.path, other.type) or (self.read_only and not other.read_only):
            return False
        whole = self.sub_path == ""
        return whole or other.sub_path == self.sub_path or other.sub_path.startswith(f"{self.sub_path}/")


def host_access_problems(
    spec: Mapping[str, Any], held: Mapping[str, Any], *, privileged_allowed: bool, host_paths_allowed: bool
) -> list[Problem]:
    """Return what is newly taken without leave; `held` is the stored spec, empty for a new Instance."""
    problems: list[Problem] = []
    if as_bool(spec.get("privileged")) and not as_bool(held.get("privileged")) and not privileged_allowed:
        rule = "privileged Instances are not allowed here; setting instance-privileged-allowed would allow them"
        problems.append(problem("spec.privileged", None, rule, Fault.FORBIDDEN))
    if host_paths_allowed:
        return problems
    before = [grant for _, grant in _grants(held)]
    rule = "paths of the host are not allowed here; setting instance-host-path-volume-allowed would allow them"
    for index, grant in _grants(spec):
        if not any(old.covers(grant) for old in before):
            problems.append(problem(f"spec.additionalVolumes[{index}].hostPath", None, rule, Fault.FORBIDDEN))
    return problems


def _grants(spec: Mapping[str, Any]) -> list[tuple[int, Grant]]:
    return [
        (index, _grant(volume))
        for index, volume in enumerate(as_maps(spec.get("additionalVolumes")))
        if volume.get("hostPath") is not None
    ]


def _grant(volume: Mapping[str, Any]) -> Grant:
    sub_path = clean_path(as_str(volume.get("subPath")))
    return Grant(
        path=clean_path(as_str(at(volume, "hostPath", "path"))),
        type=as_str(at(volume, "hostPath", "type")),
        sub_path="" if sub_path == "." else sub_path,
        read_only=as_bool(volume.get("readOnly")),
    )
