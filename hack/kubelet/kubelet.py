"""One node's kubelet without containers: admits Pods one after another, serves pod-resources, restarts.

For: tests of the device plugin, the demo. In: Pods (raw objects). Out: their phases, devices for their containers.
Kept of the real one: a Pod is known before it is admitted; init containers are served first, then containers; a refusal
makes the Pod Failed with reason UnexpectedAdmissionError; ended Pods leave the listing and their devices; plain init
containers are not listed; after a restart running containers are left alone and waiting ones served anew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc.aio

from devicemanager.proto import podresources_pb2 as resources
from hack.kubelet.device_manager import AdmissionRefused, DeviceManager
from hack.kubelet.wire import Context, pod_resources_handler, serve
from nodefeature.fields import as_map, as_maps, as_str, at, name_of, namespace_of, uid_of
from nodefeature.quantity import QuantityInvalid, parse_quantity

Tell = Callable[[Mapping[str, Any], dict[str, Any]], Awaitable[None]]
"""(pod, status) -> told to the API server."""

_ENDED = ("Succeeded", "Failed")


async def _nobody(_pod: Mapping[str, Any], _status: dict[str, Any]) -> None:
    return


class Kubelet:
    """One kubelet; `root` stands for /var/lib/kubelet."""

    def __init__(self, root: Path, *, tell: Tell = _nobody, rng: random.Random | None = None) -> None:
        self.root = root
        self.devices = DeviceManager(root / "device-plugins", rng=rng or random.Random(1))
        self.pods: dict[str, Mapping[str, Any]] = {}
        self.phases: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self._tell = tell
        self._resources: grpc.aio.Server | None = None
        self._admission = asyncio.Lock()
        self._shown: dict[str, tuple[tuple[int, int], bytes]] = {}

    @property
    def socket(self) -> Path:
        """Return where plugins register."""
        return self.devices.folder / "kubelet.sock"

    @property
    def pod_resources_socket(self) -> Path:
        """Return where the listing is served."""
        return self.root / "pod-resources" / "kubelet.sock"

    async def start(self) -> None:
        """Start; known Pods are admitted again in order of their age."""
        await self.devices.start()
        self._resources = await serve(self.pod_resources_socket, pod_resources_handler(self._list))

    async def stop(self) -> None:
        """Stop; Pods and the checkpoint stay."""
        await self.devices.stop()
        await self.stop_listing()

    async def stop_listing(self) -> None:
        """Serve pod-resources no more, and nothing else less."""
        if self._resources is not None:
            await self._resources.stop(None)
            self._resources = None

    async def restart(self) -> None:
        """Stop and start; the folder of sockets is wiped."""
        await self.stop()
        await self.start()

    async def admit(self, pod: Mapping[str, Any]) -> str:
        """Take a Pod in; return its phase."""
        async with self._admission:
            uid = uid_of(pod)
            self.pods[uid] = pod
            self.phases[uid] = "Pending"
            try:
                await self._serve_containers(pod)
            except AdmissionRefused as refused:
                self.reasons[uid] = str(refused)
                self.phases[uid] = "Failed"
                self.devices.free(uid)
                await self._tell(pod, _rejected(str(refused)))
                return "Failed"
            self.phases[uid] = "Running"
            await self._tell(pod, {"phase": "Running", "containerStatuses": _running(pod)})
            return "Running"

    async def end(self, uid: str, phase: str = "Succeeded") -> None:
        """Let a Pod's containers end."""
        self.phases[uid] = phase
        self.devices.free(uid)
        await self._tell(self.pods[uid], {"phase": phase})

    def remove(self, uid: str) -> None:
        """Forget a Pod that was deleted."""
        self.pods.pop(uid, None)
        self.phases.pop(uid, None)
        self.devices.free(uid)

    async def _serve_containers(self, pod: Mapping[str, Any]) -> None:
        uid = uid_of(pod)
        reusable: dict[str, set[str]] = {}
        for part in ("initContainers", "containers"):
            for container in as_maps(at(pod, "spec", part)):
                name = as_str(container.get("name"))
                for resource, value in as_map(at(container, "resources", "limits")).items():
                    count = _count(value)
                    if not count or not self.devices.knows(resource):
                        continue
                    ids = reusable.setdefault(resource, set())
                    await self.devices.allocate(uid, name, resource, count, reusable=ids)
                    given = self.devices.held(uid, name).get(resource, ())
                    if part == "initContainers" and container.get("restartPolicy") != "Always":
                        ids.update(given)
                    else:
                        ids.difference_update(given)

    async def _list(self, _request: resources.ListPodResourcesRequest, _context: Context) -> bytes:
        shown = {uid: self._listing(uid, pod) for uid, pod in self.pods.items() if self.phases.get(uid) not in _ENDED}
        self._shown = shown
        return b"".join(listing for _, listing in shown.values())

    def _listing(self, uid: str, pod: Mapping[str, Any]) -> tuple[tuple[int, int], bytes]:
        """Return a listing of one Pod: joined, they are the listing of all.

        A full node is asked at every allocation, so what has not changed is made once.
        """
        revision = self.devices.revisions[uid], len(self.devices.endpoints)
        before = self._shown.get(uid)
        if before is not None and before[0] == revision:
            return before
        listing = resources.PodResources(name=name_of(pod), namespace=namespace_of(pod))
        for container in _listed(pod):
            shown = listing.containers.add(name=container)
            for resource, ids in self.devices.held(uid, container).items():
                shown.devices.add(resource_name=resource, device_ids=ids)
        return revision, resources.ListPodResourcesResponse(pod_resources=[listing]).SerializeToString()


def _listed(pod: Mapping[str, Any]) -> list[str]:
    restartable = [c for c in as_maps(at(pod, "spec", "initContainers")) if c.get("restartPolicy") == "Always"]
    return [as_str(container.get("name")) for container in (*restartable, *as_maps(at(pod, "spec", "containers")))]


def _count(value: object) -> int:
    try:
        return parse_quantity(value).ceil()
    except QuantityInvalid:
        return 0


def _rejected(message: str) -> dict[str, Any]:
    return {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": f"Pod was rejected: {message}"}


def _running(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": container.get("name"), "ready": True, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        for container in as_maps(at(pod, "spec", "containers"))
    ]
