"""A fleet's agents in one process, before kubelets that speak the plugin protocol: from a queue to a card and back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.fleet import Machines, load_fleet, write_fleet
from hack.kubelet.follower import socket_template
from kube.client import Client
from kube.connection import Connection
from kube.credentials import find_credentials
from kube.errors import AlreadyExists
from kube.reconciler import Object
from nodefeature.fields import annotations_of, as_str, at, name_of
from nodefeature.kinds import DEVICES, INSTANCE_TYPE, NAMESPACE, POD
from nodefeature.queue_names import local_queue_name
from tests.builders.agent_world import claiming, partition
from tests.component.test_node_agent import process, until

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]

FLEET = {
    "name": "two-nodes",
    "nodes": 2,
    "label_keys": {"region": "topology.kubernetes.io/region", "zone": "topology.kubernetes.io/zone"},
    "groups": [
        {"pattern": "h100-{n:02d}", "count": 1, "machine": "nvidia-dgx-h100", "faults": "clear"},
        {"pattern": "mig-{n:02d}", "count": 1, "machine": "nvidia-hgx-a100-80gb-mig-mixed", "faults": "clear"},
    ],
}
VIEWS = ("accelerator", "acceleratorShared", "acceleratorSliced", "acceleratorPartitioned")
PATIENCE_S = 120.0


def queued(name: str, pool: str, container: Object) -> Object:
    """Return a Pod as our webhook leaves it: labelled for the pool's entrance and gated."""
    meta = {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": local_queue_name(pool)}}
    spec = {"containers": [container], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


class Story:
    """What happens once everything runs."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def pool(self, word: str, cards: int) -> str:
        """Return the Active type whose name has a word and that shows so many whole cards free."""
        for obj in await self.client.list(INSTANCE_TYPE):
            free = await self.views(name_of(obj))
            if word in name_of(obj) and at(obj, "status", "phase") == "Active" and free.get("accelerator") == cards:
                return name_of(obj)
        return ""

    async def views(self, pool: str) -> dict[str, int]:
        """Return what each view of a type says is left."""
        status = at(await self.client.get(INSTANCE_TYPE, pool), "status") or {}
        return {view: int(as_str(at(status, view, "remaining")) or 0) for view in VIEWS}

    async def phase(self, name: str) -> str:
        status = at(await self.client.get(POD, name, "default"), "status") or {}
        phase = as_str(status.get("phase"))
        return "" if phase in {"", "Pending"} else f"{phase} {status.get('message', '')}".strip()

    async def moved(self, pool: str, before: Mapping[str, int]) -> dict[str, int]:
        now = await self.views(pool)
        return now if now != before else {}

    async def allocation(self, name: str) -> dict[str, Any]:
        text = annotations_of(await self.client.get(POD, name, "default")).get(
            "device.gpustack.ai/accelerator.allocated", "{}"
        )
        found: dict[str, Any] = json.loads(text)
        return found

    async def is_back(self, pool: str, before: Mapping[str, int]) -> bool:
        return await self.views(pool) == before

    async def play(self) -> None:
        h100 = await until(lambda: self.pool("h100", 8), PATIENCE_S)
        before = await self.views(h100)
        await self.client.create(POD, queued("two", h100, claiming(exclusive=2)))
        assert await until(lambda: self.phase("two"), PATIENCE_S) == "Running"
        cards = at(await self.allocation("two"), "main", "devices", "groups")[0]["accelerators"]
        assert [card["mode"] for card in cards] == [1, 1]
        now = await until(lambda: self.moved(h100, before), PATIENCE_S)
        shares = {view: now[view] * 4 == before[view] * 3 for view in VIEWS[:3]}
        assert all(shares.values()), (before, now)
        rows = at(await self.client.get(DEVICES, "h100-01"), "status", "groups")[0]["accelerators"]
        assert {row["id"] for row in rows if row["mode"] == 1} == {card["id"] for card in cards}
        await self.client.delete(POD, "two", "default", grace_s=0)
        await until(lambda: self.is_back(h100, before), PATIENCE_S)
        await self.play_partition()

    async def play_partition(self) -> None:
        a100 = await until(lambda: self.pool("a100", 1), PATIENCE_S)
        before = await self.views(a100)
        container = partition("3g.40gb")
        container["resources"]["limits"]["nvidia.com/gpu.partitioned.units"] = "785000"  # as our webhook folds them
        await self.client.create(POD, queued("part", a100, container))
        assert await until(lambda: self.phase("part"), PATIENCE_S) == "Running"
        now = await until(lambda: self.moved(a100, before), PATIENCE_S)
        assert now["acceleratorPartitioned"] < before["acceleratorPartitioned"]
        assert (now["accelerator"], now["acceleratorSliced"]) == (before["accelerator"], before["acceleratorSliced"])
        await self.client.delete(POD, "part", "default", grace_s=0)
        await until(lambda: self.is_back(a100, before), PATIENCE_S)


async def run(root: Path) -> None:
    client = Client(Connection(find_credentials(kubeconfig=str(root / "kubeconfig"))))
    try:
        for name in ("gpustack-system", "default"):
            with contextlib.suppress(AlreadyExists):
                await client.create(NAMESPACE, {"metadata": {"name": name}})
        await Story(client).play()
    finally:
        await client.close()


def test_a_queued_pod_is_served_by_the_plugin_and_the_views_move() -> None:
    with tempfile.TemporaryDirectory(prefix="f") as folder:
        root = Path(folder)
        (root / "fleet.yaml").write_text(yaml.safe_dump(FLEET))
        write_fleet(root / "agents.jsonl", load_fleet(root / "fleet.yaml"), Machines())
        kubeconfig, place = f"--kubeconfig={root / 'kubeconfig'}", root / "k"
        with process("hack.devcluster", f"--data-dir={root / 'data'}", kubeconfig):
            _wait_for(root / "kubeconfig")
            standins = ("hack.devcluster.standins", kubeconfig, f"--fleet={root / 'fleet.yaml'}")
            agents = ("gpustack_operator", "device-manager", "serve", kubeconfig, f"--fleet={root / 'agents.jsonl'}")
            with (
                process(*standins, f"--kubelet-root={place}"),
                process("gpustack_operator", "controllers", kubeconfig, "--leader-elect=false", "--health-port=0"),
                process(*agents, f"--kube-socket={socket_template(place)}", "--monitor-period=2s", "--health-port=0"),
            ):
                asyncio.run(run(root))


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
