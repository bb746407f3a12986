"""T-Head: device nodes, each proven by its minor number; slices by a preload library; partitions (spec 06 §8, §10).

Promises: a node is given away only when it is a character device that carries the recorded minor number: the path goes
by a card's ordinal, and ordinals move when a card is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from devicemanager.injection.request import Card, DeviceNode, InjectionRefused, Mount, Plan, Request
from devicemanager.injection.shown import partitions, shows_partitions
from devicemanager.injection.site import Site, cores_percentage, granted, memory_mib, unless_declared
from nodefeature.resource_names import Family

CAPABILITIES = "/proc/driver/alixpu/capabilities"
_COMMON = tuple(DeviceNode(path, required=True, character=True) for path in ("/dev/alixpu", "/dev/alixpu_ctl"))
_LEDGER = "/var/run/vppu"
_TOOLS = ("hgml_dlsym_hook.so", "hggc_quota.so", "ppu-monitor")


@dataclass(frozen=True, slots=True)
class CapabilityMinors:
    """Minor numbers of the two capability nodes of one partition."""

    gpu_instance: int
    compute_instance: int


def plan(request: Request, site: Site, capabilities: Mapping[str, CapabilityMinors] | None = None) -> Plan:
    """Return what the container gets; `capabilities` are the partitions' by card id."""
    if shows_partitions(request.claim):
        return _partitioned(request, capabilities or {})
    cards = granted(request)
    whole = Plan(devices=(*_COMMON, *(_node(card) for card in cards)))
    return _sliced(request, cards, site, whole) if request.claim.family is Family.SLICED else whole


def capability_files(card: Card) -> tuple[str, str]:
    """Return the files that tell the minor numbers of a card's partition: of the GPU and of the compute instance."""
    if card.partition is None:
        raise InjectionRefused(f"accelerator {card.id} has no live partition for this container")
    folder = f"{CAPABILITIES}/ppu{card.index}/mig/gi{card.partition.gpu_instance}"
    return f"{folder}/access", f"{folder}/ci{card.partition.compute_instance}/access"


def minor_in(text: str) -> int | None:
    """Return the number in a capability file's line `DeviceFileMinor: <n>`."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "DeviceFileMinor" and value.strip().isdecimal():
            return int(value)
    return None


def _node(card: Card) -> DeviceNode:
    if not card.physical_indexes:
        raise InjectionRefused(
            f"accelerator {card.id} has no recorded minor number to prove its device node addresses it"
        )
    return DeviceNode(f"/dev/alixpu_ppu{card.index}", required=True, character=True, minor=card.physical_indexes[0])


def _sliced(request: Request, cards: tuple[Card, ...], site: Site, whole: Plan) -> Plan:
    ledger = site.work(request.claim, "run/vppu")
    env = {"HGGC_DEVICE_SM_LIMIT": str(min(cores_percentage(request.claim, card) for card in cards))}
    for position, card in enumerate(cards):
        env[f"HGGC_DEVICE_MEMORY_LIMIT_{position}"] = str(memory_mib(request, card, site))
    env["HGGC_LEDGER_PATH"] = f"{_LEDGER}/ledger"
    return replace(
        whole,
        env=env | unless_declared(request.claim, LIBHGGC_LOG_LEVEL="1"),
        mounts=(
            Mount("/etc/ld.so.preload", site.library("thead", "ld.so.preload")),
            *(Mount(f"/usr/local/vppu/{tool}", site.library("thead", tool)) for tool in _TOOLS),
            Mount(_LEDGER, ledger, read_only=False),
        ),
        folders=(ledger,),
    )


def _partitioned(request: Request, capabilities: Mapping[str, CapabilityMinors]) -> Plan:
    nodes = list(_COMMON)
    for card, _ in partitions(request):
        minors = capabilities.get(card.id)
        if minors is None:
            raise InjectionRefused(f"accelerator {card.id}: {capability_files(card)[0]} names no minor number")
        nodes.append(_node(card))
        nodes += [
            DeviceNode(f"/dev/alixpu-caps/alixpu-cap{minor}", required=True, character=True, minor=minor)
            for minor in (minors.gpu_instance, minors.compute_instance)
        ]
    return Plan(devices=tuple(nodes))
