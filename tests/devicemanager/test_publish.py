"""Publishing: what is written, what is refused, what is written again (spec 06 §3.2.5-6; cases B029, B056)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from devicemanager.detection import Detection
from devicemanager.publisher.publish import FIELD_MANAGER, RBAC, Known, Published, Publisher, PublishRefused
from kube.errors import Unreachable
from kube.requests import Request
from nodefeature.fields import at, labels_of
from nodefeature.kinds import DEVICES, NODE, NODE_FEATURE
from tests.builders.cards import cards, detected, node
from tests.builders.fake_api import FakeApi, refusal
from tests.builders.virtual_clock import VirtualClock

FEATURE = "gpu-a-gpustack-device-manager"
NAMESPACE = "gpustack-system"
TWO = detected(nvidia=cards(2))


def cluster(**metadata: Any) -> FakeApi:
    api = FakeApi()
    api.add(NODE, node(**metadata))
    return api


def publish(api: FakeApi, believed: Detection = TWO, **options: Any) -> Published:
    publisher = Publisher(api.client(), VirtualClock(), namespace=NAMESPACE)
    return asyncio.run(publisher.publish("gpu-a", believed, **options))


def test_first_publish_writes_labels_then_inventory_then_ledger() -> None:
    api = cluster()
    assert publish(api).writes == 3
    assert [(w.verb, w.kind, w.key.name) for w in api.writes] == [
        ("create", NODE_FEATURE, FEATURE),
        ("create", DEVICES, "gpu-a"),
        ("patch", DEVICES, "gpu-a"),
    ]
    assert {w.manager for w in api.writes} == {FIELD_MANAGER}
    devices = api.get(DEVICES, "gpu-a")
    assert at(devices, "status", "groups")[0]["accelerators"][1]["remaining"] == 1600000
    assert labels_of(devices)["acceleratable.feature.gpustack.ai/nvidia-tesla-t4.memory"] == "15Gi"


def test_a_settled_node_gets_no_writes_also_after_a_restart() -> None:
    api = cluster()
    publish(api)
    assert publish(api).writes == 0
    assert publish(api).writes == 0


def test_known_objects_spare_the_reads() -> None:
    api = cluster()
    stored = api.get(NODE, "gpu-a")
    assert stored is not None
    assert publish(api, known=Known(stored, None, None)).writes == 3
    assert api.reads == []


def test_stale_known_objects_are_read_again() -> None:
    api = cluster()
    publish(api)
    stored = api.get(NODE, "gpu-a")
    assert stored is not None
    assert publish(api, known=Known(stored, None, None)).writes == 0


def test_a_conflict_is_decided_again() -> None:
    api = cluster()
    publish(api)
    api.faults.append(once(lambda r: refusal(409, "Conflict", "modified") if r.method == "PATCH" else None))
    assert publish(api, detected(nvidia=cards(3))).writes == 3
    assert len(at(api.get(DEVICES, "gpu-a"), "spec", "groups")[0]["accelerators"]) == 3


def test_two_agents_of_one_node_do_not_overwrite_each_other() -> None:
    api = cluster()
    publish(api)
    publish(api, detected(amd=cards(1)))
    publish(api)
    assert [g["manufacturer"] for g in at(api.get(DEVICES, "gpu-a"), "spec", "groups")] == ["amd", "nvidia"]
    labels = at(api.get(NODE_FEATURE, FEATURE, NAMESPACE), "spec", "labels")
    assert labels["acceleratable.feature.gpustack.ai/amd"] == "true"
    assert labels["acceleratable.feature.gpustack.ai/nvidia"] == "true"


def test_a_missing_node_is_refused_by_name() -> None:
    with pytest.raises(PublishRefused, match="node gpu-a not found"):
        publish(FakeApi())


def test_a_node_that_is_going_is_skipped() -> None:
    api = cluster(deletionTimestamp="2026-01-01T00:00:00Z")
    assert publish(api).skipped == "skip deleted node gpu-a"
    assert api.writes == []


def test_a_node_replaced_by_a_namesake_owns_the_objects() -> None:
    api = cluster()
    publish(api)
    api.edit(NODE, "gpu-a", {"metadata": {"uid": "uid-2"}})
    publish(api)
    for kind, name, namespace in ((NODE_FEATURE, FEATURE, NAMESPACE), (DEVICES, "gpu-a", "")):
        references = at(api.get(kind, name, namespace), "metadata", "ownerReferences")
        assert [reference["uid"] for reference in references] == ["uid-2"]


@pytest.mark.parametrize(
    ("method", "verb"), [("GET", "get"), ("POST", "create"), ("PATCH", "patch")], ids=["get", "create", "update"]
)
def test_b056_a_403_names_verb_and_resource(method: str, verb: str) -> None:
    api = cluster()
    if method == "PATCH":
        publish(api)
    api.faults.append(
        lambda r: refusal(403, "Forbidden", "no") if r.method == method and "nodefeatures" in r.path else None
    )
    with pytest.raises(PublishRefused) as refused:
        publish(api, detected(nvidia=cards(3)))
    assert f'the verb "{verb}" on nodefeatures.nfd.k8s-sigs.io' in str(refused.value)
    assert str(refused.value).startswith(f"{verb} nodefeatures.nfd.k8s-sigs.io {NAMESPACE}/{FEATURE}: forbidden")


def test_a_403_on_status_names_the_subresource() -> None:
    api = cluster()
    api.faults.append(lambda r: refusal(403, "Forbidden", "no") if r.path.endswith("/status") else None)
    with pytest.raises(PublishRefused, match=r"devices\.worker\.gpustack\.ai/status"):
        publish(api)


def test_a_kind_that_is_not_served_is_refused_by_name() -> None:
    api = cluster()
    api.unserved.add(NODE_FEATURE)
    with pytest.raises(PublishRefused, match=r"create nodefeatures\.nfd\.k8s-sigs\.io"):
        publish(api)


def test_an_unreachable_server_is_said_so() -> None:
    api = cluster()
    api.faults.append(lambda _r: Unreachable("connection refused"))
    with pytest.raises(Unreachable):
        publish(api)


def test_an_object_that_changes_all_the_time_is_left_to_the_next_pass() -> None:
    api = cluster()
    publish(api)
    api.faults.append(lambda r: refusal(409, "Conflict", "modified") if r.method == "PATCH" else None)
    with pytest.raises(PublishRefused, match="changed 5 times"):
        publish(api, detected(nvidia=cards(3)))


def test_an_object_that_vanishes_is_made_again() -> None:
    api = cluster()
    publish(api)

    def vanish(request: Request) -> Exception | None:
        if request.method == "PATCH":
            api.remove(NODE_FEATURE, FEATURE, NAMESPACE)
        return None

    api.faults.append(once(vanish, when=lambda r: r.method == "PATCH"))
    publish(api, detected(nvidia=cards(3)))
    assert api.get(NODE_FEATURE, FEATURE, NAMESPACE) is not None


def test_a_node_name_that_leaves_no_room_is_refused() -> None:
    publisher = Publisher(FakeApi().client(), VirtualClock(), namespace=NAMESPACE)
    with pytest.raises(PublishRefused, match="NodeFeature of node"):
        asyncio.run(publisher.publish("n" * 240, TWO))


def once(
    fault: Callable[[Request], Exception | None], when: Callable[[Request], bool] | None = None
) -> Callable[[Request], Exception | None]:
    """Return a fault that strikes the first time it applies."""
    struck: list[Request] = []

    def strike(request: Request) -> Exception | None:
        if struck or (when and not when(request)):
            return None
        error = fault(request)
        if error is not None or when:
            struck.append(request)
        return error

    return strike


def test_rbac_is_exactly_what_publishing_asks_for() -> None:
    asked: set[tuple[str, str]] = set()
    verbs = {"GET": "get", "POST": "create", "PATCH": "patch"}

    def note(request: Request) -> None:
        resource = next(plural for plural in ("nodefeatures", "devices", "nodes") if f"/{plural}" in request.path)
        asked.add((resource + ("/status" if request.path.endswith("/status") else ""), verbs[request.method]))

    api = cluster()
    api.faults.append(note)
    publish(api)
    publish(api, detected(nvidia=cards(3)))
    assert asked == {(rule.resource, verb) for rule in RBAC for verb in rule.verbs}
