"""Lists that many explanations share for a moment.

For: `explain_reading`. In: a kind and a selector. Out: the newest objects, slimmed, and whether that is all of them.
Promises: at most `MAX_PAGES` pages a list, at most two lists at a time, each read once for all who ask within
`FRESH_S`; at most `MAX_KEPT` lists are kept; a failed read is told to everybody who waited for it and not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kube.client import Client
from kube.clock import Clock
from kube.errors import BadRequest
from kube.requests import ListOptions
from nodefeature.fields import as_map, as_maps, as_str, at
from nodefeature.kinds import Kind

PAGE = 200
MAX_PAGES = 5
FRESH_S = 3.0
MAX_KEPT = 8
Object = Mapping[str, Any]
Slim = Callable[[Object], Object]


@dataclass(frozen=True, slots=True)
class Listed:
    """Objects, all of them or the first thousand."""

    items: tuple[Object, ...] = ()
    partial: bool = False


class SharedLists:
    """Bounded lists, read once for everybody who asks in the same seconds."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._reads: dict[tuple[Kind, str], tuple[float, asyncio.Task[Listed]]] = {}
        self._slots = asyncio.Semaphore(2)

    async def of(self, kind: Kind, slim: Slim, *, labels: str = "", fields: str = "") -> Listed:
        """Return a list over all namespaces; raises what the client raises."""
        key, now = (kind, f"{labels}|{fields}"), self._clock.now()
        known = self._reads.get(key)
        if known is None or now - known[0] >= FRESH_S or _failed(known[1]):
            self._forget(now)
            task = asyncio.create_task(self._read(kind, slim, labels, fields), name=f"list {kind}")
            known = self._reads[key] = (now, task)
        # Who leaves must not take the others' read away.
        return await asyncio.shield(known[1])

    def _forget(self, now: float) -> None:
        for key, (since, task) in list(self._reads.items()):
            if task.done() and (now - since >= FRESH_S or len(self._reads) >= MAX_KEPT):
                _failed(task)
                del self._reads[key]

    async def _read(self, kind: Kind, slim: Slim, labels: str, fields: str) -> Listed:
        options = ListOptions(label_selector=labels, field_selector=fields, limit=PAGE)
        items: list[Object] = []
        async with self._slots:
            for _ in range(MAX_PAGES):
                page = await self._page(kind, options)
                items += [slim(item) for item in page.items]
                if not page.continue_token:
                    return Listed(tuple(items))
                options = replace(options, continue_token=page.continue_token)
        return Listed(tuple(items), partial=True)

    async def _page(self, kind: Kind, options: ListOptions) -> Any:
        try:
            return await self._client.list_page(kind, "", options)
        except BadRequest:
            # A server without this field selector; whoever asked sorts out by itself.
            if not options.field_selector:
                raise
            return await self._client.list_page(kind, "", replace(options, field_selector=""))


def _failed(task: asyncio.Task[Listed]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def slim_workload(workload: Object) -> Object:
    """Keep what a place in the queue depends on."""
    spec, meta = as_map(workload.get("spec")), as_map(workload.get("metadata"))
    kept = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")
    return {
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {key: spec[key] for key in ("priority", "active", "queueName") if key in spec},
        "status": {
            "conditions": [
                {"type": each.get("type"), "status": each.get("status")}
                for each in as_maps(at(workload, "status", "conditions"))
            ],
        },
    }


def slim_devices(devices: Object) -> Object:
    """Keep labels, capabilities and the ledger's figures."""
    meta = as_map(devices.get("metadata"))
    return {
        "metadata": {"name": as_str(meta.get("name")), "labels": meta.get("labels")},
        "spec": {"groups": [_group(group, ("id", "status")) for group in as_maps(at(devices, "spec", "groups"))]},
        "status": {
            "groups": [
                _group(group, ("id", "mode", "remaining", "allocatedProfiles", "remainingProfiles"))
                for group in as_maps(at(devices, "status", "groups"))
            ]
        },
    }


def _group(group: Object, kept: tuple[str, ...]) -> Object:
    cards = [{key: card[key] for key in kept if key in card} for card in as_maps(group.get("accelerators"))]
    return {"id": group.get("id"), "manufacturer": group.get("manufacturer"), "accelerators": cards}
