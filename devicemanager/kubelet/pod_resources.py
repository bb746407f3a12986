"""Asks the kubelet who holds what (spec 06 §7.1).

For: the allocator and the publisher of the ledger. In: the pod-resources socket. Out: the kubelet's word, or None.
Promises: an answer was begun after its question; who asks while one is under way shares the next, so that however many
ask, one is under way; a line that has broken is dialled anew before anything is believed of the kubelet; waits at most
two seconds; trouble is logged once when it begins and when it ends; what is listed of a Pod is read once, and is the
very same object until it changes.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import grpc
import grpc.aio

from devicemanager.kubelet.methods import Listing
from devicemanager.ledger.kubelet_word import Held, KubeletWord, PodName, word_of
from devicemanager.proto import podresources_pb2 as resources

log = logging.getLogger(__name__)

POD_RESOURCES_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_TIMEOUT_S = 2.0


class PodResources:
    """The kubelet behind one socket."""

    def __init__(self, socket: Path = POD_RESOURCES_SOCKET) -> None:
        self._socket = socket
        self._line: Listing | None = None
        self._trouble = ""
        self._read: dict[bytes, tuple[PodName, Held]] = {}
        self._under_way: asyncio.Task[KubeletWord | None] | None = None
        self._next: asyncio.Task[KubeletWord | None] | None = None

    async def word(self) -> KubeletWord | None:
        """Return a listing of now, or None when the kubelet cannot be asked."""
        if self._next is None:
            self._next = asyncio.create_task(self._ask_after(self._under_way), name="pod-resources")
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """Hang up."""
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def _ask_after(self, before: asyncio.Task[KubeletWord | None] | None) -> KubeletWord | None:
        if before is not None:
            await asyncio.wait({before})
        self._under_way, self._next = self._next, None
        return await self._ask()

    async def _ask(self) -> KubeletWord | None:
        try:
            answer = await self._listing()
        except grpc.aio.AioRpcError as refused:
            self._say(f"{refused.code().name}: {refused.details()}")
            return None
        if answer is None:
            self._say("its answer is no listing")
            return None
        self._say("")
        before, self._read = self._read, {}
        listed = []
        for pod in answer.pod_resources:
            raw = pod.SerializeToString()
            row = self._read[raw] = before.get(raw) or _read(pod)
            listed.append(row)
        return word_of(listed)

    async def _listing(self) -> resources.ListPodResourcesResponse | None:
        """Ask on the open line; when there is none, or the kubelet that held its other end is gone, on a new one."""
        if self._line is not None:
            try:
                return await self._line.list(timeout_s=_TIMEOUT_S)
            except grpc.aio.AioRpcError as refused:
                await self.close()
                if refused.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
        line = self._line = Listing(self._socket)
        try:
            return await line.list(timeout_s=_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            await self.close()
            raise

    def _say(self, trouble: str) -> None:
        if trouble and not self._trouble:
            log.warning("kubelet not asked about devices", extra={"socket": str(self._socket), "reason": trouble})
        elif self._trouble and not trouble:
            log.info("kubelet asked about devices again", extra={"socket": str(self._socket)})
        self._trouble = trouble


def _read(pod: resources.PodResources) -> tuple[PodName, Held]:
    held: dict[str, dict[str, frozenset[str]]] = {}
    for container in pod.containers:
        ids: dict[str, frozenset[str]] = {}
        for device in container.devices:
            ids[device.resource_name] = ids.get(device.resource_name, frozenset()) | frozenset(device.device_ids)
        held[container.name] = ids
    return (pod.namespace, pod.name), held
