"""MetaX: device nodes; slices are sGPU subdevices that the driver makes (spec 06 §8.1, §8.2, §8.5).

Promises: a live subdevice is never touched; a card held whole gets no subdevice, and one with a subdevice is never held
whole; a container asked for again gets the subdevice it has, or none.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from devicemanager.injection.markers import fields_of, marker_text
from devicemanager.injection.request import Card, DeviceNode, InjectionRefused, Plan, Request
from devicemanager.injection.site import Site, cores_percentage, granted, memory_mib, only_card, who
from nodefeature.resource_names import Family

MARKER = "metax-sgpu.json"
WHOLE = -1
_MAX_SUBDEVICES = 16
_WHOLE_NODES = ("/dev/mxcd", "/dev/mxnd", "/dev/mxgd")


@dataclass(frozen=True, slots=True)
class Subdevice:
    """One sGPU in the driver's registry."""

    index: int
    alias: str


class SgpuDriver(Protocol):
    """The driver's registry of subdevices, by the card's bus address. Methods raise DriverFault."""

    def subdevices(self, bus_id: str) -> tuple[Subdevice, ...]:
        """Return the live subdevices of a card."""

    def enable(self, bus_id: str) -> None:
        """Turn sGPU mode on, then the scheduling class to fixed shares."""

    def create(self, bus_id: str, index: int, mib: int, alias: str) -> None:
        """Create one subdevice."""

    def destroy(self, bus_id: str, index: int) -> None:
        """Destroy one subdevice."""


@dataclass(frozen=True, slots=True)
class Sgpu:
    """What a container holds; index -1 is the whole card."""

    pod_uid: str
    container: str
    bus_id: str
    index: int
    cores: int
    mib: int

    @property
    def whole(self) -> bool:
        """Say whether it is the whole card."""
        return self.index == WHOLE

    @property
    def alias(self) -> str:
        """Return the name of its subdevice in the driver."""
        return alias_of(self.pod_uid)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do: `enable` the card first, `create` the subdevice, or take what is there."""

    sgpu: Sgpu
    enable: bool = False
    create: bool = False
    is_new: bool = False


def plan(request: Request, sgpu: Sgpu | None = None) -> Plan:
    """Return what the container gets; `sgpu` is what a slice holds."""
    if request.claim.family is not Family.SLICED or sgpu is None:
        nodes = [DeviceNode(path) for path in _WHOLE_NODES]
        for card in granted(request):
            nodes += [DeviceNode(path) for path in _drm_paths(card)]
        return Plan(devices=tuple(nodes))
    card = only_card(request, "sGPU slicing is single-card")
    shown = f"sgpu={sgpu.bus_id}#{sgpu.index};compute={sgpu.cores};vram={sgpu.mib};alias={sgpu.alias}"
    return Plan(
        env={} if sgpu.whole else {"METAX_SGPUS": shown},
        devices=(DeviceNode("/dev/mxcd"), *(DeviceNode(path) for path in _drm_paths(card)[1:])),
    )


def alias_of(pod_uid: str) -> str:
    """Return the alias of a Pod's subdevices."""
    return f"gpustack-{pod_uid}"


def wanted(request: Request, site: Site) -> Sgpu:
    """Return what a slice needs, its index still open (0) unless it is the whole card."""
    card = only_card(request, "sGPU slicing is single-card")
    if not card.bus_id:
        raise InjectionRefused(f"accelerator {card.id} has no PCI address; it cannot be sliced")
    cores, mib = cores_percentage(request.claim, card), memory_mib(request, card, site)
    whole = cores >= 100 and mib >= card.memory_mib
    return Sgpu(request.claim.pod_uid, request.claim.container, card.bus_id, WHOLE if whole else 0, cores, mib)


def decide(
    want: Sgpu, own: Sgpu | None, others: Collection[Sgpu], live: Collection[Subdevice], request: Request
) -> Decision:
    """Return what to do on a card. `others` are the other containers' markers on it, `live` its subdevices."""
    if own is not None:
        return _again(want, own, live, request)
    if want.whole:
        if live or others:
            raise InjectionRefused(
                f"{who(request.claim)}: card {want.bus_id} is sliced already and cannot be held whole"
            )
        return Decision(want, is_new=True)
    if any(other.whole for other in others):
        raise InjectionRefused(f"{who(request.claim)}: card {want.bus_id} is held whole and cannot be sliced")
    taken = {subdevice.index for subdevice in live} | {other.index for other in others}
    index = next((number for number in range(_MAX_SUBDEVICES) if number not in taken), None)
    if index is None:
        raise InjectionRefused(
            f"{who(request.claim)}: all {_MAX_SUBDEVICES} subdevices of card {want.bus_id} are taken"
        )
    made = Sgpu(want.pod_uid, want.container, want.bus_id, index, want.cores, want.mib)
    return Decision(made, enable=not live, create=True, is_new=True)


def parse_marker(text: str, where: str) -> Sgpu:
    """Read a marker; MarkerMalformed when it is none."""
    raw = fields_of(text, where, texts=("podUID", "container", "cardBDF"), numbers=("index", "coresPct", "memMiB"))
    return Sgpu(raw["podUID"], raw["container"], raw["cardBDF"], raw["index"], raw["coresPct"], raw["memMiB"])


def dump_marker(sgpu: Sgpu) -> str:
    """Return a marker's text."""
    return marker_text(
        {
            "podUID": sgpu.pod_uid,
            "container": sgpu.container,
            "cardBDF": sgpu.bus_id,
            "index": sgpu.index,
            "coresPct": sgpu.cores,
            "memMiB": sgpu.mib,
        }
    )


def _again(want: Sgpu, own: Sgpu, live: Collection[Subdevice], request: Request) -> Decision:
    same = (own.pod_uid, own.container, own.bus_id, own.cores, own.mib) == (
        want.pod_uid,
        want.container,
        want.bus_id,
        want.cores,
        want.mib,
    )
    if not same or own.whole != want.whole:
        raise InjectionRefused(
            f"{who(request.claim)}: its marker names another slice of {own.bus_id}; recreate the Pod"
        )
    if not own.whole and not any(s.index == own.index and s.alias in ("", own.alias) for s in live):
        raise InjectionRefused(
            f"{who(request.claim)}: its subdevice {own.index} of {own.bus_id} is gone; recreate the Pod"
        )
    return Decision(own)


def _drm_paths(card: Card) -> list[str]:
    names = ("/dev/dri/card", "/dev/dri/renderD")
    return [f"{name}{number}" for name, number in zip(names, card.physical_indexes, strict=False)]
