"""The demo's machines: recorded ones, and the one it runs on."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import yaml

from gpustack_operator.demo import fleet as module
from gpustack_operator.demo.fleet import prepare_fleet, this_node_name
from nodefeature.destinations import is_object_name

CHECKOUT = Path(__file__).parents[3]
NAMES = {
    "box": "box",
    "Box.Example.COM": "box.example.com",
    "under_score": "under-score",
    "-.": "localhost",
    "": "localhost",
    "h100-01": "h100-01-here",
    "ü" * 80: "localhost",
    "a" * 90: "a" * 63,
}


@pytest.mark.parametrize(("host", "want"), NAMES.items(), ids=[name[:20] or "empty" for name in NAMES])
def test_this_node_name(host: str, want: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    name = this_node_name({"h100-01": {}})
    assert name == want
    assert is_object_name(name)


def test_prepare_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "fleet.yaml"
    source.write_text(
        "name: small\nnodes: 2\ngroups:\n"
        "  - {pattern: 'cpu-{n:02d}', count: 1, machine: cpu-amd-7763}\n"
        "  - {pattern: 'gpu-{n:02d}', count: 1, machine: nvidia-dgx-h100}\n"
    )
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    monkeypatch.setattr(module, "read_machine", lambda name: {"name": name, "accelerators": [{"uuid": "GPU-0"}]})
    folder = tmp_path / "machines"
    folder.mkdir()
    fleet = prepare_fleet(source, folder)
    assert fleet.this_machine == "here"
    assert fleet.cards == 9
    socket_of_gpu = str(tmp_path / "k" / "gpu-01" / "device-plugins" / "kubelet.sock")
    assert fleet.agents(tmp_path / "k") == {
        "cpu-01": ("--recorded", str(folder / "cpu-01.yaml")),
        "gpu-01": ("--recorded", str(folder / "gpu-01.yaml"), "--kube-socket", socket_of_gpu),
        "here": (),
    }, "this machine's agent reads the hardware, and offers none of it to a stand-in"
    assert fleet.standin_flags() == ("--fleet", str(source), "--machine", f"here={folder / 'here.yaml'}")
    assert (folder / "mig-profiles.yaml").is_file()
    written = yaml.safe_load((folder / "gpu-01.yaml").read_text("utf-8"))
    assert len(written["accelerators"]) == 8


def test_the_demos_own_fleet_is_a_dozen_of_all_manufacturers() -> None:
    groups = yaml.safe_load((CHECKOUT / "hack" / "demo-fleet.yaml").read_text("utf-8"))["groups"]
    assert 12 <= sum(group["count"] for group in groups) <= 15
    makers = set()
    for entry in groups:
        text = (CHECKOUT / "hack" / "recorded" / f"{entry['machine']}.yaml").read_text("utf-8")
        machine = yaml.load(text, Loader=yaml.CSafeLoader)
        makers |= {card["manufacturer"] for card in machine.get("accelerators") or ()}
    assert len(makers) == 9
