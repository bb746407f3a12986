"""Tests of the state folder and its ports."""

from __future__ import annotations

import random
import socket
from dataclasses import astuple
from itertools import islice
from pathlib import Path

import pytest

from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.layout import HeldPorts, Layout, free_ports


def test_ports_are_distinct_below_the_ephemeral_range_and_kept(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    ports = astuple(layout.ports())
    assert len(set(ports)) == len(ports)
    assert all(20000 <= port < 32000 for port in ports)
    assert astuple(Layout(tmp_path).ports()) == ports


def test_a_port_in_use_is_passed_over() -> None:
    wanted = list(islice(free_ports(random.Random(1)), 2))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", wanted[0]))
        taken.listen()
        assert wanted[0] not in list(islice(free_ports(random.Random(1)), 5))


def test_a_held_port_is_found_by_nobody_and_listened_on_by_its_server_again_and_again() -> None:
    wanted = next(free_ports(random.Random(2)))
    ours, others = HeldPorts(), HeldPorts()
    assert ours.take(wanted)
    try:
        for _ in range(2):
            assert not others.take(wanted)
            assert wanted not in list(islice(free_ports(random.Random(2)), 5))
            with socket.create_server(("127.0.0.1", wanted)):
                assert not others.take(wanted)
    finally:
        ours.release()
    assert others.take(wanted)
    others.release()


def test_control_planes_that_start_together_choose_other_ports(tmp_path: Path) -> None:
    held = [HeldPorts(), HeldPorts()]
    chosen: list[int] = []
    for number, holder in enumerate(held):
        folder = tmp_path / str(number)
        folder.mkdir()
        chosen += astuple(Layout(folder).ports(holder, rng=random.Random(3)))
    for holder in held:
        holder.release()
    assert len(set(chosen)) == len(chosen)


def test_what_an_earlier_run_left_is_removed(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "state")
    layout.create()  # an earlier start was interrupted here
    layout.empty()
    layout.create()
    layout.ports()
    layout.admin_kubeconfig.touch()
    (layout.root / "product").mkdir()
    (layout.root / "elsewhere").symlink_to(tmp_path)
    layout.empty()
    assert list(layout.root.iterdir()) == []
    assert tmp_path.exists()


def test_folders_are_private(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "state")
    layout.create()
    assert layout.pki.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", ["", "[]", "{", '{"etcd_client": 1}', '{"telnet": 23}'])
def test_ports_of_another_version_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "ports.json").write_text(content)
    with pytest.raises(ControlPlaneError, match=r"ports\.json: not this version's ports .* down --state-dir"):
        Layout(tmp_path).ports()
