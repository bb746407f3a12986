"""A devcluster with an aggregator in this process, its TLS port where one is needed, and clients of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hack.devcluster.server import DevCluster
from hack.devcluster.store import Store
from kube.client import Client
from kube.clock import Clock, SystemClock
from kube.connection import Connection
from kube.credentials import Credentials, StaticCredentials
from nodefeature.kinds import NAMESPACE
from tests.builders.app_transport import Wire, WireTransport
from tests.hack.devcluster.cluster import TOKEN

SYSTEM = "gpustack-system"


class ExtensionCluster:
    """The cluster that an extension server is installed into. `wire.faults` and `wire.app = None` make it fail."""

    def __init__(self, folder: Path, clock: Clock | None = None, *, aggregates: bool = True) -> None:
        self.clock = clock or SystemClock()
        self.server = DevCluster(Store(), token=TOKEN, clock=self.clock, rng=random.Random(1), front_proxy=folder)
        if not aggregates:
            self.server.aggregator = None  # it dials for real, which virtual time cannot wait for
        self.wire = Wire()
        self.admin = self.new_client("test")

    def new_client(self, manager: str) -> Client:
        connection = Connection(
            StaticCredentials(Credentials(server="https://api.test", token=TOKEN)),
            clock=self.clock,
            rng=random.Random(1),
            open_transport=lambda _credentials, _limit: WireTransport(self.wire),
        )
        return Client(connection, field_manager=manager)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ExtensionCluster]:
        async with self.server.running():
            self.wire.app = self.server.app
            await self.admin.create(NAMESPACE, {"metadata": {"name": SYSTEM}})
            try:
                yield self
            finally:
                self.wire.cut()
                await asyncio.sleep(0)
