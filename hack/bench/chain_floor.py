"""The floor of `bench-chain ENGINE=real`: the least a controller can do, with the product's client library.

For: `hack.bench.chain_real`, which runs it beside the product. In: a kubeconfig. Out: one status patch an event.
It watches Devices and patches the status of one object of its own with the version it saw: no cache, no window, no
decision. What the product needs beyond it is the product's own.
Run as `python -m hack.bench.chain_floor --kubeconfig FILE`.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from kube.client import Client
from kube.connection import Connection
from kube.credentials import find_credentials
from kube.errors import OperatorError
from kube.requests import ListOptions
from kube.watch import LineSplitter, decode_event
from nodefeature.kinds import DEVICES, Kind

FLOOR = Kind("bench.gpustack.ai", "v1", "floors", "Floor", namespaced=False)
FLOOR_NAME = "floor"
_WATCH_S = 3600


def floor_crd() -> dict[str, Any]:
    """Return the CRD of the floor's own object: a status and nothing else."""
    schema = {
        "type": "object",
        "properties": {"status": {"type": "object", "properties": {"seen": {"type": "string"}}}},
    }
    version = {
        "name": FLOOR.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{FLOOR.plural}.{FLOOR.group}"},
        "spec": {
            "group": FLOOR.group,
            "names": {"plural": FLOOR.plural, "singular": "floor", "kind": FLOOR.kind, "listKind": "FloorList"},
            "scope": "Cluster",
            "versions": [version],
        },
    }


async def follow(client: Client) -> None:
    """Patch once for each event, for ever."""
    page = await client.list_page(DEVICES, "", ListOptions(limit=1))
    options = ListOptions(resource_version=page.resource_version)
    async with client.watch(DEVICES, "", options, timeout_s=_WATCH_S, initial=False, first_s=30.0) as chunks:
        print("watching", flush=True)
        lines = LineSplitter()
        async for chunk in chunks:
            for line in lines.feed(chunk):
                event = decode_event(line)
                if event.type == "MODIFIED":
                    await client.patch(FLOOR, FLOOR_NAME, {"status": {"seen": event.version}}, subresource="status")


async def serve(kubeconfig: Path) -> None:
    """Follow until killed; a watch that ends is an error of the bench."""
    client = Client(Connection(find_credentials(kubeconfig=str(kubeconfig))), field_manager="bench-floor")
    try:
        await follow(client)
    finally:
        await client.close()
    raise OperatorError("the floor's watch of Devices ended")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m hack.bench.chain_floor")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    asyncio.run(serve(parser.parse_args().kubeconfig))
