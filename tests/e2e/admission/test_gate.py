"""Gate 3 with the real Kueue: who asks for the last card in one second, and how a refused Workload comes back.

Kueue has quota for all eight cards of the machine; the ledger, written here as its agent would, says who holds them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from hack.controlplane.admin import Object
from hack.controlplane.control_plane import ControlPlane
from hack.controlplane.errors import RequestError
from hack.controlplane.manifests import namespace_manifest
from hack.fleet import FleetNode
from nodefeature.fields import as_maps, as_str, at, has_condition, labels_of, name_of
from nodefeature.kinds import DEVICES, LOCAL_QUEUE, NAMESPACE, NODE, POD, WORKLOAD
from tests.e2e.chain.cluster import Cluster
from tests.e2e.chain.product import Product

pytestmark = pytest.mark.timeout(420)

TEAM = "team-gate"
NODE_NAME = "gate-h100"
POOL = "gpustack-nvidia-h100-80gb-hbm3-linux-amd64"
CHECK = "gpustack-node-devices"
MACHINE = FleetNode(NODE_NAME, "nvidia-dgx-h100", {}, clear_faults=True)
ASKED_AGAIN_S = 60.0


@pytest.fixture(scope="module")
def gate(control_plane: ControlPlane) -> Iterator[Cluster]:
    """Return a cluster with one machine whose pool refers to our check and is open to the team."""
    product = Product(control_plane, control_plane.layout.root / "product-gate")
    product.install()
    cluster = Cluster(control_plane, product)
    product.start_controllers()
    try:
        cluster.join(MACHINE)
        entrance = cluster.wait_type(POOL, timeout_s=180)["status"]["entrance"]
        cluster.admin.apply(namespace_manifest(TEAM))
        cluster.settle()
        cluster.wait(LOCAL_QUEUE, entrance, TEAM, until=bool, what="there")
        yield cluster
    finally:
        cluster.admin.delete(NAMESPACE, TEAM)
        cluster.wait_gone(NAMESPACE, TEAM)
        product.stop_all()
        cluster.leave(*cluster.machines)


@pytest.fixture(autouse=True)
def empty(gate: Cluster) -> Iterator[None]:
    """Leave no Pod and no held card behind."""
    yield
    for pod in gate.admin.list(POD, TEAM):
        gate.admin.delete(POD, name_of(pod), TEAM, grace_s=0)
    for workload in gate.admin.list(WORKLOAD, TEAM):
        gate.wait_gone(WORKLOAD, name_of(workload), TEAM)
    hold(gate, 0)


def hold(cluster: Cluster, cards: int) -> None:
    """Let the ledger say that the first cards of the machine are held whole."""
    groups = cluster.get(DEVICES, NODE_NAME)["status"]["groups"]
    for number, card in enumerate(groups[0]["accelerators"]):
        held = number < cards
        groups[0]["accelerators"][number] = {
            "id": card["id"],
            "index": card["index"],
            "mode": 1 if held else 0,
            **({} if held else {"remaining": 1_600_000}),
        }
    cluster.admin.patch(DEVICES, NODE_NAME, {"status": {"groups": groups}}, subresource="status")


def ask(cluster: Cluster, name: str, **cards: Any) -> None:
    """Create a queued Pod; `cards` are resources with `__` for `.`."""
    entrance = cluster.wait_type(POOL)["status"]["entrance"]
    limits = {"nvidia.com/gpu" + key.replace("__", "."): str(amount) for key, amount in (cards or {"": 1}).items()}
    container = {"name": "main", "image": "registry.example/train:1", "resources": {"limits": limits}}
    cluster.admin.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": TEAM, "labels": {"kueue.x-k8s.io/queue-name": entrance}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
        }
    )


def workload_of(cluster: Cluster, pod: str) -> Object:
    """Return a Pod's Workload; empty while there is none."""
    for workload in cluster.admin.list(WORKLOAD, TEAM):
        if any(owner.get("name") == pod for owner in as_maps(at(workload, "metadata", "ownerReferences"))):
            return workload
    return {}


