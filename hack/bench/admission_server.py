"""The webhooks as the product serves them, and beside them a route that allows everything: the floor.

For: `admission_webhooks`, which starts it as a process of its own. In: a kubeconfig, a port. Out: TLS on loopback; it
says `ready` once it has read what webhooks ask. Promises: the listener, the TLS context, the route and the world are
the product's; only the floor is the bench's.
"""

from __future__ import annotations

import asyncio
import random
import sys

import uvloop
from prometheus_client import CollectorRegistry

from apiserver.rest.responses import Receive, Scope, Send, read_body, send_bytes
from apiserver.serving.certificates import ServingTls
from apiserver.serving.listener import Listener, bind
from apiserver.webhooks import review
from apiserver.webhooks.cached_world import CachedWorld
from apiserver.webhooks.route import MAX_BODY_BYTES, Webhooks
from kube.client import Client
from kube.clock import SystemClock
from kube.connection import Connection
from kube.credentials import find_credentials
from nodefeature.manufacturers import build_manufacturers

FLOOR = "/allow"


async def serve(port: int) -> None:
    """Serve until killed."""
    clock, rng = SystemClock(), random.Random(1)
    connection = Connection(find_credentials(), clock=clock, rng=rng)
    world = CachedWorld(Client(connection, field_manager="bench"), build_manufacturers({}), clock=clock, rng=rng)
    hooks = Webhooks(world, fault=world.fault, registry=CollectorRegistry())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["raw_path"].startswith(FLOOR.encode()):
            request = review.read(await read_body(receive, limit=MAX_BODY_BYTES))
            await send_bytes(send, review.write(request.uid, review.ALLOWED))
        else:
            await hooks(scope, receive, send)

    listener = Listener(app, bind("127.0.0.1", port), ServingTls(("localhost",), clock.time()).context)
    following = asyncio.create_task(world.run())
    while world.fault():
        await clock.sleep(0.05)
    await listener.open()
    print("ready", flush=True)
    await following


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
