"""The kubelet stand-in's device manager before plugins that misbehave: what the real one does, and its words."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc.aio
import pytest

from devicemanager.kubelet.methods import plugin_handler, register
from devicemanager.proto import deviceplugin_pb2 as messages
from hack.kubelet.checkpoint import FILE, read_checkpoint
from hack.kubelet.device_manager import AdmissionRefused, DeviceManager
from hack.kubelet.wire import MAX_MESSAGE, serve

RESOURCE = "vendor.example/card"


class FakePlugin:
    """A plugin that says what a test lets it say."""

    def __init__(self, manager: DeviceManager, name: str = "fake.sock") -> None:
        self.ids = ["a", "b", "c"]
        self.prefers: list[str] = []
        self.asked: list[list[str]] = []
        self._manager = manager
        self._path = manager.folder / name
        self._server: grpc.aio.Server | None = None

    async def start(self, *, resource: str = RESOURCE) -> None:
        """Listen and register."""
        options = messages.DevicePluginOptions(get_preferred_allocation_available=True)
        handler = plugin_handler(
            options=options, list_and_watch=self._list, preferred=self._preferred, allocate=self._allocate
        )
        self._server = await serve(self._path, handler)
        request = messages.RegisterRequest(
            version="v1beta1", endpoint=self._path.name, resource_name=resource, options=options
        )
        await register(self._manager.folder / "kubelet.sock", request, timeout_s=5)

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.stop(None)

    async def _list(self, _request: messages.Empty, _context: object) -> AsyncIterator[bytes]:
        devices = [messages.Device(ID=text, health="Healthy") for text in self.ids]
        yield messages.ListAndWatchResponse(devices=devices).SerializeToString()
        await asyncio.Event().wait()

    async def _preferred(self, _request: object, _context: object) -> messages.PreferredAllocationResponse:
        answer = messages.PreferredAllocationResponse()
        answer.container_responses.add(deviceIDs=self.prefers)
        return answer

    async def _allocate(self, request: messages.AllocateRequest, _context: object) -> messages.AllocateResponse:
        self.asked.append(list(request.container_requests[0].devices_ids))
        return messages.AllocateResponse(container_responses=[messages.ContainerAllocateResponse()])


def play(story: Callable[[DeviceManager, FakePlugin], Awaitable[None]]) -> None:
    """Let a story happen before a device manager with one plugin that is not started."""

    async def run() -> None:
        with tempfile.TemporaryDirectory(prefix="dm") as root:
            manager = DeviceManager(Path(root), rng=random.Random(1))
            await manager.start()
            plugin = FakePlugin(manager)
            try:
                await story(manager, plugin)
            finally:
                await plugin.stop()
                await manager.stop()

    asyncio.run(run())


async def heard(manager: DeviceManager, true: Callable[[], bool]) -> None:
    """Return when a device list, or the end of one, has made something true."""
    async with asyncio.timeout(10):
        while not true():
            manager.changed.clear()
            await manager.changed.wait()


def test_what_is_preferred_and_on_offer_is_asked_for() -> None:
    async def story(manager: DeviceManager, plugin: FakePlugin) -> None:
        plugin.prefers = ["nobody's", "c"]
        await plugin.start()
        await heard(manager, lambda: manager.allocatable() == {RESOURCE: 3})
        await manager.allocate("uid-1", "main", RESOURCE, 1)
        await manager.allocate("uid-1", "main", RESOURCE, 1)  # has it already
        assert plugin.asked == [["c"]]
        with pytest.raises(AdmissionRefused, match=r"changed request for resource .* from 1 to 2"):
            await manager.allocate("uid-1", "main", RESOURCE, 2)
        with pytest.raises(AdmissionRefused, match="Requested: 3, Available: 2"):
            await manager.allocate("uid-2", "main", RESOURCE, 3)
        manager.free("uid-1")
        await manager.allocate("uid-2", "main", RESOURCE, 3)
        assert sorted(plugin.asked[-1]) == ["a", "b", "c"]

    play(story)


def test_a_second_registration_replaces_the_first() -> None:
    async def story(manager: DeviceManager, plugin: FakePlugin) -> None:
        await plugin.start()
        await heard(manager, lambda: manager.allocatable() == {RESOURCE: 3})
        successor = FakePlugin(manager, "successor.sock")
        successor.ids = ["a", "z"]
        await successor.start()
        await heard(manager, lambda: manager.endpoints[RESOURCE].healthy == {"a", "z"})
        await manager.allocate("uid-1", "main", RESOURCE, 2)
        assert (len(successor.asked), plugin.asked, manager.registrations) == (1, [], 2)
        await successor.stop()

    play(story)


def test_a_plugin_that_is_gone_leaves_its_devices_unhealthy() -> None:
    async def story(manager: DeviceManager, plugin: FakePlugin) -> None:
        await plugin.start()
        await heard(manager, lambda: manager.allocatable() == {RESOURCE: 3})
        await plugin.stop()
        await heard(manager, lambda: manager.allocatable() == {RESOURCE: 0})
        assert manager.capacity() == {RESOURCE: 3}
        with pytest.raises(AdmissionRefused, match="no healthy devices present"):
            await manager.allocate("uid-1", "main", RESOURCE, 1)

    play(story)


def test_a_list_beyond_four_mib_is_no_list() -> None:
    async def story(manager: DeviceManager, plugin: FakePlugin) -> None:
        plugin.ids = [f"{number:01000d}" for number in range(MAX_MESSAGE // 1000)]
        await plugin.start()
        await heard(manager, lambda: bool(manager.endpoints[RESOURCE].fault))
        assert "larger than max" in manager.endpoints[RESOURCE].fault
        assert manager.allocatable() == {RESOURCE: 0}

    play(story)


@pytest.mark.parametrize("name", ["kubernetes.io/card", "card"])
def test_a_resource_of_no_vendor_is_not_taken(name: str) -> None:
    async def story(manager: DeviceManager, plugin: FakePlugin) -> None:
        with pytest.raises(grpc.aio.AioRpcError, match="is invalid"):
            await plugin.start(resource=name)
        assert manager.endpoints == {}

    play(story)


@pytest.mark.parametrize("damage", ["", "{", '{"Data": {}, "Checksum": 1}', "[]"])
def test_what_was_given_outlives_a_restart_unless_its_file_is_damaged(damage: str) -> None:
    async def story(manager: DeviceManager, plugin: FakePlugin) -> None:
        await plugin.start()
        await heard(manager, lambda: manager.allocatable() == {RESOURCE: 3})
        await manager.allocate("uid-1", "main", RESOURCE, 2)
        given = dict(manager.given)
        await manager.stop()
        await manager.start()
        assert manager.given == given
        assert manager.allocatable() == {RESOURCE: 0}, "nothing is healthy until the plugin is back"
        await manager.stop()
        file = manager.folder / FILE
        stored = json.loads(file.read_text())
        stored["Data"]["PodDeviceEntries"][0]["DeviceIDs"] = ["forged"]
        for text in (damage, json.dumps(stored)):
            file.write_text(text)
            assert read_checkpoint(manager.folder).given == ()
        await manager.start()
        assert manager.given == {}

    play(story)
