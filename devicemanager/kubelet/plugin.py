"""One device plugin: one resource of one manufacturer, as the kubelet sees it (spec 06 §4, §7).

For: `serving`, which puts it on a socket. In: the node's ledger, the allocator. Out: answers to the kubelet's calls.
Promises:
  - the kubelet hears a change after 10 ms, and what changes within 20 ms after a list as one (case B055); nothing when
    nothing changed;
  - every error becomes a gRPC status with a sentence; what nobody foresaw is logged with its trace;
  - a hint that cannot be given is an empty one: Allocate decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from api.devices import cards_of
from api.ledger.fit import is_partitioned
from api.ledger.modes import Mode
from api.ledger.transport import preferred_cards
from devicemanager.kubelet.decision import units_of
from devicemanager.kubelet.grant import Injection
from devicemanager.kubelet.identification import Waiting, claim_of
from devicemanager.kubelet.methods import Context, plugin_handler
from devicemanager.kubelet.offer import Offer, offer_of
from devicemanager.kubelet.preference import Wish, prefer
from devicemanager.kubelet.refusal import Refused
from devicemanager.ledger.node_ledger import NodeLedger
from devicemanager.proto import deviceplugin_pb2 as messages
from devicemanager.tokens import FAMILY_OF
from kube.clock import Clock
from nodefeature.manufacturers import Manufacturers
from nodefeature.resource_names import resource_of

log = logging.getLogger(__name__)

# The Allocate that changed the ledger is answered first: making lists of all resources takes as long as it does.
_PAUSE_S = 0.01
# After a list no other one is sent for this long.
_WINDOW_S = 0.02

Allocate = Callable[[Sequence[str]], Awaitable[Injection]]
Find = Callable[[int], Awaitable[Waiting]]
"""(devices asked for) -> the container that waits for them."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What a plugin serves."""

    manufacturer: str
    mode: Mode
    name: str

    @property
    def socket(self) -> str:
        """Return the file name of its socket."""
        return f"{self.manufacturer}.{self.mode.name.lower()}.sock"


