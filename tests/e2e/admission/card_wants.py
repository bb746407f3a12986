"""What the Pods of the randomized run ask for, by chance from a seed.

For: the randomized run. In: a random generator, pools. Out: wants, and the Pods that people would write for them.
Promises: the same seed gives the same wants in the same order; Pods say what people say, never what a webhook adds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hack.controlplane.admin import Object

CARD_UNITS = 1_600_000
SHARE_UNITS = 160_000
LARGE = (5, 6, 7, 8)
_FAMILIES = {"exclusive": 36, "shared": 20, "percent": 12, "mib": 10, "partitioned": 14, "card-less": 8}


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool that Pods are queued in: its type, its manufacturer's base name, one card's MiB, its entrance."""

    name: str
    base: str = ""
    memory_mib: int = 0
    entrance: str = ""
    profiles: tuple[str, ...] = ()
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Want:
    """What one Pod wants of one node: `cards` distinct ones with `units` free on each, or one partition."""

    name: str
    pool: Pool
    family: str
    cards: int = 0
    units: int = 0
    profile: str = ""
    resources: tuple[tuple[str, str], ...] = field(default=())


def draw_wants(rng: random.Random, pools: list[Pool], count: int) -> list[Want]:
    """Return so many wants in random order: families by weight, the first pools more often than the last."""
    partitionable = [pool for pool in pools if pool.profiles]
    card_less = [pool for pool in pools if not pool.base]
    whole = [pool for pool in pools if pool.base]
    drawn = rng.choices(list(_FAMILIES), list(_FAMILIES.values()), k=count)
    wants = []
    for number, family in enumerate(drawn):
        among = {"partitioned": partitionable, "card-less": card_less}.get(family, whole)
        (pool,) = rng.choices(among, [len(one.nodes) for one in among])
        wants.append(_want(rng, f"pod-{number:03d}-{family}", pool, family))
    rng.shuffle(wants)
    return wants


def _want(rng: random.Random, name: str, pool: Pool, family: str) -> Want:
    base = pool.base
    if family == "exclusive":
        cards = rng.choice((1, 1, 1, 2, 2, 3, 4, 4, *LARGE))
        return Want(name, pool, family, cards, CARD_UNITS, resources=((base, str(cards)),))
    if family == "shared":
        cards = rng.randint(1, 3)
        return Want(name, pool, family, cards, SHARE_UNITS, resources=((f"{base}.shared", str(cards)),))
    if family == "percent":
        percent = rng.choice((5, 10, 25, 30, 50, 60, 100))
        asked: tuple[tuple[str, str], ...] = ((f"{base}.sliced.memory-percentage", str(percent)),)
        return Want(name, pool, family, 1, percent * CARD_UNITS // 100, resources=((f"{base}.sliced", "1"), *asked))
    if family == "mib":
        mib = rng.choice((1, 1024, 4096, 10_240, 24_576, 40_001, 65_536))
        asked = ((f"{base}.sliced.memory-mib", str(mib)),)
        units = mib * CARD_UNITS // pool.memory_mib
        return Want(name, pool, family, 1, units, resources=((f"{base}.sliced", "1"), *asked))
    if family == "partitioned":
        profile = rng.choice(pool.profiles)
        asked = ((f"{base}.partitioned.mig-{profile}", "1"),)
        return Want(name, pool, family, 1, profile=profile, resources=((f"{base}.partitioned", "1"), *asked))
    return Want(name, pool, family)


def pod_of(want: Want, namespace: str) -> Object:
    """Return the Pod, as a person writes it: a queue, and limits."""
    limits: dict[str, Any] = {"cpu": "1", "memory": "1Gi", **dict(want.resources)}
    container = {"name": "main", "image": "registry.example/train:1", "resources": {"limits": limits}}
    labels = {"kueue.x-k8s.io/queue-name": want.pool.entrance}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": want.name, "namespace": namespace, "labels": labels},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }
