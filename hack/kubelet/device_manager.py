"""The kubelet's device manager: registered plugins, their devices, which container has which.

For: `hack.kubelet.kubelet`. In: registrations, device lists, containers to serve. Out: allocations, or a refusal with
the kubelet's words.
Kept of the real one: version and name checks of a registration; a plugin that registers again replaces the one before;
a stream that ends, or brings more than 4 MiB, turns all devices unhealthy; the plugin is asked which ids it prefers and
for no others; ids of init containers are used again by the Pod's other containers; a failed Allocate frees the ids; the
checkpoint; after a restart nothing is healthy until the plugin is back.
Left out: topology manager policies, pre-start, the five minutes until a dead plugin's capacity goes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

from devicemanager.proto import deviceplugin_pb2 as plugin
from hack.kubelet.checkpoint import FILE, Given, read_checkpoint, write_checkpoint
from hack.kubelet.wire import Context, PluginClient, registration_handler, serve

SUPPORTED = ("v1beta1",)
SOCKET = "kubelet.sock"


class AdmissionRefused(Exception):
    """A container gets no devices; the text is what the Pod's status would say."""


@dataclass(slots=True)
class Endpoint:
    """One registered plugin; `client` is None when it is gone."""

    resource: str
    client: PluginClient | None
    prefers: bool
    watcher: asyncio.Task[None] | None = None
    healthy: set[str] = field(default_factory=set)
    unhealthy: set[str] = field(default_factory=set)
    lists: int = 0
    """Device lists heard."""
    heard: float = 0.0
    """When the newest of them came, by the monotonic clock."""
    fault: str = ""


