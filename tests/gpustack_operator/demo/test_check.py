"""The demo's own judge notices what is wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from gpustack_operator.demo.check import expected_cards, findings
from gpustack_operator.demo.world import SERVED_TYPE, World
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, INSTANCE_TYPE, LOCAL_QUEUE, NODE, RESOURCE_FLAVOR, Kind
from tests.builders.queues import cluster_queue, group

Objects = dict[Kind, list[dict[str, Any]]]
MACHINES: dict[str, dict[str, Any]] = {
    "gpu": {"accelerators": [{"uuid": f"GPU-{n}"} for n in range(4)]},
    "cpu": {"accelerators": []},
}


def card(partitions: int = 0) -> dict[str, Any]:
    return {"status": {"physicalSliced": {"count": partitions} if partitions else {}}}


def node(name: str, cores: int) -> dict[str, Any]:
    labels = {"kubernetes.io/arch": "amd64", "gpustack.ai/managed": "true"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": {"cpu": str(cores)}}}


def pool(name: str, *, accelerated: bool, **views: str) -> dict[str, Any]:
    status = {"phase": "Active", **{view: {"capacity": count} for view, count in views.items()}}
    return {"metadata": {"name": name}, "spec": {"acceleratable": accelerated, "arch": "amd64"}, "status": status}


def right() -> Objects:
    """Return a world in which everything is as the machines say: 4 cards, one partitioned into 7, 24 cores."""
    groups = [{"accelerators": [card(), card(), card(), card(7)]}]
    queues = [cluster_queue(name, groups=[group("r", {"f": "1"})]) for name in ("cards", "cores")]
    types = [
        pool("cards", accelerated=True, accelerator="3", acceleratorPartitioned="7"),
        pool("cores", accelerated=False, cpu="24"),
    ]
    return {
        NODE: [node("gpu", 16), node("cpu", 8), node("somebody-elses", 99)],
        DEVICES: [
            {"metadata": {"name": "gpu"}, "spec": {"groups": groups}},
            {"metadata": {"name": "cpu"}, "spec": {"groups": None}},
        ],
        RESOURCE_FLAVOR: [],
        CLUSTER_QUEUE: queues,
        LOCAL_QUEUE: [{"spec": {"clusterQueue": name}} for name in ("cards", "cores")],
        INSTANCE_TYPE: types,
        SERVED_TYPE: types,
    }


def test_all_is_well() -> None:
    assert findings(MACHINES, World(right())) == []


def lost_card(world: Objects) -> None:
    world[DEVICES][0]["spec"]["groups"][0]["accelerators"].pop(0)


def lost_node(world: Objects) -> None:
    world[DEVICES].pop(1)
    world[DEVICES].pop(0)


def wrong_pool(world: Objects) -> None:
    world[INSTANCE_TYPE][0]["status"]["accelerator"] = {"capacity": "4"}


def wrong_partitions(world: Objects) -> None:
    world[INSTANCE_TYPE][0]["status"]["acceleratorPartitioned"] = None


def wrong_cores(world: Objects) -> None:
    world[INSTANCE_TYPE][1]["status"]["cpu"]["capacity"] = "16"


def held(world: Objects) -> None:
    world[INSTANCE_TYPE][0]["status"] |= {"phase": "Inactive", "phaseMessage": "the queue is stopped"}


def without_phase(world: Objects) -> None:
    del world[INSTANCE_TYPE][0]["status"]["phase"]


def without_queue(world: Objects) -> None:
    world[CLUSTER_QUEUE].pop(0)


def without_quota(world: Objects) -> None:
    world[CLUSTER_QUEUE][0]["spec"]["resourceGroups"] = []


def without_entrance(world: Objects) -> None:
    world[LOCAL_QUEUE].pop(0)


def nothing_at_all(world: Objects) -> None:
    for kind in world:
        world[kind].clear()


def not_served(world: Objects) -> None:
    world[SERVED_TYPE] = []


def served_in_part(world: Objects) -> None:
    world[SERVED_TYPE] = world[SERVED_TYPE][1:]


WRONG: dict[str, tuple[Callable[[Objects], None], list[str]]] = {
    "missing card": (
        lost_card,
        [
            "node gpu: 3 cards published, the machine has 4",
            "pools promise 3 whole cards, the ledgers have 2 unpartitioned ones",
        ],
    ),
    "missing Devices": (
        lost_node,
        [
            "node gpu: 0 cards published, the machine has 4",
            "pools promise 3 whole cards, the ledgers have 0 unpartitioned ones",
            "pools promise 7 partitions, the ledgers have room for 0",
        ],
    ),
    "wrong pool": (wrong_pool, ["pools promise 4 whole cards, the ledgers have 3 unpartitioned ones"]),
    "wrong partitions": (wrong_partitions, ["pools promise 0 partitions, the ledgers have room for 7"]),
    "wrong cores": (wrong_cores, ["CPU pools of amd64 promise 16 cores, the nodes have 24"]),
    "held type": (held, ["type cards is Inactive: the queue is stopped"]),
    "type without phase": (without_phase, ["type cards is without phase: no message"]),
    "no queue": (without_queue, ["type cards: its queue has no quota"]),
    "no quota": (without_quota, ["type cards: its queue has no quota"]),
    "no entrance": (without_entrance, ["type cards: no namespace has an entrance to its queue"]),
    "no aggregated API": (
        not_served,
        ["the aggregated API shows no type: kubectl get instancetypes would be empty"],
    ),
    "another list in the aggregated API": (
        served_in_part,
        ["type cards is not the same in the aggregated API and in the cluster"],
    ),
    "nothing at all": (
        nothing_at_all,
        ["node gpu: 0 cards published, the machine has 4", "there is no InstanceType"],
    ),
}


@pytest.mark.parametrize("row", WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_said(row: tuple[Callable[[Objects], None], list[str]]) -> None:
    spoil, want = row
    world = copy.deepcopy(right())
    spoil(world)
    assert findings(MACHINES, World(world)) == want


CARDS: dict[str, tuple[Any, int]] = {
    "none": ({}, 0),
    "null": ({"accelerators": None}, 0),
    "told apart": ({"accelerators": [{"uuid": "a"}, {"uuid": "b"}]}, 2),
    "two with one id cannot be told apart": ({"accelerators": [{"uuid": "a"}, {"uuid": "a"}, {"uuid": "b"}]}, 1),
    "without id": ({"accelerators": [{"uuid": ""}, {"uuid": None}, {}]}, 0),
}


@pytest.mark.parametrize("row", CARDS.values(), ids=CARDS.keys())
def test_expected_cards(row: tuple[Any, int]) -> None:
    assert expected_cards(row[0]) == row[1]
