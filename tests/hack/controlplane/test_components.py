"""Tests of the upstream processes' command lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hack.controlplane.components import Components
from hack.controlplane.layout import Layout
from hack.controlplane.processes import Program
from hack.controlplane.tools import Toolbox

LISTENERS = re.compile(r"--(bind-address|listen-\w+-urls|server-address|advertise-address)=(?:http://)?([\d.]+)")


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, Program]:
    layout = Layout(tmp_path / "state")
    layout.create()
    components = Components(Toolbox(tmp_path), layout, layout.ports())
    made = [
        components.etcd(),
        components.apiserver(),
        components.controller_manager(),
        components.scheduler(),
        components.kwok(),
        components.kueue(config="kueue.yaml"),
        components.nfd_master(config="nfd.yaml", node="n1"),
    ]
    return {program.name: program for program in made}


def test_everything_listens_on_this_machine_only(programs: dict[str, Program]) -> None:
    found = [found for program in programs.values() for flag in program.command for found in LISTENERS.findall(flag)]
    assert len(found) >= 6
    assert {address for _, address in found} == {"127.0.0.1"}


def test_nfd_master_starts_on_a_node(programs: dict[str, Program]) -> None:
    assert programs["nfd-master"].environment == {"NODE_NAME": "n1"}


def test_every_flag_is_one_word(programs: dict[str, Program]) -> None:
    assert all(flag.startswith("--") for program in programs.values() for flag in program.command[1:])
