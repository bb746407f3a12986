"""Network labels: RDMA reach and fabric membership of a node (spec 01 §5.5-5.6).

For: the agent's NodeFeature.
In: where cards and network endpoints sit, fabric records. Out: labels; an empty map withdraws them all.
Promises: a value is published as it is or not at all, never as the sanitiser would leave it; nothing here enters a
pool's selector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from nodefeature import labels as keys
from nodefeature.fields import as_bool, as_int, as_list, as_map, as_maps, as_str
from nodefeature.product_names import label_value_of


class Distance(IntEnum):
    """How far two PCI devices are apart, nearest first. `PHB`, `LINK` and `SELF` are never derived from buses."""

    SELF = 0
    LINK = 5
    PIX = 10
    PXB = 20
    PHB = 30
    NODE = 40
    SYS = 50
    UNK = 100


_WORDS = {int(distance): distance.name for distance in Distance}


@dataclass(frozen=True, slots=True)
class PciPosition:
    """Where a device sits: bridges innermost first, the outermost one as `root_id`; NUMA empty when unknown."""

    bus_id: str = ""
    root_id: str = ""
    switches: tuple[str, ...] = ()
    numa: str = ""


@dataclass(frozen=True, slots=True)
class NetworkEndpoint:
    """An interface, or a virtual function under its parent. `link_state` is empty without a verdict."""

    position: PciPosition
    rdma: bool = False
    link_state: str = ""

    @property
    def usable(self) -> bool:
        """Say whether traffic may go this way: a verdict that is no failure, else a bound RDMA device."""
        return self.link_state.lower() != "failed" if self.link_state else self.rdma


@dataclass(frozen=True, slots=True)
class FabricRecord:
    """The fabric a card says it belongs to. `clique` is None where the kind has none."""

    kind: str
    id: str
    clique: int | None = None
    members: int = 0

    @property
    def domain(self) -> str:
        """Return `<kind>-<id>[-<clique>]`; empty while the record is incomplete."""
        if not self.kind or not self.id:
            return ""
        return f"{self.kind}-{self.id}" if self.clique is None else f"{self.kind}-{self.id}-{self.clique}"


def distance_word(distance: int) -> str:
    """Return the word of a distance; `UNK` for any number that has none."""
    return _WORDS.get(distance, Distance.UNK.name)


def bus_distance(left: PciPosition, right: PciPosition) -> Distance:
    """Return how far two devices are apart by what the bus shows."""
    if not (left.bus_id and left.root_id and right.bus_id and right.root_id):
        return Distance.UNK
    if left.switches and left.switches[:1] == right.switches[:1]:
        return Distance.PIX
    if left.root_id == right.root_id:
        return Distance.PXB
    if not left.numa or not right.numa:
        return Distance.UNK
    return Distance.NODE if left.numa == right.numa else Distance.SYS


def pci_position(raw: object) -> PciPosition:
    """Return the position in an `accelerators[].topology` or an interface's own PCI fields."""
    topology = as_map(raw)
    return PciPosition(
        bus_id=as_str(topology.get("pciBusId")),
        root_id=as_str(topology.get("pciRootId")),
        switches=tuple(switch for switch in as_list(topology.get("pciSwitches")) if isinstance(switch, str)),
        numa=as_str(topology.get("numaAffinity")),
    )


def network_endpoints(interfaces: object) -> tuple[NetworkEndpoint, ...]:
    """Return the endpoints in `Devices.spec.interfaces[]`: each interface, then its virtual functions."""
    endpoints: list[NetworkEndpoint] = []
    for interface in as_maps(interfaces):
        position = pci_position(interface)
        endpoints.append(_endpoint(interface, position))
        for function in as_maps(interface.get("virtualFunctions")):
            own = as_str(function.get("numaAffinity"))
            endpoints.append(_endpoint(function, replace(position, numa=own or position.numa)))
    return tuple(endpoints)


def _endpoint(raw: object, position: PciPosition) -> NetworkEndpoint:
    fields = as_map(raw)
    return NetworkEndpoint(
        position=position,
        rdma=as_bool(fields.get("rdma")),
        link_state=as_str(as_map(fields.get("link")).get("state")),
    )


def fabric_record(raw: object) -> FabricRecord | None:
    """Return the record in `accelerators[].topology.fabric`; None when there is none."""
    record = as_map(raw)
    if not record:
        return None
    clique = record.get("cliqueId")
    return FabricRecord(
        kind=as_str(record.get("kind")),
        id=as_str(record.get("id")),
        clique=clique if isinstance(clique, int) and not isinstance(clique, bool) else None,
        members=as_int(record.get("memberCount")),
    )


def rdma_labels(endpoints: Iterable[NetworkEndpoint], cards: Sequence[PciPosition]) -> dict[str, str]:
    """Return the RDMA labels of one detection pass; empty without a usable endpoint."""
    usable = [endpoint.position for endpoint in endpoints if endpoint.usable]
    if not usable:
        return {}
    labels = {keys.RDMA_CAPABLE: keys.TRUE}
    numa = "_".join(sorted({position.numa for position in usable if position.numa}))
    if numa and label_value_of(numa) == numa:
        labels[keys.RDMA_NUMA] = numa
    if cards:
        labels[keys.RDMA_DISTANCE] = min(bus_distance(card, position) for card in cards for position in usable).name
    return labels


def fabric_labels(records: Sequence[FabricRecord | None]) -> dict[str, str]:
    """Return the fabric labels of a node's cards, one record a card; empty unless all of them agree."""
    domains = {record.domain if record else "" for record in records}
    domain = domains.pop() if len(domains) == 1 else ""
    if not domain or label_value_of(domain) != domain:
        return {}
    labels = {keys.FABRIC_DOMAIN: domain}
    members = {record.members for record in records if record}
    if len(members) == 1 and min(members) > 0:
        labels[keys.FABRIC_MEMBERS] = str(members.pop())
    return labels
