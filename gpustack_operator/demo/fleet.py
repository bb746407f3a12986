"""The demo's machines: the recorded fleet, and the machine it runs on.

For: `run.py`, `progress.py`. In: a fleet file. Out: machine files for the agents, flags for the stand-ins.
"""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from devicemanager.detectors.host_facts import read_machine
from gpustack_operator.demo.check import expected_cards
from hack.fleet import PROFILE_TABLES, RECORDED, Machines, load_fleet
from hack.kubelet.follower import socket_template
from nodefeature.fields import as_maps

_NOT_DNS = re.compile(r"[^a-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class DemoFleet:
    """All machines of one run, by node name."""

    source: Path
    folder: Path
    machines: Mapping[str, Mapping[str, Any]]
    this_machine: str

    @property
    def cards(self) -> int:
        """Return how many cards must be found."""
        return sum(expected_cards(machine) for machine in self.machines.values())

    def file_of(self, node: str) -> Path:
        """Return the machine file of a node."""
        return self.folder / f"{node}.yaml"

    def standin_flags(self) -> tuple[str, ...]:
        """Return what the stand-ins' kubelets have to register."""
        return ("--fleet", str(self.source), "--machine", f"{self.this_machine}={self.file_of(self.this_machine)}")

    def agents(self, kubelets: Path) -> dict[str, tuple[str, ...]]:
        """Return each node's agent flags: recorded machines are replayed, this one is read for real.

        Recorded cards are offered to the kubelet below `kubelets`; this machine's own are never touched.
        """
        return {
            node: () if node == self.this_machine else self._replayed(node, machine, kubelets)
            for node, machine in self.machines.items()
        }

    def _replayed(self, node: str, machine: Mapping[str, Any], kubelets: Path) -> tuple[str, ...]:
        flags = ("--recorded", str(self.file_of(node)))
        if not as_maps(machine.get("accelerators")):
            return flags
        return (*flags, "--kube-socket", socket_template(kubelets).replace("{node}", node))


def prepare_fleet(source: Path, folder: Path) -> DemoFleet:
    """Write the machine file of every node into `folder`."""
    copies = Machines()
    machines: dict[str, Mapping[str, Any]] = {node.name: copies.of(node) for node in load_fleet(source)}
    here = this_node_name(machines)
    machines[here] = read_machine(name=here)
    fleet = DemoFleet(source, folder, machines, here)
    shutil.copyfile(RECORDED / PROFILE_TABLES, folder / PROFILE_TABLES)
    for node, machine in machines.items():
        with fleet.file_of(node).open("w", encoding="utf-8") as out:
            yaml.dump(machine, out, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
    return fleet


def this_node_name(taken: Mapping[str, object]) -> str:
    """Return this machine's host name as a node name that no recorded machine has."""
    name = _NOT_DNS.sub("-", socket.gethostname().lower()).strip("-.")[:63].strip("-.") or "localhost"
    return f"{name}-here" if name in taken else name
