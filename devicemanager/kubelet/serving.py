"""A plugin on its socket, and known to its kubelet (spec 06 §5, cases B017, B035).

For: the plugin manager. In: a plugin, the kubelet's folder. Out: runs until cancelled, generation after generation.
A generation binds a socket of its own name and renames it to the public one. So a successor takes over in one step, and
gRPC, which unlinks what it bound when a server stops, unlinks nothing of the successor's.
Promises:
  - the public name always leads to the newest server; a stopping server never removes it;
  - a socket that was wiped (the kubelet does so on its start) is back, and registered, within two ticks;
  - a kubelet that was replaced without wiping is registered with again;
  - an older process whose name was taken over serves what is under way and registers no more;
  - a refused registration is repeated every tick, and logged once.
"""

from __future__ import annotations

import logging
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from devicemanager.kubelet.methods import VERSION, register, target_of
from devicemanager.kubelet.plugin import Plugin
from devicemanager.proto import deviceplugin_pb2 as messages
from kube.clock import Clock

log = logging.getLogger(__name__)

_REGISTER_TIMEOUT_S = 15.0
_SLOWEST_RESTART_S = 30.0


@dataclass(frozen=True, slots=True)
class KubeletSocket:
    """Where the kubelet listens; plugins' sockets stand beside it."""

    path: Path = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
    tick_s: float = 0.5

    @property
    def folder(self) -> Path:
        """Return the folder of all plugins' sockets."""
        return self.path.parent


class Serving:
    """One plugin's generations."""

    def __init__(self, plugin: Plugin, kubelet: KubeletSocket, clock: Clock) -> None:
        self.plugin = plugin
        self.generation = 0
        self.registered = False
        self.trouble = ""
        self._kubelet = kubelet
        self._clock = clock
        self._path = kubelet.folder / plugin.resource.socket

    async def run(self) -> None:
        """Serve and stay registered until cancelled."""
        pause = self._kubelet.tick_s
        while True:
            try:
                await self._generation()
                pause = self._kubelet.tick_s
            except (OSError, RuntimeError) as refused:  # gRPC raises RuntimeError when it cannot listen
                self._say(f"cannot listen on {self._path}: {refused}")
                await self._clock.sleep(pause)
                pause = min(pause * 2, _SLOWEST_RESTART_S)

    async def _generation(self) -> None:
        self.generation += 1
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self.plugin.handler(),))
        own = self._kubelet.folder / f".{secrets.token_hex(6)}.sock"
        server.add_insecure_port(target_of(own))
        await server.start()
        try:
            own.rename(self._path)
            await self._stay_registered(_identity(self._path))
        finally:
            self.registered = False
            await server.stop(None)  # the next generation binds after this one has let go

    async def _stay_registered(self, own: tuple[int, int] | None) -> None:
        """Return when the socket is gone."""
        known_kubelet = None
        while True:
            kubelet, found = _identity(self._kubelet.path), _identity(self._path)
            if found is None:
                log.info("plugin socket removed", extra={"resource": self.plugin.resource.name})
                return
            if found != own:
                self._say("another process serves this resource now")
            elif kubelet and (kubelet != known_kubelet or not self.registered):
                known_kubelet = kubelet
                await self._register()
            elif not kubelet:
                self.registered = False
                self._say(f"the kubelet's socket {self._kubelet.path} is not there")
            await self._clock.sleep(self._kubelet.tick_s)

    async def _register(self) -> None:
        resource = self.plugin.resource
        request = messages.RegisterRequest(
            version=VERSION, endpoint=self._path.name, resource_name=resource.name, options=self.plugin.options
        )
        try:
            await register(self._kubelet.path, request, timeout_s=_REGISTER_TIMEOUT_S)
        except grpc.aio.AioRpcError as refused:
            self.registered = False
            self._say(f"the kubelet does not take the registration: {refused.code().name}: {refused.details()}")
            return
        self.registered = True
        self._say("")
        log.info("plugin registered", extra={"resource": resource.name, "generation": self.generation})

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            log.warning("plugin not served", extra={"resource": self.plugin.resource.name, "reason": trouble})
        self.trouble = trouble


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from its successor; None when there is none (or it may not be looked at).

    File systems give the inode's number of a file just removed to the next one, so the time of making counts too.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
