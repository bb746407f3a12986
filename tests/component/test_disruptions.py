"""What real clusters do: labels vanish, servers restart, processes are killed, people change their mind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from hack.devcluster.standins.nfd_master import HOLD
from nodefeature.fields import at, labels_of
from nodefeature.kinds import CLUSTER_QUEUE, INSTANCE_TYPE, LOCAL_QUEUE, NAMESPACE, NODE, NODE_FEATURE, RESOURCE_FLAVOR
from nodefeature.labels import MANAGED, SYSTEM_NAMESPACE
from tests.builders.machines import a10g, machine
from tests.builders.running_chain import RunningChain, scenario
from tests.component.walkthrough import A10G_FLAVOR, A10G_IDLE, A10G_POOL, FLEET, NODE_A10G, NODE_T4_A, T4_IDLE, T4_POOL

TWO = (machine("gpu-a", cards=[a10g()]), machine("gpu-b", cards=[a10g()]))
TWO_IDLE = ("8/64Gi/100Gi", "1/2 1/20 100/200 0/0", "0/0", "Active")


class Witness:
    """Sees every state of the store, so that nothing that was taken back goes unnoticed."""

    def __init__(self, chain: RunningChain) -> None:
        self.drained: list[str] = []
        self.inactive: list[str] = []
        self.gone: list[str] = []
        chain.store.listen(self._see)

    def _see(self, resource: str, change: Any) -> None:
        if resource == CLUSTER_QUEUE.group_resource and at(change.entry.load(), "spec", "stopPolicy") == "HoldAndDrain":
            self.drained.append(change.entry.name)
        if resource == INSTANCE_TYPE.group_resource and at(change.entry.load(), "spec", "inactive"):
            self.inactive.append(change.entry.name)
        if change.type == "DELETED" and resource in ("pods", RESOURCE_FLAVOR.group_resource):
            self.gone.append(change.entry.name)

    @property
    def harm(self) -> list[str]:
        return [*self.drained, *self.inactive, *self.gone]


@pytest.mark.parametrize("silence_s", [45, 210])
@pytest.mark.parametrize("back", ["all", "half"])
@pytest.mark.parametrize("restart", [False, True], ids=["", "controllers restart"])
def test_b003_labels_vanish_and_return(silence_s: int, back: str, *, restart: bool) -> None:
    @scenario(*TWO)
    async def story(chain: RunningChain) -> None:
        await chain.settle()
        await chain.submit("train", A10G_POOL, {"nvidia.com/gpu": "1"})
        await chain.settle()
        assert chain.pod("train")["status"]["phase"] == "Running"
        quotas, row, flavors = chain.quotas(A10G_POOL), chain.row(A10G_POOL), chain.flavors()
        witness = Witness(chain)
        longer = 3600 if back == "half" else silence_s
        for node, seconds in (("gpu-a", silence_s), ("gpu-b", longer)):
            await chain.edit(NODE, node, {"metadata": {"annotations": {HOLD: f"{seconds}s"}}})
        await chain.run(silence_s / 2)
        assert MANAGED not in labels_of(chain.object(NODE, "gpu-a"))
        if restart:
            await chain.restart_controllers()
        await chain.run(silence_s / 2 + 120)
        assert labels_of(chain.object(NODE, "gpu-a"))[MANAGED] == "true"
        assert (MANAGED in labels_of(chain.object(NODE, "gpu-b"))) == (back == "all")
        await chain.run(900)
        assert not witness.harm
        assert chain.pod("train")["status"]["phase"] == "Running"
        assert (chain.quotas(A10G_POOL), chain.row(A10G_POOL), chain.flavors()) == (quotas, row, flavors)
        told = chain.condition(NODE, "gpu-b", "GPUStackLabelsMerged").get("status")
        assert told == ("False" if back == "half" else None)
        if back == "half":
            assert "gpustack.ai/" in chain.condition(NODE, "gpu-b", "GPUStackLabelsMerged")["message"]

    story()


@scenario(*TWO)
async def test_b003_the_worker_feature_is_made_anew_while_labels_are_away(chain: RunningChain) -> None:
    await chain.settle()
    before, witness = chain.quotas(A10G_POOL), Witness(chain)
    for node in ("gpu-a", "gpu-b"):
        await chain.edit(NODE, node, {"metadata": {"annotations": {HOLD: "45s"}}})
    await chain.run(10)
    await chain.delete(NODE_FEATURE, "gpu-a-gpustack-worker", SYSTEM_NAMESPACE)
    await chain.settle()
    assert not [name for name in witness.harm if "nvidia" in name]
    assert chain.quotas(A10G_POOL) == before
    assert chain.row(A10G_POOL) == TWO_IDLE


@scenario(*TWO)
async def test_b003_somebodys_word_still_drains(chain: RunningChain) -> None:
    await chain.settle()
    await chain.submit("train", A10G_POOL, {"nvidia.com/gpu": "1"})
    await chain.settle()
    for node in ("gpu-a", "gpu-b"):
        await chain.label(node, **{MANAGED: "false"})
    await chain.settle()
    assert chain.pod("train") == {}
    assert chain.quotas(A10G_POOL) == {}


@scenario(NODE_A10G, NODE_T4_A)
async def test_a_node_flaps_managed_fifty_times_a_minute(chain: RunningChain) -> None:
    await chain.settle()
    before = sum(chain.written().values())
    for flip in range(50):
        await chain.label("node-a10g", **{MANAGED: "true" if flip % 2 else "false"})
        await chain.run(1.2)
    assert sum(chain.written().values()) - before < 50 * 20
    await chain.settle()
    assert chain.row(A10G_POOL) == A10G_IDLE
    assert chain.row(T4_POOL)[1] == "1/1 1/10 100/100 0/0"
    version = chain.store.version
    await chain.run(600)
    assert chain.store.version == version


@scenario(NODE_A10G)
async def test_a_word_that_crosses_with_nfd_is_settled(chain: RunningChain) -> None:
    await chain.settle()
    await chain.kill("standins")
    before = sum(chain.written().values())
    chain.start_standins()
    await chain.label("node-a10g", **{MANAGED: "false"})
    await chain.settle()
    assert sum(chain.written().values()) - before < 60
    said = chain.object(NODE_FEATURE, "node-a10g-gpustack-worker", SYSTEM_NAMESPACE)["spec"]["labels"][MANAGED]
    assert labels_of(chain.object(NODE, "node-a10g"))[MANAGED] == said


@pytest.mark.parametrize(
    ("after_s", "kill"), [(0.0, True), (0.05, False), (2.0, True), (5.5, True), (8.0, False)], ids=str
)
def test_the_api_server_restarts(after_s: float, tmp_path: Path, *, kill: bool) -> None:
    @scenario(*FLEET, store_file=tmp_path / "store.sqlite")
    async def story(chain: RunningChain) -> None:
        await chain.run(after_s)
        await chain.restart_server(kill=kill)
        await chain.run(90)
        await chain.settle()
        assert (chain.row(A10G_POOL), chain.row(T4_POOL)) == (A10G_IDLE, T4_IDLE)
        await chain.restart_server(kill=kill, away_s=40)
        await chain.run(90)
        version = chain.store.version
        await chain.run(600)
        assert chain.store.version == version, chain.last_changes()
        await chain.charge("node-a10g", {"index": 0, "mode": 3, "remaining": 1_280_000})
        await chain.settle()
        assert chain.row(A10G_POOL)[1] == "0/0 0/0 80/80 0/0"

    story()


@scenario(NODE_A10G)
async def test_watches_that_fell_behind_start_again(chain: RunningChain) -> None:
    await chain.settle()
    for shelf in chain.store.shelves():
        shelf.compact(shelf.visible - shelf.first)
    chain.wire.cut()
    await chain.join(NODE_T4_A)
    await chain.run(60)
    await chain.settle()
    assert chain.row(T4_POOL)[3] == "Active"
    assert chain.row(A10G_POOL) == A10G_IDLE


@pytest.mark.parametrize("lag_s", [0.2, 1.0])
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_controllers_end_in_the_middle_of_a_write(how: str, lag_s: float) -> None:
    """The server has done what the process never hears of."""

    @scenario(*FLEET)
    async def story(chain: RunningChain) -> None:
        chain.wire.lag_s = lag_s
        for moment in range(8):
            await chain.run(lag_s * (moment + 0.5))
            await (chain.kill if how == "kill" else chain.stop)("controllers")
            chain.start_controllers()
        await chain.run(300)
        chain.wire.lag_s = 0.0
        await chain.settle()
        assert (chain.row(A10G_POOL), chain.row(T4_POOL)) == (A10G_IDLE, T4_IDLE)
        assert chain.quotas(A10G_POOL) == {A10G_FLAVOR: "1600k"}
        version = chain.store.version
        await chain.run(600)
        assert chain.store.version == version, chain.last_changes()

    story()


@scenario(NODE_A10G)
async def test_a_server_that_refuses_and_stumbles(chain: RunningChain) -> None:
    count = 0

    def stumble(request: httpx.Request) -> httpx.Response | None:
        nonlocal count
        count += 1
        if "watch=" in str(request.url) or count % 3:
            return None
        code = (429, 500, 503, 504)[count % 4]
        headers = {"retry-after": "1"} if code == 429 else {}
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": "",
            "message": "no",
        }
        return httpx.Response(code, json=status, headers=headers)

    chain.wire.faults.append(stumble)
    await chain.run(300)
    chain.wire.faults.clear()
    await chain.run(120)
    await chain.settle()
    assert chain.row(A10G_POOL) == A10G_IDLE


@scenario(NODE_A10G)
async def test_a_right_that_is_missing_is_named(chain: RunningChain) -> None:
    def forbid(request: httpx.Request) -> httpx.Response | None:
        if request.method != "POST" or "/instancetypes" not in request.url.path:
            return None
        message = 'instancetypes.worker.gpustack.ai is forbidden: User "x" cannot create resource "instancetypes"'
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden"}
        return httpx.Response(403, json={**status, "message": message})

    chain.wire.faults.append(forbid)
    await chain.run(30)
    assert chain.said("cannot create resource", "instancetypes", "controller=node_flavor")
    assert A10G_FLAVOR in chain.flavors(), "the flavor itself stands"
    chain.wire.faults.clear()
    await chain.run(120)
    assert chain.row(A10G_POOL) == A10G_IDLE


@scenario(NODE_A10G)
async def test_b051_namespaces_come_and_go(chain: RunningChain) -> None:
    await chain.settle()
    for number in range(30):
        await chain.add_namespace(f"team-{number}")
    await chain.run(10)
    assert all(len(chain.entrances(f"team-{number}")) == 2 for number in range(30))
    finalizer = {"metadata": {"finalizers": ["example.com/stuck"]}}
    await chain.edit(LOCAL_QUEUE, chain.entrances("team-0")[0], finalizer, "team-0")
    before = chain.written()
    for number in range(10):
        await chain.delete(NAMESPACE, f"team-{number}")
    await chain.add_namespace("late")
    await chain.run(10)
    assert len(chain.entrances("late")) == 2
    await chain.run(300)
    refused = {w: n for w, n in (chain.written() - before).items() if w.code >= 400}
    assert sum(refused.values()) <= 30, refused
    assert "team-1" not in chain.names(NAMESPACE)
    assert len(chain.entrances("team-20")) == 2
    version = chain.store.version
    await chain.run(600)
    assert chain.store.version == version, "silence until it is gone or back"