class DeviceManager:
    """One node's devices."""

    def __init__(self, folder: Path, *, rng: random.Random) -> None:
        self.folder = folder
        self.endpoints: dict[str, Endpoint] = {}
        self.given: dict[tuple[str, str, str], tuple[str, ...]] = {}
        """(Pod uid, container, resource) -> ids."""
        self.answers: dict[tuple[str, str, str], plugin.ContainerAllocateResponse] = {}
        self.revisions: Counter[str] = Counter()
        """Pod uid -> how often what it has has changed."""
        self.registrations = 0
        self.changed = asyncio.Event()
        self._rng = rng
        self._server: grpc.aio.Server | None = None
        self._in_use: dict[str, set[str]] = {}
        self._left: list[PluginClient] = []

    async def start(self) -> None:
        """Wipe the folder, remember, listen."""
        _wipe(self.folder)
        kept = read_checkpoint(self.folder)
        self.lose()
        self.given = {(g.pod_uid, g.container, g.resource): g.ids for g in kept.given}
        self.endpoints = {resource: Endpoint(resource, None, prefers=False) for resource in kept.registered}
        self._server = await serve(self.folder / SOCKET, registration_handler(self._register))

    async def stop(self) -> None:
        """Stop listening and hang up."""
        for endpoint in self.endpoints.values():
            await _stop(endpoint)
        for client in self._left:
            await client.close()
        self._left.clear()
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def capacity(self) -> dict[str, int]:
        """Return how many devices each resource has, healthy or not."""
        return {name: len(e.healthy) + len(e.unhealthy) for name, e in self.endpoints.items()}

    def allocatable(self) -> dict[str, int]:
        """Return how many devices of each resource are healthy."""
        return {name: len(e.healthy) for name, e in self.endpoints.items()}

    def knows(self, resource: str) -> bool:
        """Say whether a plugin serves, or served, the resource."""
        return resource in self.endpoints

    async def allocate(
        self, pod_uid: str, container: str, resource: str, count: int, *, reusable: Collection[str] = ()
    ) -> None:
        """Give a container devices, unless it has them; AdmissionRefused in the kubelet's words."""
        endpoint = self.endpoints[resource]
        had = self.given.get((pod_uid, container, resource), ())
        if had and len(had) != count:
            raise AdmissionRefused(
                f"pod {pod_uid!r} container {container!r} changed request for resource {resource!r} from {len(had)} to "
                f"{count}"
            )
        if not endpoint.healthy:
            raise AdmissionRefused(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if had:
            if not endpoint.healthy.issuperset(had):
                raise AdmissionRefused(
                    f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
                )
            return
        ids = await self._pick(endpoint, count, reusable)
        self._in_use.setdefault(resource, set()).update(ids)
        try:
            if endpoint.client is None:
                raise AdmissionRefused(
                    f"Allocate failed due to endpoint {resource} has been stopped, which is unexpected"
                )
            answer = await endpoint.client.allocate(ids)
        except grpc.aio.AioRpcError as refused:
            raise AdmissionRefused(
                f"Allocate failed due to rpc error: code = {refused.code().name} desc = {refused.details()}, "
                "which is unexpected"
            ) from refused
        finally:
            self._in_use[resource] -= set(ids)
        self.given[pod_uid, container, resource] = tuple(sorted(ids))
        self.answers[pod_uid, container, resource] = answer
        self.revisions[pod_uid] += 1
        self._save()

    def free(self, pod_uid: str) -> None:
        """Take a Pod's devices back."""
        gone = [key for key in self.given if key[0] == pod_uid]
        for key in gone:
            del self.given[key]
            self.answers.pop(key, None)
        if gone:
            self.revisions[pod_uid] += 1
            self._save()

    def lose(self) -> None:
        """Forget who has what, as without a checkpoint."""
        self.revisions.update(key[0] for key in self.given)
        self.given.clear()

    def held(self, pod_uid: str, container: str) -> Mapping[str, tuple[str, ...]]:
        """Return a container's ids by resource."""
        keys = ((pod_uid, container, resource) for resource in self.endpoints)
        return {key[2]: self.given[key] for key in keys if key in self.given}

    async def _pick(self, endpoint: Endpoint, count: int, reusable: Collection[str]) -> list[str]:
        used = {i for key, ids in self.given.items() if key[2] == endpoint.resource for i in ids}
        used |= self._in_use.get(endpoint.resource, set())
        again = sorted(endpoint.healthy & set(reusable))[:count]
        free = sorted(endpoint.healthy - used)
        needed = count - len(again)
        if len(free) < needed:
            raise AdmissionRefused(
                f"requested number of devices unavailable for {endpoint.resource}. "
                f"Requested: {needed}, Available: {len(free)}"
            )
        if not needed:
            return again
        self._rng.shuffle(free)  # the kubelet keeps sets: it knows no order
        preferred: list[str] = []
        if endpoint.prefers and endpoint.client is not None:
            try:
                preferred = await endpoint.client.preferred(again + free, again, count)
            except grpc.aio.AioRpcError as refused:
                raise AdmissionRefused(f"GetPreferredAllocation failed: {refused.details()}") from refused
        usable = [text for text in preferred if text in set(free)][:needed]
        rest = [text for text in free if text not in usable]
        return again + usable + rest[: needed - len(usable)]

    async def _register(self, request: plugin.RegisterRequest, context: Context) -> plugin.Empty:
        self.registrations += 1
        if request.version not in SUPPORTED:
            await context.abort(
                grpc.StatusCode.UNKNOWN,
                f"requested API version {request.version!r} is not supported by kubelet. Supported versions are "
                f"{SUPPORTED}",
            )
        if "/" not in request.resource_name or request.resource_name.startswith("kubernetes.io/"):
            await context.abort(grpc.StatusCode.UNKNOWN, f"the ResourceName {request.resource_name!r} is invalid")
        before = self.endpoints.get(request.resource_name)
        if before is not None:
            await _stop(before)
        client = PluginClient(self.folder / request.endpoint)
        endpoint = Endpoint(request.resource_name, client, prefers=request.options.get_preferred_allocation_available)
        self.endpoints[request.resource_name] = endpoint
        endpoint.watcher = asyncio.create_task(self._watch(endpoint, client), name=f"watch {request.resource_name}")
        return plugin.Empty()

    async def _watch(self, endpoint: Endpoint, client: PluginClient) -> None:
        try:
            async for answer in client.list_and_watch():
                endpoint.lists += 1
                endpoint.heard = time.monotonic()
                endpoint.healthy = {d.ID for d in answer.devices if d.health == "Healthy"}
                endpoint.unhealthy = {d.ID for d in answer.devices if d.health != "Healthy"}
                self._save()
                self.changed.set()
            endpoint.fault = "stream ended"
        except grpc.aio.AioRpcError as error:
            endpoint.fault = f"{error.code().name}: {error.details()}"
        endpoint.unhealthy |= endpoint.healthy
        endpoint.healthy = set()
        endpoint.client = None
        self._left.append(client)  # a call may still be under way
        self.changed.set()

    def _save(self) -> None:
        given: Iterable[Given] = (Given(*key, ids) for key, ids in self.given.items())
        write_checkpoint(self.folder, given, {name: e.healthy for name, e in self.endpoints.items()})


def _wipe(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name != FILE:
            path.unlink()


async def _stop(endpoint: Endpoint) -> None:
    if endpoint.watcher is not None and not endpoint.watcher.done():
        endpoint.watcher.cancel()
        await asyncio.wait({endpoint.watcher})
    if endpoint.client is not None:
        await endpoint.client.close()
        endpoint.client = None
