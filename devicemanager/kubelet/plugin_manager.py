"""All plugins of a node: which are served follows the published inventory (spec 06 §5.5).

For: the node's process. In: the ledger, an allocator, the kubelet's socket. Out: runs until cancelled.
Promises: a manufacturer's plugins start with its first published group and stop with its last; one plugin's trouble is
its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from api.ledger.modes import Mode
from devicemanager.kubelet.allocator import Allocator
from devicemanager.kubelet.grant import Injection
from devicemanager.kubelet.plugin import Plugin, Resource, resources_of
from devicemanager.kubelet.serving import KubeletSocket, Serving
from devicemanager.kubelet.visibility import Shower
from devicemanager.ledger.node_ledger import NodeLedger
from kube.clock import Clock
from nodefeature.fields import as_str

log = logging.getLogger(__name__)

MODES = (Mode.EXCLUSIVE, Mode.SHARED, Mode.SLICED, Mode.PARTITIONED, Mode.VISIBILITY)


class PluginManager:
    """Starts and stops plugins."""

    def __init__(
        self,
        ledger: NodeLedger,
        allocator: Allocator,
        shower: Shower,
        clock: Clock,
        *,
        socket: KubeletSocket,
        manufacturers: Collection[str],
        modes: Sequence[Mode] = MODES,
    ) -> None:
        self.servings: dict[Resource, Serving] = {}
        self._ledger = ledger
        self._allocator = allocator
        self._shower = shower
        self._clock = clock
        self._socket = socket
        self._manufacturers = frozenset(manufacturers)
        self._modes = modes
        self._tasks: dict[Resource, asyncio.Task[None]] = {}

    @property
    def unready(self) -> str:
        """Say which plugins their kubelet does not know; empty when all are registered."""
        waiting = [
            f"{r.name}: {s.trouble or 'not registered yet'}" for r, s in self.servings.items() if not s.registered
        ]
        return "; ".join(waiting)

    async def run(self) -> None:
        """Serve until cancelled."""
        woken = asyncio.Event()
        self._ledger.subscribe(woken)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    woken.clear()
                    await self._follow(group)
                    await woken.wait()
        finally:
            self._ledger.unsubscribe(woken)
            await self._allocator.close()

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        present = {as_str(g.get("manufacturer")) for g in self._ledger.groups()} & self._manufacturers
        wanted = [r for maker in sorted(present) for r in resources_of(self._ledger.registry, maker, self._modes)]
        for resource in [r for r in self.servings if r not in wanted]:
            task = self._tasks.pop(resource)
            task.cancel()
            await asyncio.wait({task})
            del self.servings[resource]
            log.info("plugin stopped", extra={"resource": resource.name})
        for resource in wanted:
            if resource not in self.servings:
                serving = Serving(self._plugin(resource), self._socket, self._clock)
                self.servings[resource] = serving
                self._tasks[resource] = group.create_task(serving.run(), name=f"plugin {resource.name}")

    def _plugin(self, resource: Resource) -> Plugin:
        find = partial(self._allocator.waiting, resource.manufacturer, resource.mode)
        return Plugin(resource, self._ledger, self._clock, find=find, allocate=self._allocate(resource))

    def _allocate(self, resource: Resource) -> Callable[[Sequence[str]], Awaitable[Injection]]:
        async def allocate(ids: Sequence[str]) -> Injection:
            if resource.mode is Mode.VISIBILITY:
                return await self._shower.show(resource.manufacturer, ids)
            return await self._allocator.allocate(resource.manufacturer, resource.mode, ids)

        return allocate
