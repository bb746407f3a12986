"""The controller killed at each of its writes, and started anew: the life ends the same.

Before a write and after it, in every phase of a whole life. What plays Kueue, kubelet and kube-apiserver is below.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from kube.requests import Request
from nodefeature.fields import as_list, as_maps, at
from nodefeature.kinds import CLUSTER_QUEUE, EVENT, INSTANCE, INSTANCE_TYPE, NODE, POD, SERVICE
from tests.builders.chain import bench
from tests.builders.fake_api import FakeApi
from tests.builders.instances import POOL, instance, pool_type, queue, running

NS = "team-a"
RESTARTED_AFTER_S = 5.0


class Killed(BaseException):
    """The process dies here."""


class MortalApi(FakeApi):
    """Kills its client before, or after, the n-th write."""

    def __init__(self, *, at_write: int = 0, before: bool = False) -> None:
        super().__init__()
        self.at_write = at_write
        self.before = before
        self.asked = 0

    def answer(self, request: Request) -> bytes:
        if request.method == "GET":
            return super().answer(request)
        self.asked += 1
        if self.asked == self.at_write and self.before:
            raise Killed
        answer = super().answer(request)
        if self.asked == self.at_write:
            raise Killed
        return answer


class Life:
    """One life, phase by phase."""

    def __init__(self, api: MortalApi) -> None:
        self.api = api
        api.add(INSTANCE_TYPE, pool_type())
        api.add(CLUSTER_QUEUE, queue())
        api.add(NODE, {"metadata": {"name": "node-1"}, "status": {}})
        api.add(INSTANCE, instance(ports=[{"port": 22}]))
        self.bench = bench(api, ("instance",))
        self.told: list[Any] = []

    def phase(self, change: Any) -> Any:
        """Change the Instance, let the world move until it rests; return what it is then."""
        if change:
            self.api.edit(INSTANCE, "box", change, NS)
        for _ in range(40):
            before = len(self.api.journal[INSTANCE]), len(self.api.journal[POD]), len(self.api.journal[SERVICE])
            self._run()
            self._play()
            now = len(self.api.journal[INSTANCE]), len(self.api.journal[POD]), len(self.api.journal[SERVICE])
            if now == before:
                return self._meaning()
        raise AssertionError("the world never rests")

    def _run(self) -> None:
        async def go() -> None:
            await self.bench.settle()
            await self.bench.advance(3)

        try:
            asyncio.run(go())
        except Killed:
            self.bench = bench(self.api, ("instance",), clock=self.bench.clock)
            asyncio.run(self.bench.clock.advance(RESTARTED_AFTER_S))
            self._run()

    def _play(self) -> None:
        pod, service = self.api.get(POD, "box", NS), self.api.get(SERVICE, "box", NS)
        if service is not None and (pod is None or _owner(service) != pod["metadata"]["uid"]):
            self.api.remove(SERVICE, "box", NS)  # the garbage collector
        elif service is not None and not as_maps(service["spec"]["ports"])[0].get("nodePort"):
            ports = [{**port, "nodePort": 30000 + port["port"]} for port in service["spec"]["ports"]]
            self.api.edit(SERVICE, "box", {"spec": {"ports": ports}}, NS)
        if pod is not None and as_list(at(pod, "spec", "schedulingGates")):
            self.api.edit(POD, "box", {"spec": {"schedulingGates": None}}, NS)
        elif pod is not None and at(pod, "status", "phase") != "Running":
            self.api.edit(POD, "box", {"spec": {"nodeName": "node-1"}, "status": running()}, NS)

    def _meaning(self) -> Any:
        found = copy.deepcopy([self.api.get(kind, "box", NS) for kind in (INSTANCE, POD, SERVICE)])
        for obj in found:
            for key in ("uid", "resourceVersion", "generation", "ownerReferences"):
                at(obj or {"metadata": {}}, "metadata").pop(key, None)
            for condition in as_maps(at(obj, "status", "conditions")):
                condition.pop("lastTransitionTime", None)  # type: ignore[attr-defined]  # a deep copy, ours to change
        return found


def _owner(obj: Any) -> Any:
    return obj["metadata"]["ownerReferences"][0]["uid"]


PHASES: tuple[Any, ...] = (
    None,
    {"spec": {"stop": True}},
    {"spec": {"stop": False}},
    {"metadata": {"deletionTimestamp": "2026-01-01T01:00:00Z"}},
)


def live(api: MortalApi) -> tuple[list[Any], list[Any]]:
    life = Life(api)
    states = [life.phase(change) for change in PHASES]
    events = sorted(f"{event['reason']} x{event['count']}" for event in api.store[EVENT].values())
    return states, events


UNDISTURBED = MortalApi()
EXPECTED = live(UNDISTURBED)


def test_an_undisturbed_life() -> None:
    states, events = EXPECTED
    assert [at(state[0], "status", "phase") for state in states] == ["Ready", "Stopped", "Ready", None]
    assert [state[1] is not None for state in states] == [True, False, True, False]
    assert states[0][0]["status"]["ports"] == states[2][0]["status"]["ports"]
    assert "Ready x1" in events


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("number", range(1, UNDISTURBED.asked + 1))
def test_killed_at_each_write(number: int, before: bool) -> None:
    api = MortalApi(at_write=number, before=before)
    states, events = live(api)
    assert api.asked >= number
    assert states == EXPECTED[0]
    assert events == EXPECTED[1], "a restart neither repeats an Event nor swallows one"


def test_killed_in_a_drain_at_each_write() -> None:
    """A drain is two writes: whichever the death falls between, the Instance ends stopped, and stays so."""
    for number in range(1, 12):
        api = MortalApi()
        life = Life(api)
        life.phase(None)
        api.at_write, api.asked = number, 0
        api.edit(CLUSTER_QUEUE, POOL, {"spec": {"stopPolicy": "HoldAndDrain"}})
        state = life.phase(None)
        assert at(state[0], "spec", "stop") is True, number
        assert at(state[0], "status", "phase") == "Stopped", number
        assert state[1] is None, number
        if api.asked < number:
            break
