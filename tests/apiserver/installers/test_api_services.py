"""APIServices: ours, nobody else's, and none left behind. Case B021."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from apiserver.installers.api_services import (
    GROUPS,
    ApiServiceInstaller,
    leads_to,
    manifest,
    next_api_service,
)
from apiserver.installers.outside_service import OutsideService
from apiserver.route import Route
from kube.errors import OperatorError
from nodefeature.kinds import API_SERVICE, SERVICE
from tests.builders.extension_cluster import SYSTEM, ExtensionCluster
from tests.builders.pki import authority

BUNDLE, NEXT_BUNDLE = authority("serving").pem, authority("next").pem
ROUTE = Route(service="server", namespace=SYSTEM, port=443, bundle=BUNDLE)
NAME = "v1.worker.gpustack.ai"


def run(folder: Path, test: Callable[[ExtensionCluster, ApiServiceInstaller], Awaitable[None]]) -> None:
    async def body() -> None:
        async with ExtensionCluster(folder).running() as cluster:
            await test(cluster, ApiServiceInstaller(cluster.admin, service="server", namespace=SYSTEM))

    asyncio.run(body())


async def specs(cluster: ExtensionCluster) -> dict[str, Any]:
    return {obj["metadata"]["name"]: obj["spec"] for obj in await cluster.admin.list(API_SERVICE)}


def test_what_is_registered() -> None:
    obj = manifest("worker.gpustack.ai", ROUTE)
    assert obj["metadata"]["name"] == NAME
    spec = dict(obj["spec"])
    assert spec.pop("caBundle")
    assert spec == {
        "group": "worker.gpustack.ai",
        "version": "v1",
        "groupPriorityMinimum": 1100,
        "versionPriority": 100,
        "service": {"name": "server", "namespace": SYSTEM, "port": 443},
    }
    blind = manifest("gpustack.ai", Route(service="s", namespace="n", port=1, bundle=""))["spec"]
    assert (blind["insecureSkipTLSVerify"], "caBundle" in blind) == (True, False)


def test_installed_repaired_removed(tmp_path: Path) -> None:
    async def test(cluster: ExtensionCluster, installer: ApiServiceInstaller) -> None:
        await installer.install(ROUTE)
        first = await specs(cluster)
        assert first.keys() == {f"v1.{group}" for group in GROUPS}
        before = await cluster.admin.get(API_SERVICE, NAME)
        await installer.repair(ROUTE)
        await installer.install(ROUTE)
        after = await cluster.admin.get(API_SERVICE, NAME)
        assert before["spec"] == after["spec"]
        await cluster.admin.delete(API_SERVICE, NAME)
        await installer.repair(ROUTE)
        assert await specs(cluster) == first
        await installer.remove()
        await installer.remove()
        assert await specs(cluster) == {}

    run(tmp_path, test)


def test_somebody_elses_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: ExtensionCluster, installer: ApiServiceInstaller) -> None:
        foreign = manifest("worker.gpustack.ai", Route(service="other", namespace=SYSTEM, port=1, bundle=BUNDLE))
        await cluster.admin.create(API_SERVICE, foreign)
        await installer.install(ROUTE)
        await installer.repair(ROUTE)
        await installer.remove()
        assert (await specs(cluster))[NAME]["service"]["name"] == "other"

    run(tmp_path, test)
    assert "APIService of somebody else" in caplog.text


def test_b057_repair_renews_the_bundle_and_nothing_else(tmp_path: Path) -> None:
    async def test(cluster: ExtensionCluster, installer: ApiServiceInstaller) -> None:
        newer = Route(service="server", namespace=SYSTEM, port=8443, bundle=BUNDLE)
        await installer.install(newer)
        old_replica = Route(service="server", namespace=SYSTEM, port=443, bundle=NEXT_BUNDLE)
        await installer.repair(old_replica)
        spec = (await specs(cluster))[NAME]
        assert spec["service"]["port"] == 8443
        assert spec["caBundle"] == manifest("x", old_replica)["spec"]["caBundle"]

    run(tmp_path, test)


OURS = manifest("gpustack.ai", ROUTE)
SERVED = {**OURS, "status": {"conditions": []}}
BLIND = Route(service="server", namespace=SYSTEM, port=443, bundle="")


def with_spec(**spec: Any) -> dict[str, Any]:
    return {**OURS, "spec": {**OURS["spec"], **spec}}


NEXT: dict[str, tuple[dict[str, Any], dict[str, Any], bool, dict[str, Any] | None]] = {
    "the same": (SERVED, OURS, False, None),
    "the same, repaired": (SERVED, OURS, True, None),
    "another priority at a start": (with_spec(versionPriority=15), OURS, False, OURS["spec"]),
    "another priority, repaired": (with_spec(versionPriority=15), OURS, True, None),
    "no verification before": (
        with_spec(insecureSkipTLSVerify=True, caBundle=None),
        OURS,
        True,
        OURS["spec"],
    ),
    "no verification any more": (OURS, manifest("gpustack.ai", BLIND), False, manifest("gpustack.ai", BLIND)["spec"]),
}


@pytest.mark.parametrize("row", NEXT.values(), ids=NEXT.keys())
def test_next_api_service(row: tuple[dict[str, Any], dict[str, Any], bool, dict[str, Any] | None]) -> None:
    have, want, bundle_only, spec = row
    found = next_api_service(have, want, bundle_only=bundle_only)
    assert (found["spec"] if found is not None else None) == spec


def test_leads_to() -> None:
    assert leads_to(OURS, "server", SYSTEM)
    assert not leads_to(OURS, "server", "elsewhere")
    assert not leads_to({"spec": {"group": "x"}}, "server", SYSTEM)


def test_a_server_outside_brings_its_service(tmp_path: Path) -> None:
    async def test(cluster: ExtensionCluster, _installer: ApiServiceInstaller) -> None:
        for host in ("localhost", "localhost", "host.test"):
            await OutsideService(cluster.admin, name="server", namespace=SYSTEM, host=host).ensure()
            service = await cluster.admin.get(SERVICE, "server", SYSTEM)
            assert service["spec"]["externalName"] == host
        await cluster.admin.create(
            SERVICE, {"metadata": {"name": "chart", "namespace": SYSTEM}, "spec": {"type": "ClusterIP"}}
        )
        with pytest.raises(OperatorError, match="--service-name"):
            await OutsideService(cluster.admin, name="chart", namespace=SYSTEM, host="localhost").ensure()

    run(tmp_path, test)
