"""The kubelet's ends of the device-plugin and pod-resources protocols.

For: `device_manager`, `kubelet`. In: handlers and sockets. Out: gRPC services and calls.
Promises: the client side takes messages of 4 MiB at most, as the kubelet's does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import grpc.aio

from devicemanager.proto import deviceplugin_pb2 as plugin
from devicemanager.proto import podresources_pb2 as resources

MAX_MESSAGE = 4 * 1024 * 1024
Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
_PLUGIN = "/v1beta1.DevicePlugin"


def registration_handler(
    register: Callable[[plugin.RegisterRequest, Context], Awaitable[plugin.Empty]],
) -> grpc.GenericRpcHandler:
    """Return the service that plugins register with."""
    method = grpc.unary_unary_rpc_method_handler(
        register, plugin.RegisterRequest.FromString, plugin.Empty.SerializeToString
    )
    return grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": method})


def pod_resources_handler(
    lister: Callable[[resources.ListPodResourcesRequest, Context], Awaitable[bytes]],
) -> grpc.GenericRpcHandler:
    """Return the service that tells who holds which devices; `lister` gives a listing that is encoded already."""
    method = grpc.unary_unary_rpc_method_handler(lister, resources.ListPodResourcesRequest.FromString, bytes)
    return grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method})


async def serve(socket: Path, handler: grpc.GenericRpcHandler) -> grpc.aio.Server:
    """Serve on a Unix socket, replacing what is there."""
    _clear(socket)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    return server


def _clear(socket: Path) -> None:
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)


class PluginClient:
    """A plugin at the other end of its socket."""

    def __init__(self, socket: Path) -> None:
        options = (("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.use_local_subchannel_pool", 1))
        self._channel = grpc.aio.insecure_channel(f"unix://{socket}", options=options)

    async def list_and_watch(self) -> AsyncIterator[plugin.ListAndWatchResponse]:
        """Yield the plugin's device lists."""
        call = self._channel.unary_stream(
            f"{_PLUGIN}/ListAndWatch", plugin.Empty.SerializeToString, plugin.ListAndWatchResponse.FromString
        )
        async for answer in call(plugin.Empty()):
            yield answer

    async def allocate(self, ids: Sequence[str]) -> plugin.ContainerAllocateResponse:
        """Ask for the ids, for one container."""
        call = self._channel.unary_unary(
            f"{_PLUGIN}/Allocate", plugin.AllocateRequest.SerializeToString, plugin.AllocateResponse.FromString
        )
        request = plugin.AllocateRequest(container_requests=[plugin.ContainerAllocateRequest(devices_ids=ids)])
        answer: plugin.AllocateResponse = await call(request)
        return answer.container_responses[0]

    async def preferred(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        """Ask which of the available ids to take."""
        call = self._channel.unary_unary(
            f"{_PLUGIN}/GetPreferredAllocation",
            plugin.PreferredAllocationRequest.SerializeToString,
            plugin.PreferredAllocationResponse.FromString,
        )
        wanted = plugin.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        answer: plugin.PreferredAllocationResponse = await call(
            plugin.PreferredAllocationRequest(container_requests=[wanted])
        )
        return list(answer.container_responses[0].deviceIDs) if answer.container_responses else []

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()
