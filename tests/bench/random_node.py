"""A node's life by chance: Pods of all families come, end and go; kubelet and agent restart and are killed.

For: the randomized test and `make bench-agent`. In: a seed, a number of steps. Out: figures; AssertionError when a
promise is broken: never a card in two modes, never more than its units, never two partitions overlapping, the published
ledger equal to an oracle's, nothing left at the end.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from api.ledger.modes import CARD_UNITS
from api.ledger.placements import Placement, overlaps
from nodefeature.fields import annotations_of, as_maps, at, uid_of
from nodefeature.kinds import DEVICES, POD
from tests.builders.agent_cards import carved, hygon, sliceable
from tests.builders.agent_world import NODE_NAME, AgentWorld, claiming, partition, pod

STEPS = ("before bind", "after bind", "before record", "after record", "before inject", "after inject")
PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
_MOST_PODS = 24


class RandomNode:
    """One run."""

    def __init__(self, world: AgentWorld, rng: random.Random) -> None:
        self.world = world
        self.figures: Counter[str] = Counter()
        self._rng = rng
        self._serial = 0
        self._alive: dict[str, str] = {}
        """Pod name -> uid, of Pods that are there."""

    async def run(self, allocations: int) -> Counter[str]:
        """Live until so many allocations were asked for, then empty the node; return the figures."""
        while self.figures["asked"] < allocations:
            await self._step()
            await self._check()
        for name in list(self._alive):
            self._delete(name)
        await self.world.settled()
        self._check_empty()
        return self.figures

    async def _step(self) -> None:
        roll = self._rng.random()
        if roll < 0.55 and len(self._alive) < _MOST_PODS:
            await self._create()
        elif roll < 0.75 and self._alive:
            self._delete(self._rng.choice(sorted(self._alive)))
        elif roll < 0.93 and self._alive:
            await self._end()
        elif roll < 0.96:
            await self._restart_kubelet()
        elif roll < 0.98:
            await self._restart_agent()
        else:
            await self._flip_health()

    async def _create(self) -> None:
        self._serial += 1
        name = f"p{self._serial}"
        raw = pod(name, *self._containers(), age=self._serial % 80000)
        self.figures["asked"] += 1
        self._alive[name] = uid_of(raw)
        if self._rng.random() < 0.05:
            await self._create_and_kill(raw)
            return
        phase = await self.world.run_pod(raw)
        self.figures[phase] += 1
        if phase == "Failed":
            self._check_refusal(self.world.kubelet.reasons[uid_of(raw)])

    async def _create_and_kill(self, raw: dict[str, Any]) -> None:
        self.world.stuck.clear()
        self.world.kill_at = self._rng.choice(STEPS)
        admission = asyncio.create_task(self.world.run_pod(raw))
        stuck = asyncio.create_task(self.world.stuck.wait())
        await asyncio.wait({admission, stuck}, return_when=asyncio.FIRST_COMPLETED)
        self.world.kill_at = ""
        if stuck.done():
            self.figures["killed under an allocation"] += 1
            await self.world.kill_agent()
        stuck.cancel()
        self.figures[await admission] += 1
        if self.world.agent is None:
            await self.world.start_agent()

    def _containers(self) -> list[dict[str, Any]]:
        roll, maker = self._rng.random(), self._rng.choice(("nvidia", "nvidia", "hygon"))
        if roll < 0.2:
            cards = self._rng.randint(1, 3)
            side = [claiming("ssh", maker, visibility=cards)] if self._rng.random() < 0.3 else []
            return [claiming("main", maker, exclusive=cards), *side]
        if roll < 0.45:
            return [claiming("main", maker, shared=self._rng.randint(1, 2))]
        if roll < 0.75:
            units = self._rng.choice((16_000, 160_000, 400_000, 533_333, 800_000, CARD_UNITS))
            return [claiming("main", maker, sliced=self._rng.randint(1, 2), sliced_units=units)]
        return [partition(self._rng.choice(PROFILES))]

    def _check_refusal(self, reason: str) -> None:
        """A refusal must be one of those a full node gives; identity trouble or a fault of ours is none."""
        words = refusal_word(reason)
        assert words, reason
        self.figures[f"refused: {words}"] += 1

    async def _end(self) -> None:
        name = self._rng.choice(sorted(self._alive))
        uid = self._alive[name]
        if self.world.kubelet.phases.get(uid) == "Running":
            self.figures["ended"] += 1
            await self.world.kubelet.end(uid, self._rng.choice(("Succeeded", "Failed")))
        self._delete(name)

    def _delete(self, name: str) -> None:
        self.figures["deleted"] += 1
        del self._alive[name]
        self.world.delete_pod(name)

    async def _restart_kubelet(self) -> None:
        self.figures["kubelet restarts"] += 1
        await self.world.kubelet.restart()
        await self.world.until(lambda: self.world.agent is not None and self.world.agent.ready())

    async def _restart_agent(self) -> None:
        self.figures["agent kills"] += 1
        await self.world.kill_agent()
        await self.world.start_agent()

    async def _flip_health(self) -> None:
        self.figures["health flips"] += 1
        devices = self.world.api.get(DEVICES, NODE_NAME) or {}
        groups = json.loads(json.dumps(at(devices, "spec", "groups")))
        for group in groups:
            for card in group["accelerators"]:
                card["status"]["unhealthy"] = self._rng.random() < 0.1
        self.world.api.edit(DEVICES, NODE_NAME, {"spec": {"groups": groups}})

    async def _check(self) -> None:
        await self.world.settled()
        assert_sound(held_rows(self.world.api.store[POD].values()), self.world.rows())
        assert "LedgerTrusted" not in self.world.conditions()
        self._check_kubelet()

    def _check_kubelet(self) -> None:
        """What the kubelet gave out is what the Pod's record says, token by token."""
        pods = {uid_of(stored): stored for stored in self.world.api.store[POD].values()}
        for (uid, container, resource), ids in self.world.kubelet.devices.given.items():
            if resource.endswith(".visibility"):
                continue
            text = annotations_of(pods[uid]).get("device.gpustack.ai/accelerator.allocated", "{}")
            assert tuple(sorted(json.loads(text)[container]["deviceIDs"])) == ids, (uid, resource, ids)

    def _check_empty(self) -> None:
        assert self.world.agent is not None
        assert {row["mode"] for row in self.world.rows().values()} == {0}
        assert {row["remaining"] for row in self.world.rows().values()} == {CARD_UNITS}
        assert all(not as_maps(row.get("allocatedProfiles")) for row in self.world.rows().values())
        assert self.world.hardware.live == {}
        assert self.world.kubelet.devices.given == {}
        assert len(self.world.agent.ledger.reservations) == 0


