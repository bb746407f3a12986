"""What comes in wrong, seen through the plugin: hosts, kubelets, libraries, clocks, and people who edit by hand."""

from __future__ import annotations

import errno
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from devicemanager.answers import Bus, RawCard
from devicemanager.detectors.recorded import RecordedDetector
from devicemanager.injection.entrance import HostInjector
from devicemanager.injection.host import HostFault
from devicemanager.injection.recorded_host import RecordedHost, recorded_drivers
from devicemanager.injection.request import HostFile
from devicemanager.injection.site import Site
from devicemanager.inventory import take_inventory
from devicemanager.kubelet.methods import register
from hack.fleet import RECORDED
from hack.kubelet.wire import serve
from kube.clock import SystemClock
from nodefeature.kinds import DEVICES, POD
from tests.builders.agent_cards import T4, sliceable
from tests.builders.agent_world import NODE_NAME, AgentWorld, claiming, play, pod

REGISTER = "devicemanager.kubelet.serving.register"
ANNOTATION = "device.gpustack.ai/accelerator.allocated"


class FaultyHost(RecordedHost):
    """A host whose disk answers with an error as long as it is told to."""

    error = 0

    def write(self, file: HostFile) -> None:
        if self.error:
            raise HostFault(file.path, "written", OSError(self.error, os.strerror(self.error)))
        super().write(file)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [(errno.ENOSPC, "No space left on device; free space"), (errno.EROFS, "Read-only file system; mount that path")],
    ids=["full disk", "read-only host path"],
)
def test_a_disk_that_takes_no_files_refuses_and_leaves_nothing_charged(error: int, remedy: str, tmp_path: Path) -> None:
    cards = RecordedDetector.load(RECORDED / "hygon-k100ai.yaml").cards
    groups = [dict(group) for group in take_inventory("hygon", cards, Bus()).groups]
    host = FaultyHost(tmp_path, cards)

    def wanted(name: str, age: int) -> dict[str, Any]:
        container = claiming("main", "hygon", sliced=1, sliced_units=400_000, sliced_memory_percentage=25)
        return pod(name, container, age=age)

    async def story(world: AgentWorld) -> None:
        await world.kill_agent()
        world.acting = HostInjector(Site(), host, recorded_drivers(cards))
        await world.start_agent()
        host.error = error
        assert await world.run_pod(wanted("a", 1)) == "Failed"
        assert remedy in world.kubelet.reasons["uid-a"]
        await world.settled()
        assert {row["mode"] for row in world.rows().values()} == {0}
        host.error = 0
        assert await world.run_pod(wanted("b", 2)) == "Running", world.kubelet.reasons

    play(groups, story)


def test_a_kubelet_socket_that_may_not_be_used_is_said_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def denied(*_args: object, **_more: object) -> None:
        details = "failed to connect to all addresses; last error: UNKNOWN: connect: Permission denied (13)"
        raise grpc.aio.AioRpcError(
            grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details
        )

    async def story(world: AgentWorld) -> None:
        await world.kill_agent()
        monkeypatch.setattr(REGISTER, denied)
        agent = await world.start_agent(registered=False)
        await world.until(lambda: "Permission denied" in agent.plugins.unready)
        assert "nvidia.com/gpu: the kubelet does not take the registration: UNAVAILABLE" in agent.plugins.unready
        monkeypatch.setattr(REGISTER, register)
        await world.until(agent.ready)
        assert await world.run_pod(pod("a", claiming(exclusive=1))) == "Running"

    play(sliceable(1), story)


def test_a_folder_that_takes_no_socket_is_said_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def denied(path: Path, target: Path) -> Path:
        if target.name == "nvidia.shared.sock":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return rename(path, target)

    async def story(world: AgentWorld) -> None:
        await world.kill_agent()
        monkeypatch.setattr(Path, "rename", denied)
        agent = await world.start_agent(registered=False)
        await world.until(lambda: "Permission denied" in agent.plugins.unready)
        await world.until(lambda: agent.plugins.unready.count(";") == 0)  # the others are served
        monkeypatch.setattr(Path, "rename", rename)
        await world.until(agent.ready)

    play(sliceable(1), story)


def test_without_pod_resources_what_can_be_told_is_served_and_nothing_else() -> None:
    async def story(world: AgentWorld) -> None:
        await world.kubelet.stop_listing()
        assert await world.run_pod(pod("a", claiming(exclusive=1))) == "Running", world.kubelet.reasons
        small = pod("small", claiming(sliced=1, sliced_units=16_000), age=1)
        world.api.add(POD, small)
        large = pod("large", claiming(sliced=1, sliced_units=800_000), age=2)
        assert await world.run_pod(large) == "Failed"
        assert "ask for different things" in world.kubelet.reasons["uid-large"]

    play(sliceable(2), story)


async def _nonsense(_request: object, _context: object) -> bytes:
    return b"\xff\xff\xff nonsense"


def test_pod_resources_that_answer_nonsense_are_as_good_as_absent() -> None:
    method = grpc.unary_unary_rpc_method_handler(_nonsense, _as_is, _as_is)
    lister = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method})

    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        await world.kubelet.stop_listing()
        server = await serve(world.kubelet.pod_resources_socket, lister)
        assert await world.run_pod(pod("a", claiming(exclusive=1))) == "Running", world.kubelet.reasons
        await world.settled()
        assert [row["mode"] for row in world.rows().values()] == [1]
        assert await world.agent.kubelet.word() is None
        await server.stop(None)

    play(sliceable(1), story)


