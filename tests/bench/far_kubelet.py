"""`python -m tests.bench.far_kubelet FOLDER`: a kubelet stand-in as a process of its own.

For: benches of the agent, whose own time is measured. In: orders as lines of JSON, `[name, arguments...]`.
Out: one line of JSON for each order. `FarKubelet` is the other end.
Promises: what the kubelet does costs the agent's process nothing; times are of the clock that all processes share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from hack.kubelet.kubelet import Kubelet
from hack.kubelet.wire import PluginClient
from nodefeature.fields import uid_of

Object = dict[str, Any]
_LONGEST_LINE = 16 * 1024 * 1024
_PATIENCE_S = 60.0


class FarKubelet:
    """A kubelet stand-in in a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def served(self, plugins: int) -> None:
        """Return when so many plugins have brought a list."""
        await self._ask("served", plugins)

    async def admit(self, pod: Mapping[str, Any]) -> Object:
        """Take a Pod in; return its status."""
        status: Object = await self._ask("admit", pod)
        return status

    async def know(self, pod: Mapping[str, Any]) -> None:
        """List a Pod that is still to be admitted."""
        await self._ask("know", pod)

    async def forget(self, uid: str) -> None:
        """Let a Pod go."""
        await self._ask("forget", uid)

    async def free_token(self, resource: str, card: str) -> str:
        """Return a healthy token of a card that no container has."""
        return str(await self._ask("free_token", resource, card))

    async def allocate(self, socket: Path, token: str) -> float:
        """Ask the plugin behind a socket for a token; return the seconds it took."""
        return float(await self._ask("allocate", str(socket), token))

    async def hears(self, resource: str, token: str, *, healthy: bool) -> float:
        """Return when the first list came in which a token is as named."""
        return float(await self._ask("hears", resource, token, healthy))

    async def endpoint(self, resource: str) -> Object:
        """Return what the kubelet has heard of a resource: `lists`, `healthy` (how many), `fault`."""
        found: Object = await self._ask("endpoint", resource)
        return found

    async def _ask(self, *order: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        line = await self._process.stdout.readline()
        assert line, f"the kubelet ended under {order[0]}"
        return json.loads(line)


@asynccontextmanager
async def far_kubelet(folder: Path) -> AsyncIterator[FarKubelet]:
    """Run a kubelet whose folder this is until the block ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.far_kubelet", str(folder)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LONGEST_LINE,
    )
    try:
        kubelet = FarKubelet(process)
        await kubelet.served(0)
        yield kubelet
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


class _Orders:
    """What the process does for each order."""

    def __init__(self, folder: Path) -> None:
        self._told: dict[str, Object] = {}
        self._clients: dict[str, PluginClient] = {}
        self.kubelet = Kubelet(folder, tell=self._tell)

    async def served(self, plugins: int) -> None:
        endpoints = self.kubelet.devices.endpoints
        async with asyncio.timeout(_PATIENCE_S):
            while sum(e.lists > 0 for e in endpoints.values()) < plugins:  # noqa: ASYNC110 - other people's state
                await asyncio.sleep(0.01)

    async def admit(self, pod: Object) -> Object:
        await self.kubelet.admit(pod)
        return self._told.pop(uid_of(pod))

    async def know(self, pod: Object) -> None:
        self.kubelet.pods[uid_of(pod)] = pod

    async def forget(self, uid: str) -> None:
        self.kubelet.remove(uid)

    async def free_token(self, resource: str, card: str) -> str:
        devices = self.kubelet.devices
        used = {text for ids in devices.given.values() for text in ids}
        free = devices.endpoints[resource].healthy - used
        return min(text for text in free if text.startswith(card))

    async def allocate(self, socket: str, token: str) -> float:
        client = self._clients.setdefault(socket, PluginClient(Path(socket)))
        started = time.monotonic()
        await client.allocate([token])
        return time.monotonic() - started

    async def endpoint(self, resource: str) -> Object:
        found = self.kubelet.devices.endpoints[resource]
        return {"lists": found.lists, "healthy": len(found.healthy), "fault": found.fault}

    async def hears(self, resource: str, token: str, healthy: bool) -> float:
        devices = self.kubelet.devices
        endpoint = devices.endpoints[resource]
        async with asyncio.timeout(_PATIENCE_S):
            while (token in endpoint.healthy) != healthy:
                devices.changed.clear()
                await devices.changed.wait()
        return endpoint.heard

    async def _tell(self, pod: Mapping[str, Any], status: Object) -> None:
        self._told[uid_of(pod)] = status


async def _obey(folder: Path) -> None:
    """Do what is told until nobody tells anything any more."""
    orders = _Orders(folder)
    await orders.kubelet.start()
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        name, *arguments = json.loads(line)
        act: Callable[..., Awaitable[object]] = getattr(orders, name)
        answer = await act(*arguments)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    await orders.kubelet.stop()


if __name__ == "__main__":
    uvloop.run(_obey(Path(sys.argv[1])))
