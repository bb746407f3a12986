"""Allocate, from the kubelet's call to its answer (spec 06 §7).

For: the plugins of all modes and manufacturers of a node. In: ids. Out: what the container runtime is told.
The steps, and what a crash after each of them leaves behind:
  1. decided and reserved, under the node's lock  -> nothing: memory is gone, the kubelet hears an error, the Pod fails;
  2. partitions bound on the hardware            -> a marker naming the Pod: bound again, or reclaimed once it is dead;
  3. recorded on the Pod                         -> a charge that ends with the failed Pod, or serves its next call;
  4. made real (files, device instances)         -> work directories of the Pod, which go with it;
  5. answered.
Promises:
  - an answer is given only for what is recorded; a refusal leaves neither reservation nor record, and where the API
    server cannot be reached the withdrawal is repeated until it lands or the Pod is gone;
  - the same container asked for again with the same ids gets the same cards and writes nothing;
  - a call that the kubelet gave up is still brought to its end, never left half done;
  - the lock is never held while the API server or the hardware is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from api.ledger.modes import Mode
from api.ledger.placements import Placement
from api.ledger.rebuild import CardKey
from api.ledger.transport import Record
from api.pod_requests import Claim
from devicemanager.kubelet.decision import Ask, Situation, decide, inventory, read_ask
from devicemanager.kubelet.grant import (
    Grant,
    GrantedCard,
    Injection,
    InjectionRefused,
    Injector,
    Partition,
    PartitionRefused,
    PartitionRequest,
    Partitions,
)
from devicemanager.kubelet.identification import Waiting, claim_of, identify
from devicemanager.kubelet.recording import PodGone, Recorder
from devicemanager.kubelet.refusal import Code, Refused, Unclear, precondition
from devicemanager.ledger.accounts import ContainerKey, Entry
from devicemanager.ledger.kubelet_word import Kubelet, KubeletWord
from devicemanager.ledger.node_ledger import NodeLedger, Snapshot
from devicemanager.tokens import FAMILY_OF
from kube.client import Client
from kube.clock import Clock
from kube.errors import NotFound, OperatorError
from kube.reconciler import Object
from nodefeature.fields import as_str, at, name_of, namespace_of, uid_of
from nodefeature.kinds import POD
from nodefeature.resource_names import resource_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorOptions:
    """How an allocator behaves. Times in seconds."""

    # A call that cannot be told apart, or whose Pod is not seen yet, is looked at again this often and this long.
    again_s: float = 0.25
    again_times: int = 8
    give_back_s: float = 1.0
    slowest_give_back_s: float = 60.0
    sliced_gate: bool = True


@dataclass(frozen=True, slots=True)
class _Decided:
    """A decision that is reserved."""

    ask: Ask
    waiting: Waiting
    claim: Claim
    entry: Entry
    before: Entry | None
    groups: Sequence[Mapping[str, Any]]

    @property
    def key(self) -> ContainerKey:
        return uid_of(self.waiting.pod), self.waiting.name


@dataclass(frozen=True, slots=True)
class _Bound:
    request: PartitionRequest
    partition: Partition


class Allocator:
    """Serves Allocate for every plugin of one node."""

    def __init__(
        self,
        ledger: NodeLedger,
        client: Client,
        clock: Clock,
        *,
        kubelet: Kubelet,
        injector: Injector,
        partitions: Partitions,
        options: AllocatorOptions | None = None,
    ) -> None:
        self._ledger = ledger
        self._client = client
        self._clock = clock
        self._kubelet = kubelet
        self._injector = injector
        self._partitions = partitions
        self._options = options or AllocatorOptions()
        self._recorder = Recorder(ledger, client)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def allocate(self, manufacturer: str, mode: Mode, ids: Sequence[str]) -> Injection:
        """Serve one container; `Refused` when it gets nothing."""
        task = asyncio.create_task(self._allocate(manufacturer, mode, ids), name=f"allocate {manufacturer} {mode.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def waiting(self, manufacturer: str, mode: Mode, count: int) -> Waiting:
        """Return the container that a call for `count` devices would serve now; `Refused` when it cannot be told."""
        for left in range(self._options.again_times, -1, -1):
            word = await self._kubelet.word()
            fresh = await self._unseen(word)
            try:
                return self._identify(manufacturer, mode, count, word=word, fresh=fresh)
            except Unclear:
                if not left:
                    raise
            await self._clock.sleep(self._options.again_s)
        raise AssertionError("the last look raises")

    async def close(self) -> None:
        """End what is under way; for the end of the process."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _allocate(self, manufacturer: str, mode: Mode, ids: Sequence[str]) -> Injection:
        decided = await self._decide(manufacturer, mode, ids)
        try:
            bound, decided = await self._bind(decided)
        except PartitionRefused as refused:
            self._ledger.reserve(decided.waiting.pod, decided.waiting.name, decided.before)  # never recorded
            code = Code.RESOURCE_EXHAUSTED if refused.full else Code.INTERNAL
            raise Refused(code, f"{decided.waiting.where}: {refused}") from refused
        except Exception:
            self._ledger.reserve(decided.waiting.pod, decided.waiting.name, decided.before)
            raise
        try:
            await self._recorder.record(decided.waiting.pod)
            injection = await self._injector.inject(_grant(decided, bound))
        except Exception as failed:  # also what nobody foresaw: the kubelet hears of no cards, so none are held
            await self._unbind(bound)
            self._withdraw(decided)
            if isinstance(failed, OperatorError):
                raise _refusal(decided, failed) from failed
            raise
        extra = {
            "object": f"{namespace_of(decided.waiting.pod)}/{name_of(decided.waiting.pod)}",
            "card": decided.ask.ids,
        }
        log.info("cards allocated", extra=extra)
        return injection

    async def _decide(self, manufacturer: str, mode: Mode, ids: Sequence[str]) -> _Decided:
        """Decide and reserve; what cannot be told yet is looked at again for a while."""
        for left in range(self._options.again_times, -1, -1):
            word = await self._kubelet.word()
            fresh = await self._unseen(word)
            async with self._ledger.lock:
                try:
                    return self._decide_now(manufacturer, mode, ids, word=word, fresh=fresh)
                except Refused as refused:
                    if not left or not self._may_pass(refused, word, fresh):
                        raise
            await self._clock.sleep(self._options.again_s)
        raise AssertionError("the last look raises")

    def _decide_now(
        self,
        manufacturer: str,
        mode: Mode,
        ids: Sequence[str],
        *,
        word: KubeletWord | None,
        fresh: Sequence[Object],
    ) -> _Decided:
        groups = self._ledger.groups()
        ask = read_ask(manufacturer, mode, ids, groups)
        waiting = self._identify(manufacturer, mode, len(ask.tokens), word=word, fresh=fresh)
        claim = claim_of(waiting, self._ledger.account(waiting.pod).claims, manufacturer, FAMILY_OF[mode])
        before = self._ledger.entries(waiting.pod).get(waiting.name)
        ledger = self._ledger.snapshot(word, without=(uid_of(waiting.pod), waiting.name), more=fresh)
        situation = Situation(
            groups,
            ledger.cards,
            _windows(ledger, (uid_of(waiting.pod), waiting.name)),
            prior=before.records if before else (),
            gate=self._options.sliced_gate,
        )
        try:
            records = decide(ask, waiting, claim, situation, self._injector)
        except InjectionRefused as refused:
            raise precondition(f"{waiting.where}: {refused}") from refused
        entry = Entry.of(_kept_identity(records, before), ask.ids)
        self._ledger.reserve(waiting.pod, waiting.name, entry)
        return _Decided(ask, waiting, claim, entry, before, groups)

    def _may_pass(self, refused: Refused, word: KubeletWord | None, fresh: Sequence[Object]) -> bool:
        """Say whether looking again may help: a disagreement with the kubelet is mostly a Pod that is just going."""
        if isinstance(refused, Unclear):
            return True
        full = refused.code in {Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED}
        return full and bool(self._ledger.snapshot(word, more=fresh).disagreements)

    def _identify(
        self, manufacturer: str, mode: Mode, count: int, *, word: KubeletWord | None, fresh: Sequence[Object]
    ) -> Waiting:
        return identify(
            resource_of(self._ledger.registry, manufacturer, FAMILY_OF[mode]),
            count,
            accounts=self._ledger.accounts(fresh),
            entries=self._ledger.entries,
            word=word,
        )

    async def _unseen(self, word: KubeletWord | None) -> list[Object]:
        """Read Pods that the kubelet admits before the cache has them; what cannot be read is left to the next look."""
        if word is None:
            return []
        found = []
        for namespace, name in self._ledger.unknown(word):
            try:
                pod = await self._client.get(POD, name, namespace)
            except NotFound:
                continue
            except OperatorError as refused:
                raise Refused(Code.INTERNAL, f"pod {namespace}/{name} is not known yet: {refused}") from refused
            if at(pod, "spec", "nodeName") == self._ledger.node_name:
                found.append(pod)
        return found

    async def _bind(self, decided: _Decided) -> tuple[list[_Bound], _Decided]:
        """Bind each partition; the hardware's own place replaces the one that was decided."""
        bound: list[_Bound] = []
        records: list[Record] = []
        try:
            for record in decided.entry.records:
                if record.mode is not Mode.PARTITIONED:
                    return [], decided
                request = _partition_request(decided, record)
                partition = await self._partitions.bind(request)
                bound.append(_Bound(request, partition))
                records.append(replace(record, placements=(partition.placement,), physical_id=partition.physical_id))
        except Exception:
            await self._unbind(bound)
            raise
        entry = Entry.of(records, decided.ask.ids)
        async with self._ledger.lock:
            self._ledger.reserve(decided.waiting.pod, decided.waiting.name, entry)
        return bound, replace(decided, entry=entry)

    async def _unbind(self, bound: Sequence[_Bound]) -> None:
        for one in reversed(bound):
            try:
                await self._partitions.unbind(one.request, one.partition)
            except PartitionRefused as refused:
                log.warning("partition left to the reclaimer", extra={"reason": str(refused)})

    def _withdraw(self, decided: _Decided) -> None:
        """Give back what was decided: the container holds what it held before, and its annotation will say so."""
        self._ledger.reserve(decided.waiting.pod, decided.waiting.name, decided.before, unwritten=True)
        task = asyncio.create_task(self._give_back(decided), name="give back")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give_back(self, decided: _Decided) -> None:
        pause = self._options.give_back_s
        while True:
            held = self._ledger.reservations.get(decided.key)
            if held is None or not held.unwritten:
                return  # decided anew meanwhile, or the Pod is gone
            try:
                # What the cache shows proves nothing here: a write that timed out may still land.
                await self._recorder.record(decided.waiting.pod, sure=True)
                self._ledger.reserve(decided.waiting.pod, decided.waiting.name, decided.before)
                return
            except PodGone:
                self._ledger.release(decided.waiting.pod, decided.waiting.name)
                return
            except OperatorError as refused:
                extra = {"object": decided.waiting.where, "reason": str(refused)}
                log.warning("record of a refused allocation not taken back yet", extra=extra)
            await self._clock.sleep(pause)
            pause = min(pause * 2, self._options.slowest_give_back_s)


