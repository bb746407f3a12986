"""Writes what was decided onto the Pod, and takes it off again (spec 06 §6.1, §6.2).

For: the allocator. In: the node's ledger with its reservations, a client. Out: the Pod's annotation.
Promises:
  - one writer a Pod at a time; the text carries every container's entry, reservations before the old annotation;
  - a Pod of the same name but another uid is never written to;
  - no write when the annotation says it already;
  - where a Pod claims of several manufacturers, whose agents are separate processes, a write decided on an old state is
    refused by the server and decided again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from api.ledger.transport import ALLOCATED_ANNOTATION, dump
from devicemanager.ledger.accounts import Entry
from devicemanager.ledger.node_ledger import NodeLedger
from kube.client import Client
from kube.errors import Conflict, NotFound, OperatorError
from nodefeature.fields import annotations_of, at, name_of, namespace_of, uid_of
from nodefeature.kinds import POD

_ATTEMPTS = 5


class PodGone(OperatorError):
    """The Pod is not there any more; there is nothing to record on."""


class NotRecorded(OperatorError):
    """Others kept writing; the next call tries again."""


class Recorder:
    """Annotates the Pods of one node."""

    def __init__(self, ledger: NodeLedger, client: Client) -> None:
        self._ledger = ledger
        self._client = client
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    async def record(self, pod: Mapping[str, Any], *, sure: bool = False) -> None:
        """Bring a Pod's annotation to what its containers hold now; PodGone, or the client's error.

        `sure` writes even if the cached Pod says it already.
        """
        uid = uid_of(pod)
        lock, users = self._locks.get(uid, (asyncio.Lock(), 0))
        self._locks[uid] = (lock, users + 1)
        try:
            async with lock:
                await self._settle(self._ledger.cached(pod) or pod, sure=sure)
        finally:
            lock, users = self._locks[uid]
            self._locks[uid] = (lock, users - 1)
            if users == 1:
                del self._locks[uid]

    async def _settle(self, pod: Mapping[str, Any], *, sure: bool) -> None:
        shared = len({claim.manufacturer for claim in self._ledger.account(pod).claims}) > 1
        for _attempt in range(_ATTEMPTS):
            text = annotation_text(pod, self._ledger.entries(pod))
            if not sure and annotations_of(pod).get(ALLOCATED_ANNOTATION) == text:
                return
            meta: dict[str, Any] = {"uid": uid_of(pod), "annotations": {ALLOCATED_ANNOTATION: text}}
            if shared:
                meta["resourceVersion"] = at(pod, "metadata", "resourceVersion")
            try:
                await self._client.patch(POD, name_of(pod), {"metadata": meta}, namespace_of(pod))
                return
            except NotFound as gone:
                raise PodGone(f"pod {namespace_of(pod)}/{name_of(pod)} is gone") from gone
            except Conflict:
                pod = await self._newest(pod)
        raise NotRecorded(
            f"pod {namespace_of(pod)}/{name_of(pod)}: its annotation changed {_ATTEMPTS} times while it was written"
        )

    async def _newest(self, pod: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            newest = await self._client.get(POD, name_of(pod), namespace_of(pod))
        except NotFound as gone:
            raise PodGone(f"pod {namespace_of(pod)}/{name_of(pod)} is gone") from gone
        if uid_of(newest) != uid_of(pod):
            raise PodGone(f"pod {namespace_of(pod)}/{name_of(pod)} was replaced by another of its name")
        return newest


def annotation_text(pod: Mapping[str, Any], entries: Mapping[str, Entry]) -> str | None:
    """Return the text for a Pod's entries; None, which removes the annotation, when nothing is held.

    Entries of the old text that are not believed are left out: they charge nothing and would only be refused again.
    """
    if not entries:
        return None
    return dump(
        (record for _, entry in sorted(entries.items()) for record in entry.records),
        {container: entry.device_ids for container, entry in sorted(entries.items())},
    )
