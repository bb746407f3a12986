"""The host's detector on fake trees: what the bus says, when a library is asked, what its silence means."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from devicemanager.answers import Answer, Bus, Empty, Failed, Found, Unknown
from devicemanager.detectors.host import HostDetector
from devicemanager.detectors.host_facts import read_machine
from devicemanager.detectors.recorded import recorded_bus
from devicemanager.detectors.sysfs import is_wsl, read_bus
from devicemanager.usage import CardUsage, Measured
from hack.fleet import Machines, machine_names
from hack.machines import node_of, online_cpus
from tests.builders.cards import T4
from tests.builders.host_tree import host_tree, write

MACHINES = Machines()
ABSENT = Empty("the driver is not installed")


class Told:
    """Probes that give one answer and remember who was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def ask(self, manufacturer: str) -> Answer:
        self.asked.append(manufacturer)
        return self.answer

    async def measure(self, manufacturer: str) -> Measured | Failed:
        return Measured((CardUsage(f"{manufacturer}-0"),))

    async def close(self) -> None:
        return


def ask(detector: HostDetector, manufacturer: str) -> Answer:
    async def once() -> Answer:
        return await detector.detect(manufacturer, await detector.bus())

    return asyncio.run(once())


@pytest.mark.parametrize("name", machine_names())
def test_the_bus_of_every_recorded_machine(name: str, tmp_path: Path) -> None:
    machine = MACHINES.recorded(name)
    want = recorded_bus(machine)
    got = read_bus(host_tree(tmp_path, machine))
    assert got.numa_cpus == want.numa_cpus
    assert {**got.devices} == {**want.devices}


@pytest.mark.parametrize("name", machine_names())
def test_the_facts_of_every_recorded_machine(name: str, tmp_path: Path) -> None:
    machine = MACHINES.recorded(name)
    facts = read_machine(host_tree(tmp_path, machine), arch=machine["node"]["arch"])
    assert facts["nfd_labels"] == machine["nfd_labels"]
    node, want = facts["node"], machine["node"]
    for field in ("os_image", "os_release", "arch", "kernel", "memory_bytes"):
        assert node[field] == want[field]
    for field in ("vendor_id", "name", "online", "family", "model", "stepping", "midr", "flags"):
        assert node["cpu"].get(field) == want["cpu"].get(field)
    assert node_of("x", facts)["status"]["capacity"] == node_of("x", machine)["status"]["capacity"]


def test_this_machine_has_a_cpu_and_memory() -> None:
    facts = read_machine()
    assert facts["node"]["memory_bytes"] > 0
    assert online_cpus(facts["node"]["cpu"]) > 0


def test_an_empty_tree_is_an_empty_host(tmp_path: Path) -> None:
    assert read_bus(tmp_path) == Bus()
    facts = read_machine(tmp_path)
    assert facts["node"]["memory_bytes"] == 0
    assert facts["nfd_labels"] == {}


@pytest.mark.parametrize(
    ("machine", "manufacturer", "told", "want", "asked"),
    [
        ("cpu-intel-8358", "nvidia", ABSENT, Empty, False),
        ("nvidia-t4-cloud-vm", "nvidia", Found((T4,)), Found, True),
        ("nvidia-t4-cloud-vm", "nvidia", ABSENT, Unknown, True),
        ("nvidia-t4-cloud-vm", "nvidia", Failed("SIGSEGV"), Failed, True),
        ("nvidia-t4-cloud-vm", "amd", ABSENT, Empty, False),
        # A management controller's display and NICs carry the vendor's id; no NPU is fitted.
        ("cpu-kunpeng-920", "ascend", ABSENT, Empty, True),
        ("ascend-310p3-duo", "ascend", ABSENT, Unknown, True),
        # The CPU's own graphics.
        ("nvidia-rtx5090-desktop", "amd", ABSENT, Unknown, True),
        # Class 06 stays outside the filter: the CPU's bridges carry the vendor's id.
        ("cpu-hygon-7285", "hygon", ABSENT, Empty, False),
        # Under WSL no card shows on the bus.
        ("nvidia-rtx4070-wsl2-laptop", "nvidia", Found((T4,)), Found, True),
        ("nvidia-rtx4070-wsl2-laptop", "nvidia", ABSENT, Empty, True),
    ],
)
def test_who_is_asked_and_what_silence_means(
    machine: str, manufacturer: str, told: Answer, want: type[Answer], asked: bool, tmp_path: Path
) -> None:
    probes = Told(told)
    detector = HostDetector(probes, root=host_tree(tmp_path, MACHINES.recorded(machine)))
    assert isinstance(ask(detector, manufacturer), want)
    assert bool(probes.asked) is asked


def test_unknown_names_the_cards_nobody_speaks_for(tmp_path: Path) -> None:
    detector = HostDetector(Told(ABSENT), root=host_tree(tmp_path, MACHINES.recorded("nvidia-t4-cloud-vm")))
    answer = ask(detector, "nvidia")
    assert answer == Unknown("0000:00:1e.0 on the bus, but the driver is not installed")


def test_no_pci_check_asks_all_the_same(tmp_path: Path) -> None:
    probes = Told(ABSENT)
    detector = HostDetector(probes, root=tmp_path, no_pci_check=True)
    assert ask(detector, "nvidia") == ABSENT
    assert probes.asked == ["nvidia"]


@pytest.mark.parametrize(("release", "want"), [("5.15.153.1-microsoft-standard-WSL2", True), ("6.8.0-generic", False)])
def test_wsl(release: str, want: bool, tmp_path: Path) -> None:
    write(tmp_path / "proc/sys/kernel/osrelease", release)
    assert is_wsl(tmp_path) is want


def test_garbage_in_sysfs_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "sys/bus/pci/devices/0000:01:00.0/class", "what")
    write(tmp_path / "sys/bus/pci/devices/0000:01:00.0/numa_node", "--")
    write(tmp_path / "sys/bus/pci/devices/not-an-address/class", "0x030000")
    write(tmp_path / "sys/devices/system/node/nodeX/cpulist", "0-3")
    bus = read_bus(tmp_path)
    assert list(bus.devices) == ["0000:01:00.0"]
    assert bus.devices["0000:01:00.0"].numa == -1
    assert bus.numa_cpus == {}
