"""The loop of a node's agent: look, judge, publish what changed (spec 06 §2.4).

For: `device-manager serve`; the fleet form for the demo and benches, many recorded nodes in one process.
In: a detector, a publisher, a clock. Out: the node's NodeFeature and Devices follow its cards.
Promises:
  - a pass that hears what the last one heard costs nothing and writes nothing;
  - what could not be published is tried again, more and more slowly, until it is; then it is written once;
  - until any manufacturer has answered nothing is published, and `unready` says why;
  - objects that somebody else touched are compared again when `look_again` says so, and never by the clock;
  - a change and a trouble are logged once, when they begin.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from devicemanager.answers import Detector
from devicemanager.detection import NOTHING_YET, Detection, DetectionOptions, Look, look, next_detection, unready_reason
from devicemanager.publisher.node_feature import PART_OF, PART_OF_VALUE, SUFFIX
from devicemanager.publisher.publish import Known, Publisher
from kube.client import Client
from kube.clock import Clock
from kube.errors import OperatorError, Terminal
from kube.reconciler import Object
from nodefeature.fields import name_of
from nodefeature.kinds import DEVICES, NODE, NODE_FEATURE

log = logging.getLogger(__name__)

NODE_NAME_VARIABLE = "KUBERNETES_NODE_NAME"


class NodeNameMissing(Terminal):
    """The agent was not told which node it speaks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """How an agent works. Periods in seconds."""

    detection: DetectionOptions
    period_s: float = 15.0
    # Failed publishing is repeated after `period_s`, then twice as long, up to this.
    slowest_retry_s: float = 120.0
    no_fast_failed: bool = False
    # In the fleet form: nodes published at the same time.
    concurrency: int = 16


class Agent:
    """One node's loop."""

    def __init__(
        self,
        node_name: str,
        detector: Detector,
        publisher: Publisher,
        clock: Clock,
        options: AgentOptions,
        *,
        rng: random.Random | None = None,
    ) -> None:
        if not node_name:
            raise NodeNameMissing(f"environment variable {NODE_NAME_VARIABLE} is not set")
        self.node_name = node_name
        self.detection: Detection = NOTHING_YET
        self.trouble = ""
        self.writes = 0
        self._detector = detector
        self._publisher = publisher
        self._clock = clock
        self._options = options
        self._rng = rng or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._seen: Look | None = None
        self._published: Detection | None = None
        self._due = clock.now()
        self._reread: Callable[[], Known | None] | None = None
        self._failures = 0

    @property
    def unready(self) -> str:
        """Say why this agent is not ready; empty when it is."""
        return self.trouble or unready_reason(self.detection)

    def look_again(self, read: Callable[[], Known | None]) -> None:
        """Compare the node's objects with its cards at the next pass; `read` returns them from a cache."""
        self._due, self._reread = self._clock.now(), read

    async def run(self) -> None:
        """Look and publish until cancelled."""
        while True:
            await self.guarded_step()
            await self._clock.sleep(self._options.period_s)

    async def guarded_step(self, known: Known | None = None) -> None:
        """Run one pass; what nobody foresaw ends this pass alone."""
        try:
            await self.step(known)
        except Exception:  # the loop must outlive a defect in one pass; it is logged with its trace
            log.exception("detection pass failed", extra={"node": self.node_name})
            self._failed("the pass failed; see the log", self._clock.now())

    async def step(self, known: Known | None = None) -> None:
        """Run one pass. `known` spares the first reads."""
        self._judge(await look(self._detector, self._options.detection.manufacturers))
        if unready_reason(self.detection):
            return
        now = self._clock.now()
        changed = self.detection != self._published
        if now < self._due and (self._failures or not changed):
            return
        reread, self._reread = self._reread, None
        try:
            done = await self._publisher.publish(
                self.node_name,
                self.detection,
                create_empty=self._options.no_fast_failed,
                known=known or (reread() if reread else None),
            )
        except OperatorError as refused:
            self._failed(str(refused), now)
            return
        self.writes += done.writes
        if done.skipped:
            self._failed(done.skipped, now)
            return
        self._say_trouble("")
        self._failures = 0
        self._published = self.detection
        # From here on only cards that changed or objects that were touched ask for another look.
        self._due = self._clock.now() if self._reread else math.inf

    def _judge(self, seen: Look) -> None:
        if seen == self._seen:
            return
        self._seen = seen
        before, self.detection = self.detection, next_detection(self.detection, seen, self._options.detection)
        _log_changes(self.node_name, before, self.detection)

    def _failed(self, reason: str, now: float) -> None:
        self._say_trouble(reason)
        pause = min(self._options.period_s * 2**self._failures, self._options.slowest_retry_s)
        self._failures = min(self._failures + 1, 16)
        self._due = now + pause * self._rng.uniform(0.8, 1.0)

    def _say_trouble(self, reason: str) -> None:
        if reason and reason != self.trouble:
            log.warning("cards not published", extra={"node": self.node_name, "reason": reason})
        elif self.trouble and not reason:
            log.info("cards published again", extra={"node": self.node_name})
        self.trouble = reason


