"""Holds the demo's result against the recordings, by counting that shares no code with the chain.

For: `run.py`. In: the machines that were started and the world that came out. Out: findings, each a sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gpustack_operator.demo.world import SERVED_TYPE, World
from nodefeature.fields import as_int, as_map, as_maps, as_str, at, name_of
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, INSTANCE_TYPE, LOCAL_QUEUE, NODE

Machine = Mapping[str, Any]


def findings(machines: Mapping[str, Machine], world: World) -> list[str]:
    """Return everything that is not as the machines say; empty when all is well."""
    return [
        *_cards_missing(machines, world),
        *_pools_wrong(world),
        *_cpus_wrong(machines, world),
        *_queues_wrong(world),
        *_not_served(world),
    ]


def expected_cards(machine: Machine) -> int:
    """Return how many cards of a machine can be told apart and still answer."""
    cards = as_maps(machine.get("accelerators"))
    uuids = Counter(as_str(card.get("uuid")) for card in cards)
    return sum(1 for uuid, count in uuids.items() if uuid and count == 1)


def _cards_missing(machines: Mapping[str, Machine], world: World) -> list[str]:
    published = {
        name_of(obj): sum(len(as_maps(group.get("accelerators"))) for group in as_maps(at(obj, "spec", "groups")))
        for obj in world[DEVICES]
    }
    return [
        f"node {node}: {published.get(node, 0)} cards published, the machine has {expected_cards(machine)}"
        for node, machine in machines.items()
        if published.get(node, 0) != expected_cards(machine)
    ]


def _pools_wrong(world: World) -> list[str]:
    whole, ceilings = 0, 0
    for obj in world[DEVICES]:
        for group in as_maps(at(obj, "spec", "groups")):
            for card in as_maps(group.get("accelerators")):
                ceiling = as_int(at(card, "status", "physicalSliced", "count"))
                ceilings += ceiling
                whole += ceiling == 0
    types = world[INSTANCE_TYPE]
    promised = sum(_capacity(obj, "accelerator") for obj in types)
    instances = sum(_capacity(obj, "acceleratorPartitioned") for obj in types)
    wrong = []
    if promised != whole:
        wrong.append(f"pools promise {promised} whole cards, the ledgers have {whole} unpartitioned ones")
    if instances != ceilings:
        wrong.append(f"pools promise {instances} partitions, the ledgers have room for {ceilings}")
    return wrong


def _cpus_wrong(machines: Mapping[str, Machine], world: World) -> list[str]:
    cores: Counter[str] = Counter()
    for node in world[NODE]:
        if name_of(node) in machines:
            cores[as_str(at(node, "metadata", "labels", "kubernetes.io/arch"))] += int(
                as_str(at(node, "status", "capacity", "cpu")) or 0
            )
    promised: Counter[str] = Counter()
    for obj in world[INSTANCE_TYPE]:
        if at(obj, "spec", "acceleratable") is False:
            promised[as_str(at(obj, "spec", "arch"))] += _capacity(obj, "cpu")
    return [
        f"CPU pools of {arch} promise {promised[arch]} cores, the nodes have {cores[arch]}"
        for arch in sorted(cores | promised)
        if promised[arch] != cores[arch]
    ]


def _queues_wrong(world: World) -> list[str]:
    queues = {name_of(obj): obj for obj in world[CLUSTER_QUEUE]}
    entrances = {as_str(at(obj, "spec", "clusterQueue")) for obj in world[LOCAL_QUEUE]}
    wrong = []
    for obj in world[INSTANCE_TYPE]:
        name, phase = name_of(obj), at(obj, "status", "phase")
        if phase != "Active":
            wrong.append(
                f"type {name} is {phase or 'without phase'}: {at(obj, 'status', 'phaseMessage') or 'no message'}"
            )
        if name not in queues or not as_maps(at(queues[name], "spec", "resourceGroups")):
            wrong.append(f"type {name}: its queue has no quota")
        if name not in entrances:
            wrong.append(f"type {name}: no namespace has an entrance to its queue")
    return wrong if world[INSTANCE_TYPE] else ["there is no InstanceType"]


def _not_served(world: World) -> list[str]:
    stored, shown = {name_of(obj) for obj in world[INSTANCE_TYPE]}, {name_of(obj) for obj in world[SERVED_TYPE]}
    if stored and not shown:
        return ["the aggregated API shows no type: kubectl get instancetypes would be empty"]
    return [f"type {name} is not the same in the aggregated API and in the cluster" for name in sorted(stored ^ shown)]


def _capacity(obj: Mapping[str, Any], view: str) -> int:
    text = as_str(as_map(at(obj, "status", view)).get("capacity"))
    return int(text) if text.isdecimal() else 0
