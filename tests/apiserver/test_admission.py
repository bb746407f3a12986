"""Writes to a devcluster through our webhooks over TLS, and while nobody answers. Cases B011, B032."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kube.errors import ApiError, Invalid, NotFound
from nodefeature.kinds import (
    INSTANCE,
    INSTANCE_TYPE,
    MUTATING_WEBHOOK_CONFIGURATION,
    NAMESPACE,
    POD,
    SECRET,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from nodefeature.labels import QUEUE_ENTRANCE, QUEUE_NAME
from tests.apiserver.serving.https import run
from tests.apiserver.test_process import Replica, until
from tests.builders.admission import instance, pod, pool
from tests.builders.extension_cluster import SYSTEM, ExtensionCluster

pytestmark = pytest.mark.component

POOL = "gpustack-nvidia-a10g-linux-amd64"
ENTRANCE = "gpustack-fnv64-7bc37bef52624161"
GPU = "nvidia.com/gpu"


def test(folder: Path, body: Callable[[ExtensionCluster, Replica], Awaitable[None]]) -> None:
    async def inner() -> None:
        async with ExtensionCluster(folder).running() as cluster:
            replica = Replica(cluster)
            async with replica.running():
                await until(lambda: installed(cluster))
                await cluster.admin.create(NAMESPACE, {"metadata": {"name": "team-a"}})
                await make_pool(cluster)
                await body(cluster, replica)

    run(inner())


test.__test__ = False  # type: ignore[attr-defined] # pytest would collect a helper of this name


async def installed(cluster: ExtensionCluster) -> bool:
    kinds = (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
    return all([len(await cluster.admin.list(kind)) == 1 for kind in kinds])


async def make_pool(cluster: ExtensionCluster) -> None:
    made = pool(POOL, group="nvidia-a10g", profiles={"1g.10gb": 10240})
    created = await cluster.admin.create(INSTANCE_TYPE, {"metadata": {"name": POOL}, "spec": made["spec"]})
    assert created["metadata"]["labels"][QUEUE_ENTRANCE] == ENTRANCE
    views = ("acceleratorShared", "acceleratorSliced", "acceleratorPartitioned")
    status = made["status"] | dict.fromkeys(views, made["status"]["cpu"])
    await cluster.admin.update(INSTANCE_TYPE, {**created, "status": status}, subresource="status")


def sliced_pod(name: str, **more: str) -> Any:
    asks = {f"{GPU}.sliced": "1", f"{GPU}.sliced.memory-mib": "10240", **more}
    return {
        **pod([{"asks": asks}], queue=ENTRANCE),
        "metadata": {"name": name, "namespace": "team-a", "labels": {QUEUE_NAME: ENTRANCE}},
    }


def box(name: str, **spec: Any) -> Any:
    resources = {"acceleratorSlicedMemoryPercentage": 50}
    made = instance(type=POOL, resources=resources, **spec)
    return {**made, "metadata": {"name": name, "namespace": "team-a"}}


def test_writes_through_the_webhooks(tmp_path: Path) -> None:
    async def body(cluster: ExtensionCluster, _replica: Replica) -> None:
        admin = cluster.admin
        made = await until_ready(lambda: admin.create(POD, sliced_pod("slice")))
        limits = made["spec"]["containers"][0]["resources"]["limits"]
        assert (limits[f"{GPU}.sliced.units"], limits[f"{GPU}.sliced.cores-percentage"]) == ("200k", "100")
        with pytest.raises(Invalid, match=r"denied the request.*found .exclusive sliced."):
            await admin.create(POD, sliced_pod("two", **{GPU: "1"}))
        with pytest.raises(NotFound):
            await admin.get(POD, "two", "team-a")
        dry = await admin.create(POD, sliced_pod("dry"), dry_run=True)
        assert f"{GPU}.sliced.units" in dry["spec"]["containers"][0]["resources"]["limits"]
        with pytest.raises(NotFound):
            await admin.get(POD, "dry", "team-a")
        plain = await admin.create(POD, {**pod([{}], queue=""), "metadata": {"name": "plain", "namespace": "team-a"}})
        assert "env" not in plain["spec"]["containers"][0]

        stored = await admin.create(INSTANCE, box("box"))
        assert stored["spec"]["resources"] == {
            "accelerator": "1",
            "acceleratorSlicedMemoryPercentage": 50,
            "acceleratorSlicedCoresPercentage": 50,
            "cpu": "8",
            "ram": "20Gi",
            "localStorage": "15Gi",
        }
        with pytest.raises(Invalid, match=r"spec.image: Forbidden: image is immutable"):
            await admin.patch(INSTANCE, "box", {"spec": {"image": "other"}}, "team-a")
        renamed = await admin.patch(INSTANCE, "box", {"spec": {"displayName": "mine"}}, "team-a")
        assert renamed["spec"]["displayName"] == "mine"
        assert renamed["spec"]["resources"] == stored["spec"]["resources"]
        with pytest.raises(Invalid, match=r"os is immutable"):
            await admin.patch(INSTANCE_TYPE, POOL, {"spec": {"os": "windows"}})

    test(tmp_path, body)


async def until_ready(act: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat what is a 500 while the server has not seen the type's detail."""
    async with asyncio.timeout(10):
        while True:
            try:
                return await act()
            except ApiError as error:
                if error.code != 500:
                    raise
            await asyncio.sleep(0.02)


def test_b032_nobody_answers(tmp_path: Path) -> None:
    async def body(cluster: ExtensionCluster, replica: Replica) -> None:
        admin = cluster.admin
        await admin.create(
            INSTANCE,
            {
                **box("held", stop=True),
                "metadata": {"name": "held", "namespace": "team-a", "finalizers": ["gpustack.ai/controlled"]},
            },
        )
        replica.server.listener.stop_accepting()
        with pytest.raises(ApiError, match=r"failed calling webhook .mutate.gpustack-worker.core.v1.pod") as refused:
            await admin.create(POD, sliced_pod("refused"))
        assert refused.value.code == 500
        await admin.create(POD, {**pod([{}], queue=""), "metadata": {"name": "plain", "namespace": "team-a"}})
        await admin.create(
            POD,
            {
                **sliced_pod("system"),
                "metadata": {"name": "s", "namespace": "kube-system", "labels": {QUEUE_NAME: ENTRANCE}},
            },
        )
        await admin.create(SECRET, {"metadata": {"name": "s", "namespace": SYSTEM}})
        await admin.patch(INSTANCE, "held", {"status": {"phase": "Stopped"}}, "team-a", subresource="status")
        await admin.delete(INSTANCE, "held", "team-a")
        await admin.patch(INSTANCE, "held", {"metadata": {"finalizers": None}}, "team-a")
        with pytest.raises(NotFound):
            await admin.get(INSTANCE, "held", "team-a")

    test(tmp_path, body)
