"""The fit pin of Workloads: spec 05 §4.2, spec 01 §9.4, design §8.10."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from api.settings import DEFAULTS
from apiserver.webhooks import workload as webhook
from apiserver.webhooks.review import ALLOWED, Answer
from tests.builders.admission import GROUP, QUEUE, DictWorld, patched, pool, question

GPU = "nvidia.com/gpu"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SLICED, SHARED = f"sliced-max-free-units.fit.gpustack.ai/{GROUP}", f"shared-free-cards.fit.gpustack.ai/{GROUP}"
EXCLUSIVE = f"exclusive-free-cards.fit.gpustack.ai/{GROUP}"
COUNT = {"key": "count", "operator": "Gt", "values": ["1"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
CPU: dict[str, str] = {"cpu": "1"}


def above(label: str, bound: int) -> dict[str, Any]:
    return {"key": label, "operator": "Gt", "values": [str(bound)]}


def sliced(units: int) -> dict[str, str]:
    return {f"{GPU}.sliced": "1", f"{GPU}.sliced.units": str(units)}


def workload(*pod_sets: dict[str, str], terms: Any = None, queue: str = QUEUE, **status: Any) -> Any:
    sets = [
        {
            "name": f"s{n}",
            "count": 3,
            "template": {"metadata": {"x": 1}, "spec": {"containers": [{"resources": {"limits": asks}}]}},
        }
        for n, asks in enumerate(pod_sets)
    ]
    if terms is not None:
        selector = {"nodeSelectorTerms": [{"matchExpressions": t} if t else {} for t in terms]}
        sets[0]["template"]["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: selector}, "podAffinity": {"y": 2}}  # type: ignore[index] # a literal
    return {
        "metadata": {"name": "w", "namespace": "team-a"},
        "spec": {"queueName": queue, "podSets": sets},
        "status": status,
    }


def world(**fields: Any) -> DictWorld:
    return DictWorld(pool("p"), queues={QUEUE: "p"}, **fields)


def mutate(obj: Any, old: Any = None, within: DictWorld | None = None) -> Answer:
    return asyncio.run(webhook.mutate(question(obj, old), within or world()))


def required(obj: Any, answer: Answer) -> list[Any]:
    found = []
    for pod_set in patched(obj, answer.patch)["spec"]["podSets"]:
        selector = pod_set["template"]["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
        terms = selector["nodeSelectorTerms"] if selector is not None else None
        found.append(terms and [term.get("matchExpressions") for term in terms])
    return found


@pytest.mark.parametrize(
    ("asks", "terms", "want"),
    [
        ([sliced(800_000)], None, [[[above(SLICED, 799_999)]]]),
        ([{f"{GPU}.shared": "2"}], None, [[[above(SHARED, 1)]]]),
        ([{f"{GPU}.shared": "1"}], None, [[[above(SHARED, 0)]]]),
        ([{GPU: "2"}], None, [[[above(EXCLUSIVE, 1)]]]),
        ([{f"{GPU}.partitioned": "1", f"{GPU}.partitioned.mig-1g.10gb": "1"}], None, [None]),
        ([CPU], None, [None]),
        ([sliced(800_000), CPU, sliced(480_000)], None, [[[above(SLICED, 799_999)]], None, [[above(SLICED, 479_999)]]]),
        ([{f"{GPU}.shared": "2"}], [[COUNT], [ZONE]], [[[COUNT, above(SHARED, 1)], [ZONE, above(SHARED, 1)]]]),
        ([sliced(800_000)], [[above(SLICED, 999_999)]], [[[above(SLICED, 999_999), above(SLICED, 799_999)]]]),
        ([sliced(800_000)], [], [[]]),
        ([sliced(800_000)], [[], [ZONE]], [[None, [ZONE, above(SLICED, 799_999)]]]),
    ],
    ids=[
        "slice 800000",
        "shared 2",
        "shared 1: pinned too",
        "exclusive 2: pinned too",
        "partition",
        "cpu only",
        "PodSets prefill 800000, router cpu, decode 480000",
        "shared 2 with existing terms",
        "slice 800000 with existing sliced Gt 999999",
        "required selector with no terms",
        "terms {} and {zone In a}",
    ],
)
def test_pins(asks: Any, terms: Any, want: Any) -> None:
    obj = workload(*asks, terms=terms)
    answer = mutate(obj)
    assert required(obj, answer) == want
    for operation in answer.patch:
        assert operation.path[:2] + operation.path[3:] == ("spec", "podSets", "template", "spec", "affinity")
    again = patched(obj, answer.patch)
    assert mutate(again).patch == (), "a second time changes nothing"
    if terms:
        assert again["spec"]["podSets"][0]["template"]["spec"]["affinity"]["podAffinity"] == {"y": 2}


UNCHANGED: dict[str, tuple[str, DictWorld]] = {
    "queue research": ("research", world()),
    "no LocalQueue": (QUEUE, DictWorld(pool("p"))),
    "unmarked ClusterQueue": (QUEUE, DictWorld(pool("p"), queues={QUEUE: ""})),
    "no InstanceType": (QUEUE, DictWorld(queues={QUEUE: "p"})),
    "no group": (QUEUE, DictWorld(pool("p", group=""), queues={QUEUE: "p"})),
    "group Bad/Group": (QUEUE, DictWorld(pool("p", group="Bad/Group"), queues={QUEUE: "p"})),
    "read error": (QUEUE, world(down=True)),
    "setting false": (QUEUE, world(settings=replace(DEFAULTS, workload_fit_affinity=False))),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_unchanged(name: str) -> None:
    queue, within = UNCHANGED[name]
    assert mutate(workload(sliced(800_000), queue=queue), within=within) == ALLOWED


def test_a_local_queue_that_a_tenant_led_elsewhere_is_pinned_to_where_it_leads() -> None:
    within = DictWorld(pool("p"), pool("other", group="nvidia-a10g", entrance="x"), queues={QUEUE: "other"})
    answer = mutate(workload({GPU: "1"}), within=within)
    assert "exclusive-free-cards.fit.gpustack.ai/nvidia-a10g" in str(answer.patch)


@pytest.mark.parametrize(
    ("status", "pinned"),
    [
        ({}, True),
        ({"conditions": [{"type": "QuotaReserved", "status": "False"}]}, True),
        ({"conditions": [{"type": "QuotaReserved", "status": "True"}]}, False),
        ({"admission": {"clusterQueue": "p"}}, False),
    ],
    ids=["unreserved", "given back", "reserved", "admitted"],
)
def test_updates_are_pinned_until_quota_is_reserved(status: Any, pinned: bool) -> None:
    obj = workload(sliced(800_000))
    assert bool(mutate(obj, workload(sliced(800_000), **status)).patch) is pinned


@pytest.mark.parametrize(
    "spec", [None, {}, {"queueName": QUEUE}, {"queueName": QUEUE, "podSets": [None, 7, {}]}], ids=str
)
def test_b019_nulls(spec: Any) -> None:
    assert mutate({"metadata": {"name": "w"}, "spec": spec, "status": None}) == ALLOWED
