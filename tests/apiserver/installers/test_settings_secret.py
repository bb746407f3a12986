"""The settings Secret: complete, and never overwritten."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path

from api.settings import BY_NAME, SECRET_NAME, settings_of
from apiserver.installers.settings_secret import SettingsInstaller
from kube.reconciler import Object
from nodefeature.kinds import SECRET
from tests.builders.extension_cluster import SYSTEM, ExtensionCluster


def run(folder: Path, test: Callable[[ExtensionCluster], Awaitable[None]]) -> None:
    async def body() -> None:
        async with ExtensionCluster(folder).running() as cluster:
            await test(cluster)

    asyncio.run(body())


def installer(cluster: ExtensionCluster, **seeds: str) -> SettingsInstaller:
    named = {name.replace("_", "-"): value for name, value in seeds.items()}
    return SettingsInstaller(cluster.admin, namespace=SYSTEM, seeds=named)


async def secret(cluster: ExtensionCluster) -> Object:
    return await cluster.admin.get(SECRET, SECRET_NAME, SYSTEM)


def test_absent_becomes_complete_with_its_seeds(tmp_path: Path) -> None:
    async def test(cluster: ExtensionCluster) -> None:
        await installer(cluster, node_management_manual="true").ensure()
        found = await secret(cluster)
        assert found["data"].keys() == BY_NAME.keys()
        reading = settings_of(found)
        assert (reading.settings.node_management_manual, reading.problems, reading.unknown) == (True, (), ())

    run(tmp_path, test)


def test_settled_is_not_written(tmp_path: Path) -> None:
    async def test(cluster: ExtensionCluster) -> None:
        await installer(cluster).ensure()
        before = await secret(cluster)
        await installer(cluster, node_management_manual="true").ensure()
        assert await secret(cluster) == before

    run(tmp_path, test)


def test_a_new_setting_is_added_and_nothing_else_touched(tmp_path: Path) -> None:
    async def test(cluster: ExtensionCluster) -> None:
        mine = {"container-registry": base64.b64encode(b"registry.test").decode(), "unknown": "eA=="}
        await cluster.admin.create(
            SECRET, {"metadata": {"name": SECRET_NAME, "namespace": SYSTEM}, "data": {**mine, "image-pull-policy": ""}}
        )
        await installer(cluster).ensure()
        data = (await secret(cluster))["data"]
        assert data.keys() == {*BY_NAME, "unknown"}
        assert {key: data[key] for key in mine} == mine
        assert data["image-pull-policy"] == ""

    run(tmp_path, test)


def test_replicas_that_start_together_agree(tmp_path: Path) -> None:
    async def test(cluster: ExtensionCluster) -> None:
        await asyncio.gather(*(installer(cluster).ensure() for _ in range(5)))
        assert (await secret(cluster))["data"].keys() == BY_NAME.keys()

    run(tmp_path, test)