_REFUSALS = {
    "Available:": "full by count",
    "no healthy devices": "full by count",
    "units free": "no room on the card",
    "already hosts": "no slice left",
    "is held in": "other mode",
    "distinct cards": "same card twice",
    "can host": "no place for the partition",
    "no free placement": "no place for the partition",
}


def refusal_word(reason: str) -> str:
    """Return why a node that works refuses a container; empty for what must not happen."""
    return next((word for text, word in _REFUSALS.items() if text in reason), "")


def held_rows(pods: Iterable[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return what Pods' records say, by the rules of release: an oracle of its own."""
    held = []
    for stored in pods:
        text = annotations_of(stored).get("device.gpustack.ai/accelerator.allocated")
        ended = at(stored, "status", "phase") in ("Succeeded", "Failed")
        for entry in (json.loads(text) if text else {}).values():
            for group in entry["devices"]["groups"]:
                held += [(uid_of(stored), row) for row in group["accelerators"] if not ended or row["mode"] == 4]
    return held


def assert_sound(held: Iterable[tuple[str, Mapping[str, Any]]], rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Hold records against the promises, and a published ledger against the records."""
    modes: defaultdict[str, set[int]] = defaultdict(set)
    units: Counter[str] = Counter()
    placed: defaultdict[str, list[Placement]] = defaultdict(list)
    for uid, row in held:
        modes[row["id"]].add(row["mode"])
        units[row["id"]] += row["allocated"]
        for place in row.get("allocatedPhysicalPlacements", []):
            new = Placement(place["start"], place["length"])
            assert not any(overlaps(new, old) for old in placed[row["id"]]), (uid, row, placed)
            placed[row["id"]].append(new)
    assert all(len(found) == 1 for found in modes.values()), modes
    assert all(total <= CARD_UNITS for total in units.values()), units
    for card, row in rows.items():
        assert {row["mode"]} == (modes.get(card) or {0}), (card, row, modes[card])
        assert row.get("remaining", 0) == CARD_UNITS - units[card], (card, row, units[card])


def node_groups() -> list[dict[str, Any]]:
    """Return cards of all families and two manufacturers."""
    return sliceable(4, slices=8) + carved(3) + hygon(2)
