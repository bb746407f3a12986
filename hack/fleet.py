"""Fleets of recorded machines: which node is a copy of which machine, where it stands, what its ids are.

For: the demo, benches and tests. In: the recorded set (`hack/recorded`, whose README describes the files).
Out: one `FleetNode` a node, and on request its machine: a copy of the file with ids of its own.
Promises:
  - the same fleet file gives the same names, places and ids every time;
  - no id is shared by two nodes, except where the file says so (`shared`) or the collision is what was recorded;
  - a machine's copy is made when asked for, so a fleet of thousands costs little.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nodefeature.fields import as_int, as_list, as_map, as_maps, as_str

RECORDED = Path(__file__).parent / "recorded"
PROFILE_TABLES = "mig-profiles.yaml"
FLEET_100 = RECORDED / "fleet-100.yaml"
_NO_IDENTITIES = frozenset({"GPU-XX", "0x747e", "0x0000000000000000"})
_REPLACED_DIGITS = 12
_PARTS_WITH_IDS = ("accelerators", "fabric")
_HEX = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One node: a copy of a recorded machine. `labels` say where it stands."""

    name: str
    machine: str
    labels: Mapping[str, str]
    clear_faults: bool = False
    shared: frozenset[str] = frozenset()


def load_fleet(path: Path = FLEET_100) -> list[FleetNode]:
    """Return the nodes of a fleet file, in its order."""
    fleet = _read(path)
    keys = as_map(fleet.get("label_keys"))
    nodes = [node for group in as_maps(fleet.get("groups")) for node in _group_nodes(group, keys)]
    names = {node.name for node in nodes}
    if len(names) != len(nodes) or len(nodes) != as_int(fleet.get("nodes")):
        raise ValueError(f"{path.name}: {len(nodes)} nodes with {len(names)} names, the file says {fleet.get('nodes')}")
    return nodes


def machine_names(folder: Path = RECORDED) -> list[str]:
    """Return the names of all recorded machines."""
    tables = {"mig-profiles", "names"}
    return sorted(p.stem for p in folder.glob("*.yaml") if p.stem not in tables and not p.stem.startswith("fleet-"))


def repeat_machines(machines: Sequence[str], count: int, *, prefix: str = "node") -> list[FleetNode]:
    """Return `count` nodes that take the given machines in turn."""
    width = len(str(count))
    return [
        FleetNode(f"{prefix}-{n + 1:0{width}d}", machines[n % len(machines)], {}, clear_faults=True)
        for n in range(count)
    ]


class Machines:
    """Reads each recorded machine once and makes copies for nodes."""

    def __init__(self, folder: Path = RECORDED) -> None:
        self._folder = folder
        self._read: dict[str, Mapping[str, Any]] = {}

    def recorded(self, machine: str) -> Mapping[str, Any]:
        """Return a machine as recorded; reading only."""
        if machine not in self._read:
            self._read[machine] = _read(self._folder / f"{machine}.yaml")
        return self._read[machine]

    def profile_tables(self) -> Mapping[str, Any]:
        """Return the tables of partition profiles."""
        return self.recorded(PROFILE_TABLES.removesuffix(".yaml"))

    def of(self, node: FleetNode) -> dict[str, Any]:
        """Return the node's own copy of its machine; parts without ids are shared between copies, reading only."""
        own = dict(self.recorded(node.machine))
        own.pop("accelerator_types", None)  # anchors only; their content stands in every card already
        if node.clear_faults:
            own["accelerators"] = cleared(as_list(own.get("accelerators")))
        for key in _PARTS_WITH_IDS:
            if key in own and key not in node.shared:
                own[key] = with_own_ids(own[key], node.name, path=key)
        return own


def write_fleet(path: Path, nodes: Iterable[FleetNode], machines: Machines) -> None:
    """Write nodes with their machines where `device-manager serve` reads a fleet: JSON lines, profile tables first."""
    with path.open("w", encoding="utf-8") as out:
        out.write(json.dumps({"profile_tables": machines.profile_tables()}) + "\n")
        for node in nodes:
            out.write(json.dumps({"name": node.name, "machine": machines.of(node)}) + "\n")


def write_machine(folder: Path, node: FleetNode, machines: Machines) -> Path:
    """Write one node's machine with the profile tables beside it (JSON is YAML); return the machine's file."""
    (folder / PROFILE_TABLES).write_text(json.dumps(machines.profile_tables()), encoding="utf-8")
    path = folder / f"{node.name}.yaml"
    path.write_text(json.dumps(machines.of(node)), encoding="utf-8")
    return path


def cleared(cards: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the cards without faults; a lost card becomes a healthy copy of its neighbour's type."""
    known = [card for card in cards if card.get("uuid")]
    return [_healthy(card if card.get("uuid") else _replacement(card, known)) for card in cards]


def with_own_ids(value: Any, node: str, *, path: str) -> Any:
    """Return `value` with the last 12 hex digits of every uuid in it replaced by a hash of node and place."""
    if isinstance(value, Mapping):
        return {
            key: own_id(item, f"{node}/{path}/{key}")
            if key.endswith("uuid") and isinstance(item, str)
            else with_own_ids(item, node, path=f"{path}/{key}")
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [with_own_ids(item, node, path=f"{path}/{n}") for n, item in enumerate(value)]
    return value


def own_id(uuid: str, place: str) -> str:
    """Return a uuid of the same form whose last 12 hex digits depend on `place`; no identity stays none."""
    if uuid in _NO_IDENTITIES or not uuid.strip("0-"):
        return uuid
    digits = hashlib.sha256(place.encode()).hexdigest()
    upper = uuid.upper() == uuid
    out, used = list(uuid), 0
    for position in range(len(uuid) - 1, -1, -1):
        if used == _REPLACED_DIGITS:
            break
        if uuid[position] in _HEX:
            out[position] = digits[used].upper() if upper else digits[used]
            used += 1
    return "".join(out)


def _group_nodes(group: Mapping[str, Any], keys: Mapping[str, Any]) -> Iterator[FleetNode]:
    racks, per_rack = as_list(group.get("racks")), as_int(group.get("per_rack"))
    for n in range(1, as_int(group.get("count")) + 1):
        labels = {as_str(keys[word]): as_str(group.get(word)) for word in ("region", "zone") if group.get(word)}
        if racks:
            labels[as_str(keys["rack"])] = racks[(n - 1) // per_rack]
        yield FleetNode(
            name=as_str(group.get("pattern")).format(n=n),
            machine=as_str(group.get("machine")),
            labels=labels,
            clear_faults=group.get("faults") == "clear",
            shared=frozenset(as_list(group.get("shared"))),
        )


def _replacement(lost: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    neighbour = min(known, key=lambda card: abs(as_int(card.get("index")) - as_int(lost.get("index"))))
    own = {key: lost[key] for key in ("index", "bus_id", "pci_address", "numa") if key in lost}
    return {**copy.deepcopy(dict(neighbour)), **own, "physical_indexes": [as_int(lost.get("index"))], "links": []}


def _healthy(card: Mapping[str, Any]) -> dict[str, Any]:
    health = as_map(card.get("health"))
    counters = {key: 0 for key in ("ecc_uncorrected", "ecc_corrected") if health.get(key) is not None}
    unread = {key: None for key in ("ecc_uncorrected", "ecc_corrected") if key in health and key not in counters}
    return {**card, "health": {"state": "healthy", "xid": [], **counters, **unread}}


def _read(path: Path) -> Mapping[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with path.open("rb") as stream:
        return as_map(yaml.load(stream, Loader=loader))