def _as_is(message: bytes) -> bytes:
    return message


def test_a_library_that_answers_nonsense_offers_only_what_can_be_told_apart() -> None:
    def raw(index: int, uuid: str | None, **changes: Any) -> RawCard:
        facts = {"product": "NVIDIA T4", "memory_mib": 16384, "cores": 40, "pci_address": f"0000:0{index}:00.0"}
        return RawCard(manufacturer="nvidia", index=index, uuid=uuid, **{**facts, **changes})

    listed = [
        raw(0, "GPU-good"),
        raw(1, "GPU-twin"),
        raw(2, "GPU-twin"),
        raw(3, ""),
        raw(4, None),
        raw(5, "GPU-negative", memory_mib=-5),
        raw(6, "GPU-coreless", cores=0),
        raw(7, "GPU-nameless", product=""),
        raw(8, "GPU-garbled", product="Tesla \udcff\udcfe P4"),
    ]
    found = take_inventory("nvidia", listed, Bus())
    assert sum("uuid" in finding for finding in found.findings) == 4, found.findings

    async def story(world: AgentWorld) -> None:
        tokens = world.kubelet.devices.endpoints["nvidia.com/gpu"].healthy
        assert {token.split(":")[1] for token in tokens} == {
            "GPU-good",
            "GPU-negative",
            "GPU-coreless",
            "GPU-nameless",
            "GPU-garbled",
        }
        assert await world.run_pod(pod("a", claiming(exclusive=5))) == "Running", world.kubelet.reasons
        await world.settled()
        assert {row["mode"] for row in world.rows().values()} == {1}

    play([json.loads(json.dumps(dict(group))) for group in found.groups], story)


class BackwardClock(SystemClock):
    """A wall clock that somebody sets back by an hour at every look."""

    def __init__(self) -> None:
        self._shown = datetime(2026, 6, 1, tzinfo=UTC)

    def time(self) -> datetime:
        self._shown -= timedelta(hours=1)
        return self._shown


def test_a_clock_set_back_changes_nothing() -> None:
    async def story(world: AgentWorld) -> None:
        await world.kill_agent()
        world.clock = BackwardClock()
        await world.start_agent()
        assert await world.run_pod(pod("a", claiming(exclusive=1), age=80_000)) == "Running"
        assert await world.run_pod(pod("b", claiming(exclusive=1), age=1)) == "Running", "younger is older now"
        world.delete_pod("a")
        await world.settled()
        assert sorted(row["mode"] for row in world.rows().values()) == [0, 1]

    play(sliceable(2), story)


def _record(container: str, card: str, allocated: int) -> str:
    held = {"id": card, "index": 0, "mode": 1, "allocated": allocated}
    groups = [{"id": T4, "manufacturer": "nvidia", "accelerators": [held]}]
    return json.dumps({container: {"devices": {"groups": groups}, "deviceIDs": [f"{T4}:{card}:0000"]}})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{not json", id="not JSON"),
        pytest.param("[]", id="no object"),
        pytest.param(_record("main", "GPU-9", 1_600_000), id="wrong card"),
        pytest.param(_record("main", "GPU-0", -1), id="negative"),
        pytest.param(_record("main", "GPU-0", 10**12), id="over one card"),
        pytest.param(_record("other", "GPU-0", 1_600_000), id="other container"),
        pytest.param(None, id="removed"),
    ],
)
def test_an_annotation_edited_by_hand_frees_no_card(text: str | None) -> None:
    async def story(world: AgentWorld) -> None:
        assert await world.run_pod(pod("a", claiming(exclusive=1))) == "Running"
        await world.settled()
        held = [card for card, row in world.rows().items() if row["mode"]]
        world.api.edit(POD, "a", {"metadata": {"annotations": {ANNOTATION: text}}}, "default")
        assert await world.run_pod(pod("b", claiming(exclusive=2), age=1)) == "Failed"
        assert set(held) <= {card for card, row in world.rows().items() if row["mode"]}
        world.delete_pod("a")
        await world.until(lambda: {row["mode"] for row in world.rows().values()} == {0})
        assert await world.run_pod(pod("c", claiming(exclusive=2), age=2)) == "Running", world.kubelet.reasons

    play(sliceable(2), story)


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([], id="emptied"),
        pytest.param([{"id": T4, "manufacturer": "nvidia", "accelerators": [{"id": "GPU-0", "mode": 4}]}], id="forged"),
        pytest.param(None, id="removed"),
    ],
)
def test_a_ledger_edited_by_hand_is_put_right(groups: list[Any] | None) -> None:
    async def story(world: AgentWorld) -> None:
        assert await world.run_pod(pod("a", claiming(shared=1))) == "Running"
        await world.settled()
        before = dict(world.rows())
        world.api.edit(DEVICES, NODE_NAME, {"status": {"groups": groups}})
        await world.until(lambda: world.rows() == before)
        assert await world.run_pod(pod("b", claiming(exclusive=2), age=1)) == "Failed"

    play(sliceable(2), story)