def said(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return our check's state on a Workload."""
    checks = as_maps(at(workload, "status", "admissionChecks"))
    return next((check for check in checks if check.get("name") == CHECK), {})


def until(cluster: Cluster, holds: Callable[[], bool], what: str, timeout_s: float = ASKED_AGAIN_S) -> None:
    """Wait for something about several objects."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        cluster.product.check()
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.1)


def admitted(cluster: Cluster, *pods: str) -> list[str]:
    """Return the Pods whose Workloads are admitted."""
    return [pod for pod in pods if has_condition(workload_of(cluster, pod), "Admitted")]


def was_refused(workload: Mapping[str, Any]) -> bool:
    """Say whether Kueue put a Workload back because of our Retry."""
    conditions = as_maps(at(workload, "status", "conditions"))
    evicted = next((c for c in conditions if c.get("type") == "Evicted"), {})
    return evicted.get("reason") == "AdmissionCheck" and "needs 1 free card" in as_str(evicted.get("message"))


def test_two_in_one_second_for_the_last_card_and_the_second_after_one_is_freed(gate: Cluster) -> None:
    hold(gate, 7)
    ask(gate, "first")
    ask(gate, "second")
    until(gate, lambda: len(admitted(gate, "first", "second")) == 1, "one of two is admitted")
    (winner,) = admitted(gate, "first", "second")
    loser = "second" if winner == "first" else "first"
    until(gate, lambda: was_refused(workload_of(gate, loser)), "the other is put back with our reason")
    assert said(workload_of(gate, winner))["state"] == "Ready"
    assert "requeueAfterSeconds" not in said(workload_of(gate, winner))
    assert admitted(gate, loser) == []
    hold(gate, 6)
    until(gate, lambda: admitted(gate, loser) == [loser], "the other is admitted once a card is freed")


def test_eight_cards_on_one_node_or_none(gate: Cluster) -> None:
    hold(gate, 4)
    ask(gate, "five", **{"": 5})
    near = "needs 5 free cards on node gate-h100, which was chosen for it and has 4"
    until(gate, lambda: near in str(workload_of(gate, "five").get("status")), "the nearest miss")
    hold(gate, 3)
    until(gate, lambda: admitted(gate, "five") == ["five"], "admitted with five free cards")


def test_the_controllers_killed_between_two_verdicts_promise_nothing_twice(gate: Cluster) -> None:
    hold(gate, 7)
    ask(gate, "before")
    until(gate, lambda: admitted(gate, "before") == ["before"], "the first is admitted")
    gate.product.stop("controllers")
    ask(gate, "after")
    gate.product.start_controllers()
    until(gate, lambda: was_refused(workload_of(gate, "after")), "its card is still promised to the first", 120.0)
    assert admitted(gate, "after") == []


def test_b006_evictions_and_verdicts_race(gate: Cluster) -> None:
    """Workloads are deactivated and activated at random; none stays evicted and pending."""
    hold(gate, 4)
    rng, names = random.Random(6), [f"race-{n}" for n in range(4)]
    for name in names:
        ask(gate, name)
    until(gate, lambda: len(admitted(gate, *names)) == 4, "all are admitted")
    for name in names:
        gate.admin.delete(POD, name, TEAM, grace_s=0)
    for turn in range(25):
        name = f"again-{turn}"
        ask(gate, name)
        time.sleep(rng.uniform(0, 0.4))
        workload = workload_of(gate, name)
        if workload:
            for active in (False, True):
                _switch(gate, name_of(workload), active=active)
                time.sleep(rng.uniform(0, 0.2))
        until(gate, partial(_is_settled, gate, name), f"{name} is asked again")
        gate.admin.delete(POD, name, TEAM, grace_s=0)
        until(gate, partial(_is_let_go, gate, name), f"the Workload of {name} goes")


def _switch(cluster: Cluster, workload: str, *, active: bool) -> None:
    """Let a Workload go or come; Kueue deletes an evicted Pod that had started, and its Workload goes with it."""
    try:
        cluster.admin.patch(WORKLOAD, workload, {"spec": {"active": active}}, TEAM)
    except RequestError as refused:
        if refused.code != 404:
            raise


def _is_settled(cluster: Cluster, pod: str) -> bool:
    """Say whether a Pod is admitted, or deleted by Kueue as it does with evicted ones that had started."""
    return admitted(cluster, pod) == [pod] or cluster.admin.get(POD, pod, TEAM) is None


def _is_let_go(cluster: Cluster, pod: str) -> bool:
    return not workload_of(cluster, pod)


def test_fit_labels_follow_the_ledger(gate: Cluster) -> None:
    key = "exclusive-free-cards.fit.gpustack.ai/nvidia-h100-80gb-hbm3"
    hold(gate, 3)
    gate.wait(NODE, NODE_NAME, until=lambda node: labels_of(node).get(key) == "5", what=f"{key}=5", timeout_s=15)
    hold(gate, 0)
    gate.wait(NODE, NODE_NAME, until=lambda node: labels_of(node).get(key) == "8", what=f"{key}=8", timeout_s=15)
