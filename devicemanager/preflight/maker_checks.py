"""Is one manufacturer fit: detected, sliceable, manageable while sliced (spec 06 §15).

In: an answer of detection, the groups made of it, the host's files, drivers. Out: checks.
Promises: nothing here changes a driver's mode or writes a file; what is played through uses the very code that serves
containers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from api.devices import DeviceGroup
from api.ledger.capability import overcommits
from api.ledger.fit import is_partitioned, is_sliceable
from api.ledger.placements import Placement
from devicemanager.answers import Answer, Empty, Found
from devicemanager.injection import amd, ascend, cambricon, hygon, iluvatar, metax, mthreads, nvidia, thead
from devicemanager.injection.asking import card_facts
from devicemanager.injection.cdi import ENVVAR
from devicemanager.injection.host import Host
from devicemanager.injection.realize import check
from devicemanager.injection.request import ContainerClaim, InjectionRefused, Plan, Request
from devicemanager.injection.site import Site
from devicemanager.injection.vdev import parse_vdev
from devicemanager.preflight.report import Check, Depth, State
from nodefeature.fields import as_str, at
from nodefeature.resource_names import Family

_HOST_PATHS: dict[str, tuple[str, ...]] = {
    "amd": ("/opt/rocm",),
    "ascend": ("/usr/local/Ascend", "/usr/local/dcmi"),
    "cambricon": ("/usr/local/neuware",),
    "hygon": ("/opt/hyhal", "/opt/dtk"),
    "iluvatar": ("/usr/local/corex",),
    "metax": ("/opt/mxdriver", "/opt/maca"),
    "thead": ("/usr/local/PPU_SDK",),
}
HALF = 50


@dataclass(frozen=True, slots=True)
class Maker:
    """One manufacturer on this node."""

    name: str
    answer: Answer
    groups: Sequence[DeviceGroup]
    depth: Depth

    @property
    def cards(self) -> list[tuple[DeviceGroup, Mapping[str, Any]]]:
        """Return every published card with its group."""
        return [(group, card) for group in self.groups for card in group["accelerators"]]


def maker_checks(maker: Maker, site: Site, host: Host) -> list[Check]:
    """Return the checks of a manufacturer; one that is not there has only the first."""
    detected = _detected(maker)
    if not isinstance(maker.answer, Found) or not maker.cards:
        return [detected]
    checks = [detected, *_paths(maker, host), *_ascend_files(maker, host)]
    sliceable = [(group, card) for group, card in maker.cards if is_sliceable(card)]
    if not sliceable:
        partitioned = any(is_partitioned(card) for _, card in maker.cards)
        said = "every card is in partition mode" if partitioned else "no card offers logical slices"
        return [*checks, _check(maker, "sliced-runtime-loaded", State.NOT_DECLARED, said), _watcher(maker, site, host)]
    return [
        *checks,
        _shims(maker, site, host, *sliceable[0]),
        _quota(maker, site, *sliceable[0]),
        _watcher(maker, site, host),
        _tenants(maker, site, *sliceable[0]),
    ]


def slice_plan(maker: str, site: Site, group: DeviceGroup, card: Mapping[str, Any], *, pod: str = "preflight") -> Plan:
    """Return what half of a card would be as a container; drivers are not asked."""
    request = _request(maker, Family.SLICED, group, card, pod=pod)
    return _SLICES[maker](request, site)


def _detected(maker: Maker) -> Check:
    answer = maker.answer
    if isinstance(answer, Found):
        left_out = len(answer.cards) - len(maker.cards)
        said = f"{len(maker.cards)} accelerators" + (f", {left_out} left out" if left_out else "")
        if maker.cards:
            return _check(maker, "detected", State.OK, said, depth=maker.depth)
        return _check(
            maker, "detected", State.UNAVAILABLE, said, depth=maker.depth, remedy="`device-manager detect` names each"
        )
    if isinstance(answer, Empty):
        return _check(maker, "detected", State.NOT_DECLARED, answer.reason, depth=maker.depth)
    return _check(
        maker,
        "detected",
        State.UNAVAILABLE,
        answer.reason,
        depth=maker.depth,
        remedy="install the vendor's driver and library, or take the manufacturer out of --manufacturer",
    )


def _paths(maker: Maker, host: Host) -> list[Check]:
    paths = _HOST_PATHS.get(maker.name, ())
    missing = [path for path in paths if not host.exists(path)]
    if not paths:
        return []
    if missing:
        remedy = "install the vendor's toolkit there, or name its place by the toolkit's environment variable"
        return [_check(maker, "toolkit", State.UNAVAILABLE, f"missing: {', '.join(missing)}", remedy=remedy)]
    return [_check(maker, "toolkit", State.OK, ", ".join(paths))]


def _shims(maker: Maker, site: Site, host: Host, group: DeviceGroup, card: Mapping[str, Any]) -> Check:
    try:
        plan = slice_plan(maker.name, site, group, card)
    except InjectionRefused as refused:
        return _check(maker, "sliced-runtime-loaded", State.UNAVAILABLE, str(refused), remedy="see the reason")
    wanted = sorted({mount.host_path for mount in plan.mounts if mount.host_path.startswith(site.library_root)})
    missing = [path for path in wanted if not host.exists(path)]
    if missing:
        return _check(
            maker,
            "sliced-runtime-loaded",
            State.UNAVAILABLE,
            f"missing: {', '.join(missing)}",
            remedy="place the vendor's slicing library there, or name its root by --library-root",
        )
    said = f"{len(wanted)} files under {site.library_root}" if wanted else "this manufacturer needs none"
    return _check(maker, "sliced-runtime-loaded", State.OK, said)


def _quota(maker: Maker, site: Site, group: DeviceGroup, card: Mapping[str, Any]) -> Check:
    try:
        plan = slice_plan(maker.name, site, group, card)
    except InjectionRefused as refused:
        return _check(
            maker,
            "sliced-quota-in-force",
            State.UNAVAILABLE,
            str(refused),
            depth=Depth.SIMULATED,
            remedy="see the reason",
        )
    limits = sorted(name for name in plan.env if "LIMIT" in name or "MASK" in name or "SGPUS" in name)
    by = limits or [file.path.rpartition("/")[2] for file in plan.files] or ["the driver's own instance"]
    return _check(maker, "sliced-quota-in-force", State.OK, f"limited by {', '.join(by)}", depth=Depth.SIMULATED)


def _watcher(maker: Maker, site: Site, host: Host) -> Check:
    group, card = maker.cards[0]
    try:
        if is_partitioned(card):
            return _check(
                maker, "sidecar-visibility", State.OK, "a watcher is shown the partition", depth=Depth.SIMULATED
            )
        check(_WHOLE[maker.name](_request(maker.name, Family.VISIBILITY, group, card), site), host)
    except InjectionRefused as refused:
        return _check(
            maker,
            "sidecar-visibility",
            State.UNAVAILABLE,
            str(refused),
            depth=Depth.SIMULATED,
            remedy="load the vendor's driver, so that its device nodes appear",
        )
    return _check(maker, "sidecar-visibility", State.OK, f"card {as_str(card.get('id'))}", depth=Depth.SIMULATED)


def _tenants(maker: Maker, site: Site, group: DeviceGroup, card: Mapping[str, Any]) -> Check:
    """Play two halves of one card through; what holds them apart must differ."""
    name = "co-tenancy"
    try:
        if maker.name == "hygon":
            first = hygon.plan(_request(maker.name, Family.SLICED, group, card), site)
            held = [parse_vdev(file.text, file.path) for file in first.files]
            hygon.plan(_request(maker.name, Family.SLICED, group, card, pod="second"), site, others=held)
        else:
            slice_plan(maker.name, site, group, card)
            slice_plan(maker.name, site, group, card, pod="second")
    except InjectionRefused as refused:
        return _check(maker, name, State.UNAVAILABLE, str(refused), depth=Depth.SIMULATED, remedy="see the reason")
    word = "overcommitted" if overcommits(card) else "split"
    return _check(maker, name, State.OK, f"two halves of one card, compute {word}", depth=Depth.SIMULATED)


def _ascend_files(maker: Maker, host: Host) -> list[Check]:
    if maker.name != "ascend" or all(as_str(group.get("family")) != "950" for group in maker.groups):
        return []
    return [_docker_runtime(maker, host), _ranktable(maker, host)]


_DOCKER_RUNTIME = "/usr/local/Ascend/Ascend-Docker-Runtime/ascend_docker_runtime_install.info"
_RANKTABLE = "/etc/hccl_rootinfo.json"
_LEAST_MINDCLUSTER = 26


def _docker_runtime(maker: Maker, host: Host) -> Check:
    text = host.read_or_none(_DOCKER_RUNTIME) or ""
    version = next((line.partition("=")[2].strip() for line in text.splitlines() if line.startswith("version=")), "")
    major = version.lstrip("v").partition(".")[0]
    if major.isdecimal() and int(major) >= _LEAST_MINDCLUSTER:
        return _check(maker, "ascend-docker-runtime", State.OK, version)
    return _check(
        maker,
        "ascend-docker-runtime",
        State.UNAVAILABLE,
        f"version {version}" if version else f"{_DOCKER_RUNTIME} names no version",
        remedy=f"install Ascend Docker Runtime of MindCluster {_LEAST_MINDCLUSTER}.0.0 or newer",
    )


def _ranktable(maker: Maker, host: Host) -> Check:
    name, remedy = "hccl-ranktable", f"remove {_RANKTABLE}, or write it anew in version 2.0"
    try:
        text = host.read(_RANKTABLE)
    except InjectionRefused as unreadable:
        return _check(maker, name, State.UNAVAILABLE, str(unreadable), remedy=remedy)
    if text is None:
        return _check(maker, name, State.OK, "there is none, so none misleads")
    version = _json_version(text)
    if host.is_link(_RANKTABLE) or version != "2.0":
        return _check(maker, name, State.UNAVAILABLE, f"version {version or 'unreadable'}", remedy=remedy)
    return _check(maker, name, State.OK, f"version {version}")


def _json_version(text: str) -> str:
    try:
        return as_str(at(json.loads(text), "version"))
    except ValueError:
        return ""


def _request(
    maker: str, family: Family, group: DeviceGroup, card: Mapping[str, Any], *, pod: str = "preflight"
) -> Request:
    claim = ContainerClaim(
        pod_uid=pod,
        namespace="preflight",
        pod=pod,
        container="main",
        family=family,
        cores_percentage=HALF,
        memory_percentage=HALF,
    )
    return Request(maker, claim, (card_facts(group, card),))


def _amd_slice(request: Request, site: Site) -> Plan:
    card = request.cards[0]
    # The layout is the driver's to tell; half of the card stands for any window.
    placed = replace(card, window=Placement(0, max(card.cores // 2, 1)))
    return amd.plan(replace(request, cards=(placed,)), site)


def _metax_slice(request: Request, site: Site) -> Plan:
    return metax.plan(request, metax.wanted(request, site))


def _cambricon_slice(request: Request, site: Site) -> Plan:
    wanted = cambricon.wanted(request, site)
    return cambricon.plan(request, cambricon.SmluInstance(wanted.instance, 1))


Planner = Callable[[Request, Site], Plan]
_WHOLE: dict[str, Planner] = {
    "amd": amd.plan,
    "ascend": ascend.plan,
    "cambricon": lambda request, _site: cambricon.plan(request),
    "hygon": hygon.plan,
    "iluvatar": iluvatar.plan,
    "metax": lambda request, _site: metax.plan(request),
    "mthreads": mthreads.plan,
    "nvidia": lambda request, site: nvidia.plan(request, site, ENVVAR),
    "thead": thead.plan,
}
_SLICES: dict[str, Planner] = _WHOLE | {"amd": _amd_slice, "metax": _metax_slice, "cambricon": _cambricon_slice}


def _check(
    maker: Maker, name: str, state: State, said: str, *, depth: Depth = Depth.DECLARED, remedy: str = ""
) -> Check:
    return Check(about=maker.name, name=name, state=state, depth=depth, said=said, remedy=remedy)
