"""A detector that replays a recorded machine.

For: the demo, benches and tests, which run without hardware.
In: one machine file of the recorded set and the table of partition profiles (their README describes both).
Out: the vendor's raw answers, faults included, and idle meters; from there on the code is that of real answers.
Promises: reads the files once, when loaded; never judges: a lost card is listed as lost, an unusable id as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from devicemanager.answers import Answer, Bus, Empty, Failed, Found, PciDevice, RawCard, RawProfile, Roce
from devicemanager.usage import CardUsage, Measured
from kube.errors import Terminal
from nodefeature.fields import as_int, as_list, as_map, as_maps, as_str, at

_MODES = {"enabled": "enabled", "disabled": "disabled", "not-supported": "unsupported"}
PROFILE_TABLES = "mig-profiles.yaml"


class RecordingUnreadable(Terminal):
    """A file that somebody named holds no recording; the text says which and why."""


class RecordedDetector:
    """Answers for one recorded machine."""

    def __init__(self, machine: Mapping[str, Any], profile_tables: Mapping[str, Any]) -> None:
        self._bus = recorded_bus(machine)
        self.cards = tuple(recorded_card(raw, profile_tables) for raw in as_maps(machine.get("accelerators")))

    @classmethod
    def load(cls, machine_file: Path) -> RecordedDetector:
        """Return a detector for a machine file; tables of profiles that it names stand in the same folder."""
        machine, tables = read_yaml(machine_file), machine_file.parent / PROFILE_TABLES
        named = {as_str(at(card, "mig", "table")) for card in as_maps(machine.get("accelerators"))} - {""}
        if named and not tables.exists():
            raise RecordingUnreadable(
                f"recorded machine {machine_file}: its cards name the partition profiles {', '.join(sorted(named))}; "
                f"put {PROFILE_TABLES}, which lists them, beside it"
            )
        return cls(machine, read_yaml(tables) if named else {})

    async def bus(self) -> Bus:
        """Return the recorded PCI functions and NUMA nodes."""
        return self._bus

    async def detect(self, manufacturer: str, bus: Bus) -> Answer:
        """Return the recorded cards of a manufacturer."""
        del bus  # what was recorded does not depend on it
        cards = tuple(card for card in self.cards if card.manufacturer == manufacturer)
        return Found(cards) if cards else Empty("the recorded machine has no card of this manufacturer")

    async def measure(self, manufacturer: str) -> Measured | Failed:
        """Return idle cards: a recording holds what cards are, not what they did."""
        return Measured(
            tuple(
                CardUsage(
                    uuid=card.uuid,
                    memory_mib=card.memory_mib,
                    memory_used_mib=0 if card.memory_mib else None,
                    cores=0,
                    process_memory="",
                    process_cores="",
                )
                for card in self.cards
                if card.manufacturer == manufacturer and card.uuid and card.health != "lost"
            )
        )


def load_fleet(path: Path) -> dict[str, RecordedDetector]:
    """Return a detector for every node of a fleet file: JSON lines, the first with the profile tables.

    Each further line holds a node's `name` and `machine`.
    """
    detectors: dict[str, RecordedDetector] = {}
    tables: Mapping[str, Any] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                content = as_map(json.loads(line))
            except ValueError as error:
                raise RecordingUnreadable(f"fleet file {path}: line {number} is no JSON: {error}") from error
            if number == 1:
                tables = as_map(content.get("profile_tables"))
            else:
                detectors[as_str(content.get("name"))] = RecordedDetector(as_map(content.get("machine")), tables)
    return detectors


def read_yaml(path: Path) -> Mapping[str, Any]:
    """Return the mapping in a YAML file; RecordingUnreadable when there is none."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        with path.open("rb") as stream:
            content = yaml.load(stream, Loader=loader)  # noqa: S506 - both loaders are the safe ones
    except (OSError, yaml.YAMLError) as error:
        raise RecordingUnreadable(f"recorded machine {path}: {error}") from error
    if not isinstance(content, dict):
        raise RecordingUnreadable(f"recorded machine {path}: a mapping is expected, not {type(content).__name__}")
    return content


def recorded_bus(machine: Mapping[str, Any]) -> Bus:
    """Return what the recorded kernel says about places."""
    devices = {}
    for raw in as_maps(machine.get("pci")):
        address = as_str(raw.get("address"))
        devices[address] = PciDevice(
            address=address,
            pci_class=as_str(raw.get("class")),
            vendor=as_str(raw.get("vendor")),
            device=as_str(raw.get("device")),
            numa=as_int(raw.get("numa", -1)),
            path=tuple(as_str(bridge) for bridge in as_list(raw.get("path"))),
            virtual_functions=as_int(raw.get("sriov_totalvfs")),
        )
    return Bus(devices, {as_int(node.get("id")): as_str(node.get("cpus")) for node in as_maps(machine.get("numa"))})


def recorded_card(raw: Mapping[str, Any], profile_tables: Mapping[str, Any]) -> RawCard:
    """Return one entry of `accelerators[]` as its library would have told it."""
    health, mig = as_map(raw.get("health")), as_map(raw.get("mig"))
    return RawCard(
        manufacturer=as_str(raw.get("manufacturer")),
        index=as_int(raw.get("index")),
        product=_text(raw.get("product")),
        uuid=_text(raw.get("uuid")),
        memory_mib=_integer(raw.get("memory_mib")),
        cores=_integer(raw.get("cores")),
        compute_capability=_text(raw.get("compute_capability")),
        architecture=_text(raw.get("family")),
        soc=_text(raw.get("soc")),
        driver_version=_text(raw.get("driver_version")),
        runtime_version=_text(raw.get("runtime_version")),
        memory_bus_bits=_integer(raw.get("memory_bus_bits")),
        ecc_enabled=raw.get("ecc_enabled"),
        ecc_uncorrected=_integer(health.get("ecc_uncorrected")),
        ecc_corrected=_integer(health.get("ecc_corrected")),
        health=as_str(health.get("state")),
        detail=as_str(health.get("detail")),
        bus_id=as_str(raw.get("bus_id")),
        pci_address=as_str(raw.get("pci_address")),
        numa=_integer(raw.get("numa")),
        physical_indexes=tuple(as_int(number) for number in as_list(raw.get("physical_indexes"))),
        partition_mode=_MODES.get(as_str(mig.get("mode"))) if mig else "unsupported",
        profiles=_profiles(profile_tables, as_str(mig.get("table"))),
        roce=_roce(as_map(raw.get("roce"))),
    )


def _profiles(tables: Mapping[str, Any], key: str) -> tuple[RawProfile, ...]:
    return tuple(
        RawProfile(
            name=as_str(raw.get("name")),
            count=as_int(raw.get("count")),
            memory_mib=_integer(raw.get("memory_mib")),
            compute_slices=as_int(raw.get("compute_slices")),
            memory_slices=as_int(at(raw, "placements", "size")),
            starts=tuple(as_int(start) for start in as_list(at(raw, "placements", "starts"))),
            cores=_integer(raw.get("sm")),
        )
        for raw in as_maps(at(tables, key, "profiles"))
    )


def _roce(raw: Mapping[str, Any]) -> Roce | None:
    return Roce(as_str(raw.get("ip")), as_str(raw.get("mask")), as_str(raw.get("gateway"))) if raw else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