class FleetAgent:
    """Agents of many nodes in one process: one client, bounded concurrency, first reads in bulk."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        detectors: Mapping[str, Detector],
        options: AgentOptions,
        *,
        namespace: str,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._options = options
        publisher = Publisher(client, clock, namespace=namespace)
        self.agents = [
            Agent(node, detector, publisher, clock, options, rng=rng) for node, detector in detectors.items()
        ]

    @property
    def waiting(self) -> list[str]:
        """Return the nodes whose cards are not published yet."""
        return [agent.node_name for agent in self.agents if agent.unready]

    @property
    def writes(self) -> int:
        """Return the writes of all agents so far."""
        return sum(agent.writes for agent in self.agents)

    async def run(self) -> None:
        """Run all agents' passes until cancelled."""
        known = await self._read_all()
        while True:
            await self.pass_over(known)
            known = {}
            await self._clock.sleep(self._options.period_s)

    async def pass_over(self, known: Mapping[str, Known] | None = None) -> None:
        """Run one pass of every agent."""
        agents = iter(self.agents)

        async def work() -> None:
            for agent in agents:  # shared by all workers: each takes the next one
                await agent.guarded_step((known or {}).get(agent.node_name))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._options.concurrency, len(self.agents))):
                group.create_task(work())

    async def _read_all(self) -> dict[str, Known]:
        """Read what is there in three lists; an unreadable API server leaves the reading to each agent."""
        selector = f"{PART_OF}={PART_OF_VALUE}"
        try:
            nodes = await self._client.list(NODE)
            features = await self._client.list(NODE_FEATURE, self._namespace, label_selector=selector)
            devices = await self._client.list(DEVICES)
        except OperatorError as refused:
            log.warning("objects not read in bulk", extra={"reason": str(refused)})
            return {}
        feature_of: dict[str, Object] = {name_of(obj): obj for obj in features}
        devices_of: dict[str, Object] = {name_of(obj): obj for obj in devices}
        return {
            name_of(node): Known(node, feature_of.get(name_of(node) + SUFFIX), devices_of.get(name_of(node)))
            for node in nodes
        }


def _log_changes(node: str, before: Detection, after: Detection) -> None:
    for maker in sorted({*before.groups, *after.groups}):
        had, has = before.groups.get(maker, ()), after.groups.get(maker, ())
        if had != has:
            cards = {group["id"]: len(group["accelerators"]) for group in has}
            log.info("cards detected", extra={"node": node, "manufacturer": maker, "cards": cards})
    for maker, trouble in sorted(after.troubles.items()):
        if maker not in before.troubles:
            log.warning("cards not measured", extra={"node": node, "manufacturer": maker, "reason": trouble})
    for finding in _new(before.findings, after.findings):
        log.warning("card left out or repaired", extra={"node": node, "reason": finding})
    for note in _new(before.notes, after.notes):
        log.info("partition profile left out", extra={"node": node, "reason": note})


def _new(before: Mapping[str, tuple[str, ...]], after: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [text for maker in sorted(after) for text in after[maker] if text not in before.get(maker, ())]
