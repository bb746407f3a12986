"""What an Instance's status and conditions say: spec 05 §9 and §10.1, rows by name; hostile records (B008, B019)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.instance_conditions import ConditionType, Reason
from api.instance_status import HINT, INIT_HINT
from api.models.instance import InstanceStatus
from api.settings import DEFAULTS
from api.validation import shape_problems
from controllers.instance_progress import conditions_of, held_up
from controllers.instance_status import World, allocations_of, leaving_status, running_status, stopped_status
from tests.builders.chain import manufacturers
from tests.builders.instance_types import FREE, devices
from tests.builders.instances import instance, own_pod, running, waiting

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:01:00Z"
ANNOTATION = "device.gpustack.ai/accelerator.allocated"
WHOLE = 1_600_000
INVENTORY = devices("node-1", [FREE, FREE, FREE, FREE])
MAIN = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}}}
SLICED = {
    "name": "main",
    "resources": {"limits": {"nvidia.com/gpu.sliced": "1", "nvidia.com/gpu.sliced.units": "320000"}},
}


def status_of(pod: Any, *, stored: Any = None, now: str = NOW, **more: Any) -> Any:
    of = {**instance(**more.pop("spec", {})), **({"status": stored} if stored else {})}
    world = World(
        instance=of,
        pod=pod,
        service=more.get("service"),
        node=more.get("node"),
        devices=more.get("devices"),
        workload=more.get("workload"),
        settings=DEFAULTS,
        registry=manufacturers(),
        now=now,
    )
    return running_status(world)


def pod(status: Any, **more: Any) -> Any:
    return own_pod(instance(), node="node-1", status=status, **more)


OVERLAY: dict[str, tuple[Any, str, str, Reason]] = {
    "all true": (running(), "Ready", "", Reason.READY),
    "ImagePullBackOff": (
        waiting("ImagePullBackOff", "pull denied"),
        "NotReady",
        "pull denied",
        Reason.IMAGE_NOT_PULLED,
    ),
    "InvalidImageName": (waiting("InvalidImageName", "bad name"), "NotReady", "bad name", Reason.IMAGE_NOT_PULLED),
    "init ErrImagePull": (
        waiting("ErrImagePull", "pull denied", init=True),
        "NotReady",
        "pull denied",
        Reason.IMAGE_NOT_PULLED,
    ),
    "CrashLoopBackOff": (waiting("CrashLoopBackOff", "back-off 10s"), "Starting", "back-off 10s", Reason.CRASH_LOOP),
    "ContainerCreating": (waiting("ContainerCreating"), "Starting", HINT, Reason.CONTAINERS_NOT_READY),
    "none": (waiting(), "Starting", HINT, Reason.CONTAINERS_NOT_READY),
    "init none": (waiting(init=True), "Initializing", INIT_HINT, Reason.INITIALIZING),
    "NodeNotReady": (
        {"phase": "Running", "conditions": [{"type": "Ready", "status": "False", "reason": "NodeNotReady"}]},
        "NotReady",
        "NodeNotReady",
        Reason.POD_NOT_READY,
    ),
    "Failed/Evicted": (
        {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
        "NotReady",
        "Evicted: low on memory",
        Reason.POD_FAILED,
    ),
    "Failed/UnexpectedAdmissionError": (
        {"phase": "Failed", "reason": "UnexpectedAdmissionError"},
        "NotReady",
        "UnexpectedAdmissionError",
        Reason.ADMISSION_REJECTED,
    ),
    "Succeeded": ({"phase": "Succeeded"}, "NotReady", "the Pod has finished", Reason.POD_FINISHED),
    "main ended": (
        {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
            "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}],
        },
        "NotReady",
        "container 'main': Error (exit code 1)",
        Reason.CONTAINER_ENDED,
    ),
}


@pytest.mark.parametrize("row", OVERLAY)
def test_overlay(row: str) -> None:
    state, phase, message, reason = OVERLAY[row]
    status = status_of(pod(state))
    assert (status["phase"], status.get("phaseMessage", "")) == (phase, message)
    ready = status["conditions"][2]
    assert (ready["status"] == "True") is (phase == "Ready")
    assert ready["reason"] == reason
    assert shape_problems(InstanceStatus, status) == []


def test_unscheduled_names_the_schedulers_words() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    status = status_of(own_pod(instance(), status={"phase": "Pending", "conditions": [said]}))
    assert (status["phase"], status["phaseMessage"]) == ("Pending", "0/3 nodes are available")
    assert status["conditions"][1]["reason"] == "Unschedulable"


def test_pod_ips_fall_back_to_the_one() -> None:
    status = status_of(pod({**running(), "podIPs": None}))
    assert status["podIPs"] == [{"ip": "10.42.1.7"}]


def test_host_ips_are_the_pods_word_where_the_node_is_gone() -> None:
    assert status_of(pod(running("10.9.9.9")), node=None)["hostIPs"] == [{"ip": "10.9.9.9"}]


def test_the_last_figures_of_an_ended_pod_stay() -> None:
    stored = status_of(pod(running()))
    ended = status_of(pod({"phase": "Failed", "reason": "Evicted"}), stored=stored)
    assert ended["podIPs"] == stored["podIPs"]
    assert ended["nodeName"] == "node-1"
    assert ended["accessAddresses"] == stored["accessAddresses"]


def test_figures_of_another_pod_never_stay() -> None:
    stored = {**status_of(pod(running())), "nodeName": "another"}
    assert "podIPs" not in status_of(pod({"phase": "Failed"}), stored=stored)


# Allocations


def record(*cards: Any, group: str = "a10g", container: str = "main") -> str:
    body = {container: {"devices": {"groups": [{"id": group, "manufacturer": "nvidia", "accelerators": list(cards)}]}}}
    return json.dumps(body)


def card(number: int, mode: int = 1, allocated: Any = WHOLE, **more: Any) -> dict[str, Any]:
    return {"id": f"card-{number}", "index": number, "mode": mode, "allocated": allocated, **more}


def shown(text: str, main: Any = MAIN, inventory: Any = INVENTORY) -> Any:
    recorded = pod(running(), annotations={ANNOTATION: text}, containers=[main, {"name": "sshd"}])
    return allocations_of(recorded, inventory, manufacturers())


def test_allocations_as_written() -> None:
    assert shown(record(card(0), card(1))) == [
        {"id": "a10g", "manufacturer": "nvidia", "accelerators": [card(0), card(1)]},
    ]


def test_allocations_of_all_containers() -> None:
    seen = {"id": "card-0", "index": 0, "mode": 5}
    both = json.loads(record(card(0))) | json.loads(record(seen, container="sshd"))
    assert shown(json.dumps(both))[0]["accelerators"] == [card(0), seen]


def test_a_slice() -> None:
    placed = card(2, 3, 320000, allocatedLogicalPlacements=[{"start": 0, "length": 20}])
    assert shown(record(placed), SLICED)[0]["accelerators"] == [placed]


@pytest.mark.parametrize(
    "text",
    [
        record(card(9)),
        record(card(0), group="h100"),
        record(card(0, allocated=-1)),
        record(card(0, mode=3, allocated=-5)),
        record(card(0, mode=2)),
        record(card(0, mode=99)),
        record(card(0, mode=True)),
        record({"id": None, "mode": 1}),
        record({"id": "card-0", "index": 2**40, "mode": 1, "allocated": WHOLE}),
        record({"id": "card-0", "index": -1, "mode": 1, "allocated": WHOLE}),
        record({"id": "card-0", "index": "0", "mode": 1, "allocated": WHOLE}),
        record(card(0), container="sidecar"),
        record(None, 5, "x", []),
        record(card(0, allocatedPhysicalID="x" * 300)),
        "{}",
        '{"main": {"devices": {"groups": null}}}',
    ],
)
def test_what_is_not_believed_is_not_shown(text: str) -> None:
    assert shown(text) == []


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "null", "5", "{", "[" * 100_000, '{"main": {"devices": {"groups": 5}}}']
)
def test_text_that_cannot_be_read_keeps_what_was_shown(text: str) -> None:
    assert shown(text) is None
    known = [{"id": "a10g", "manufacturer": "nvidia", "accelerators": [card(0)]}]
    stored = {"phase": "Ready", "nodeName": "node-1", "allocations": known}
    assert status_of(pod(running(), annotations={ANNOTATION: text}), stored=stored)["allocations"] == known
    fresh = status_of(pod(running(), annotations={ANNOTATION: text}))
    assert "allocations" not in fresh


def test_more_cards_than_asked_are_not_shown() -> None:
    rows = shown(record(card(0), card(1), card(2)))
    assert [row["id"] for row in rows[0]["accelerators"]] == ["card-0", "card-1"]


def test_unknown_inventory_hides_nothing() -> None:
    assert shown(record(card(7)), inventory=None)[0]["accelerators"] == [card(7)]


@pytest.mark.parametrize("name", ["x" * 300, ""])
def test_names_that_do_not_fit_the_schema_are_left_out(name: str) -> None:
    text = record({**card(0), "id": name}, group=name or "a10g")
    assert shown(text, inventory=None) == []


# Conditions


def test_transition_times_move_with_the_status_alone() -> None:
    first = status_of(pod(waiting("ContainerCreating")), now=NOW)
    second = status_of(pod(waiting("CrashLoopBackOff", "x")), stored=first, now=LATER)
    third = status_of(pod(running()), stored=second, now=LATER)
    assert [c["lastTransitionTime"] for c in second["conditions"]] == [NOW, NOW, NOW]
    assert [c["lastTransitionTime"] for c in third["conditions"]] == [NOW, NOW, LATER]
    assert status_of(pod(running()), stored=third, now="2027-01-01T00:00:00Z") == third


def test_all_three_conditions_always_in_the_order_of_the_way() -> None:
    for status in (
        status_of(pod(running())),
        stopped_status(instance(), DEFAULTS, NOW),
        leaving_status(instance(), "Deleting", Reason.DELETING, "", NOW),
    ):
        assert [c["type"] for c in status["conditions"]] == list(ConditionType)
        assert shape_problems(InstanceStatus, status) == []


def test_messages_are_bounded() -> None:
    status = status_of(pod(waiting("ImagePullBackOff", "x" * 100_000)))
    assert len(status["phaseMessage"]) == 4096
    assert len(status["conditions"][2]["message"]) == 1024


@pytest.mark.parametrize("stored", [None, {"conditions": None}, {"conditions": [None, {"type": "Ready"}, 5]}])
def test_stored_conditions_may_be_anything(stored: Any) -> None:
    found = conditions_of({"metadata": {"generation": None}, "status": stored}, held_up(Reason.QUEUED, ""), NOW)
    assert [c["observedGeneration"] for c in found] == [0, 0, 0]
