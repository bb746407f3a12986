"""The kubelet's gRPC methods: their paths, and how to serve or call them (decision 0360).

For: the plugin's server, registration, pod-resources. In/Out: message classes, handlers, callables.
Promises: paths are the kubelet's own; channels and servers are local, on Unix sockets that root alone reaches.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import grpc.aio

from devicemanager.proto import deviceplugin_pb2 as plugin
from devicemanager.proto import podresources_pb2 as resources

VERSION = "v1beta1"
_REGISTER = "/v1beta1.Registration/Register"
_LIST = "/v1.PodResourcesLister/List"
_SERVICE = "v1beta1.DevicePlugin"

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


def target_of(socket: Path) -> str:
    """Return how gRPC names a Unix socket."""
    return f"unix://{socket.absolute()}"


def plugin_handler(
    *,
    options: plugin.DevicePluginOptions,
    list_and_watch: Callable[[plugin.Empty, Context], AsyncIterator[bytes]],
    preferred: Callable[[plugin.PreferredAllocationRequest, Context], Awaitable[plugin.PreferredAllocationResponse]],
    allocate: Callable[[plugin.AllocateRequest, Context], Awaitable[plugin.AllocateResponse]],
) -> grpc.GenericRpcHandler:
    """Return the DevicePlugin service. `list_and_watch` yields messages that are encoded already."""

    async def get_options(_request: plugin.Empty, _context: Context) -> plugin.DevicePluginOptions:
        return options

    async def pre_start(_request: plugin.PreStartContainerRequest, _context: Context) -> Any:
        return plugin.PreStartContainerResponse()

    return grpc.method_handlers_generic_handler(
        _SERVICE,
        {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                get_options, plugin.Empty.FromString, plugin.DevicePluginOptions.SerializeToString
            ),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(list_and_watch, plugin.Empty.FromString, _as_is),
            "GetPreferredAllocation": grpc.unary_unary_rpc_method_handler(
                preferred,
                plugin.PreferredAllocationRequest.FromString,
                plugin.PreferredAllocationResponse.SerializeToString,
            ),
            "Allocate": grpc.unary_unary_rpc_method_handler(
                allocate, plugin.AllocateRequest.FromString, plugin.AllocateResponse.SerializeToString
            ),
            "PreStartContainer": grpc.unary_unary_rpc_method_handler(
                pre_start,
                plugin.PreStartContainerRequest.FromString,
                plugin.PreStartContainerResponse.SerializeToString,
            ),
        },
    )


async def register(kubelet: Path, request: plugin.RegisterRequest, *, timeout_s: float) -> None:
    """Register a plugin with the kubelet; grpc.aio.AioRpcError when it does not take it."""
    async with grpc.aio.insecure_channel(target_of(kubelet)) as channel:
        call = channel.unary_unary(
            _REGISTER,
            request_serializer=plugin.RegisterRequest.SerializeToString,
            response_deserializer=plugin.Empty.FromString,
        )
        await call(request, timeout=timeout_s)


class Listing:
    """A line to the kubelet's pod-resources, for many questions: dialling costs as much as an answer does."""

    def __init__(self, kubelet: Path) -> None:
        self._channel = grpc.aio.insecure_channel(target_of(kubelet), options=_LISTING)
        self._call = self._channel.unary_unary(
            _LIST,
            request_serializer=resources.ListPodResourcesRequest.SerializeToString,
            response_deserializer=resources.ListPodResourcesResponse.FromString,
        )

    async def list(self, *, timeout_s: float) -> resources.ListPodResourcesResponse | None:
        """Return the kubelet's listing, None when what it says is none; grpc.aio.AioRpcError when it says nothing."""
        # gRPC gives None for what its reader does not understand.
        answer: resources.ListPodResourcesResponse | None = await self._call(
            resources.ListPodResourcesRequest(), timeout=timeout_s
        )
        return answer

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()


# A node of hundreds of Pods lists more than gRPC's default takes; a line that nobody uses holds no socket.
_LISTING = (("grpc.max_receive_message_length", 64 * 1024 * 1024), ("grpc.client_idle_timeout_ms", 10_000))


def _as_is(message: bytes) -> bytes:
    return message