def _kept_identity(records: Sequence[Record], before: Entry | None) -> list[Record]:
    """Return records with the partition ids of before where card and place are the same."""
    known = {(r.group_id, r.card_id, r.placements): r.physical_id for r in (before.records if before else ())}
    return [replace(r, physical_id=known.get((r.group_id, r.card_id, r.placements), "")) for r in records]


def _windows(ledger: Snapshot, own: ContainerKey) -> dict[CardKey, tuple[Placement, ...]]:
    windows: dict[CardKey, list[Placement]] = defaultdict(list)
    for uid, charge in ledger.charged:
        for record in charge.records:
            if record.logical_placements and (uid, record.container) != own and ledger.counts(charge, record):
                windows[record.group_id, record.card_id] += record.logical_placements
    return {key: tuple(placed) for key, placed in windows.items()}


def _partition_request(decided: _Decided, record: Record) -> PartitionRequest:
    group, card = inventory(decided.groups, decided.ask.manufacturer)[record.group_id, record.card_id]
    return PartitionRequest(
        manufacturer=decided.ask.manufacturer,
        group=group,
        card=card,
        profile=record.profile,
        placement=record.placements[0],
        pod_uid=uid_of(decided.waiting.pod),
        container=decided.waiting.name,
    )


def _grant(decided: _Decided, bound: Sequence[_Bound]) -> Grant:
    places = inventory(decided.groups, decided.ask.manufacturer)
    partitions = {as_str(one.request.card.get("id")): one.partition for one in bound}
    cards = []
    for record in sorted(decided.entry.records, key=lambda record: record.index):
        group, card = places[record.group_id, record.card_id]
        cards.append(
            GrantedCard(
                group,
                card,
                record.allocated,
                profile=record.profile,
                partition=partitions.get(record.card_id),
                windows=record.logical_placements,
            )
        )
    return Grant(
        decided.ask.manufacturer,
        decided.ask.mode,
        decided.waiting.pod,
        decided.waiting.container,
        tuple(cards),
        claim=decided.claim,
    )


def _refusal(decided: _Decided, refused: OperatorError) -> Refused:
    code = Code.FAILED_PRECONDITION if isinstance(refused, InjectionRefused) else Code.INTERNAL
    return Refused(code, f"{decided.waiting.where}: {refused}")