class Plugin:
    """Serves one resource."""

    def __init__(self, resource: Resource, ledger: NodeLedger, clock: Clock, *, find: Find, allocate: Allocate) -> None:
        self.resource = resource
        self._ledger = ledger
        self._clock = clock
        self._find = find
        self._allocate = allocate
        self._thinned = 0

    @property
    def options(self) -> messages.DevicePluginOptions:
        """Return what the plugin can do."""
        return messages.DevicePluginOptions(get_preferred_allocation_available=True)

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the service to put on a socket."""
        return plugin_handler(
            options=self.options,
            list_and_watch=self.list_and_watch,
            preferred=self.get_preferred_allocation,
            allocate=self.allocate,
        )

    def offer(self) -> Offer:
        """Return what is offered now."""
        mode = self.resource.mode
        ledger = self._ledger.current()
        groups = [group for group in ledger.groups if group.get("manufacturer") == self.resource.manufacturer]
        offer = offer_of(groups, mode, ledger.cards, self._held_ids(groups) if mode is Mode.PARTITIONED else ())
        if offer.thinned_to != self._thinned:
            self._thinned = offer.thinned_to
            extra = {"resource": self.resource.name, "tokens": offer.thinned_to}
            log.warning("fewer tokens offered for each card: all of them would not fit one message", extra=extra)
        return offer

    async def list_and_watch(self, _request: messages.Empty, _context: Context) -> AsyncIterator[bytes]:
        """Yield all tokens, now and after every change."""
        woken = asyncio.Event()
        self._ledger.subscribe(woken)
        try:
            last: Offer | None = None
            window_ends = self._clock.now()
            while True:
                woken.clear()
                offer = self.offer()
                if offer != last:
                    last = offer
                    yield offer.message()
                    window_ends = self._clock.now() + _WINDOW_S
                await woken.wait()
                await self._clock.sleep(max(_PAUSE_S, window_ends - self._clock.now()))
        finally:
            self._ledger.unsubscribe(woken)

    async def allocate(self, request: messages.AllocateRequest, context: Context) -> messages.AllocateResponse:
        """Answer the kubelet for one container."""
        if len(request.container_requests) != 1:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "want the request of exactly one container")
        ids = list(request.container_requests[0].devices_ids)
        try:
            injection = await self._allocate(ids)
        except Refused as refused:
            extra = {"resource": self.resource.name, "reason": str(refused), "ids": ids[:8]}
            log.warning("allocation refused", extra=extra)
            await context.abort(grpc.StatusCode[refused.code], str(refused))
        except Exception:  # must become a status: the kubelet cannot use a trace
            log.exception("allocation failed", extra={"resource": self.resource.name, "ids": ids[:8]})
            await context.abort(grpc.StatusCode.INTERNAL, "the plugin failed; its log says more")
        return messages.AllocateResponse(container_responses=[_response(injection)])

    async def get_preferred_allocation(
        self, request: messages.PreferredAllocationRequest, _context: Context
    ) -> messages.PreferredAllocationResponse:
        """Answer which tokens to pick."""
        answer = messages.PreferredAllocationResponse()
        for wanted in request.container_requests:
            try:
                ids = await self._preferred(wanted)
            except Exception:  # a hint must not fail a Pod
                log.exception("no allocation preferred", extra={"resource": self.resource.name})
                ids = []
            answer.container_responses.add(deviceIDs=ids)
        return answer

    async def _preferred(self, wanted: messages.ContainerPreferredAllocationRequest) -> list[str]:
        mode, maker = self.resource.mode, self.resource.manufacturer
        if mode in {Mode.PARTITIONED, Mode.VISIBILITY}:
            return []
        ledger = self._ledger.current()
        return prefer(
            [group for group in ledger.groups if group.get("manufacturer") == maker],
            mode,
            ledger.cards,
            available=list(wanted.available_deviceIDs),
            must=list(wanted.must_include_deviceIDs),
            size=wanted.allocation_size,
            wish=await self._wish(wanted.allocation_size),
        )

    async def _wish(self, size: int) -> Wish:
        """Return what the waiting container asks for; nothing particular when it cannot be told which one it is."""
        try:
            waiting = await self._find(size)
        except Refused:
            return Wish()
        ids, indexes = preferred_cards(waiting.pod)
        return Wish(self._units(waiting), ids, indexes)

    def _units(self, waiting: Waiting) -> int:
        if self.resource.mode is not Mode.SLICED:
            return 0
        claims = self._ledger.account(waiting.pod).claims
        claim = claim_of(waiting, claims, self.resource.manufacturer, FAMILY_OF[Mode.SLICED])
        groups = [g for g in self._ledger.groups() if g.get("manufacturer") == self.resource.manufacturer]
        return max((units_of(claim, group) for group in groups), default=0)

    def _held_ids(self, groups: Sequence[Mapping[str, Any]]) -> set[str]:
        if not any(is_partitioned(card) for group in groups for card in cards_of(group)):
            return set()
        return {
            text
            for pod in self._ledger.pods()
            for entry in self._ledger.entries(pod).values()
            if any(record.mode is Mode.PARTITIONED for record in entry.records)
            for text in entry.device_ids
        }


def resources_of(registry: Manufacturers, manufacturer: str, modes: Sequence[Mode]) -> list[Resource]:
    """Return the resources a manufacturer's plugins register, in order."""
    names = [(mode, resource_of(registry, manufacturer, FAMILY_OF[mode])) for mode in modes]
    return [Resource(manufacturer, mode, name) for mode, name in names if name]


def _response(injection: Injection) -> messages.ContainerAllocateResponse:
    return messages.ContainerAllocateResponse(
        envs=dict(injection.envs),
        mounts=[
            messages.Mount(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only)
            for m in injection.mounts
        ],
        devices=[
            messages.DeviceSpec(container_path=d.container_path, host_path=d.host_path, permissions=d.permissions)
            for d in injection.devices
        ],
        annotations=dict(injection.annotations),
        cdi_devices=[messages.CDIDevice(name=name) for name in injection.cdi_devices],
    )
