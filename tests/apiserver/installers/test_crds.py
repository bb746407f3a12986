"""CRDs: created, brought up to date at a start, otherwise only repaired. Case B057."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from api.crds import crd_manifests
from apiserver.installers.crds import CrdInstaller, next_crd
from kube.errors import Conflict, Forbidden
from nodefeature.kinds import CUSTOM_RESOURCE_DEFINITION as CRD
from tests.builders.extension_cluster import ExtensionCluster
from tests.kube.wire import status

MANIFESTS = crd_manifests()
NAME = MANIFESTS[0]["metadata"]["name"]


def changed(manifest: Any, **spec: Any) -> Any:
    copied = copy.deepcopy(manifest)
    copied["spec"] |= spec
    return copied


def described(text: str) -> Any:
    """Return the first manifest with another description: a schema of another version."""
    copied = copy.deepcopy(MANIFESTS[0])
    copied["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = text
    return copied


def refusing(
    method: str, code: int, reason: str, *, times: int = 1000
) -> Callable[[httpx.Request], httpx.Response | None]:
    """Refuse the next requests of one method."""
    left = [times]

    def fault(request: httpx.Request) -> httpx.Response | None:
        if request.method != method or not left[0]:
            return None
        left[0] -= 1
        return httpx.Response(code, content=orjson.dumps(status(code, reason)))

    return fault


def run(folder: Path, test: Callable[[ExtensionCluster], Awaitable[None]]) -> None:
    async def body() -> None:
        async with ExtensionCluster(folder).running() as cluster:
            await test(cluster)

    asyncio.run(body())


async def versions(cluster: ExtensionCluster) -> list[str]:
    return [crd["metadata"]["resourceVersion"] for crd in await cluster.admin.list(CRD)]


def test_a_start_installs_and_a_second_one_writes_nothing(tmp_path: Path) -> None:
    async def test(cluster: ExtensionCluster) -> None:
        await CrdInstaller(cluster.admin, MANIFESTS).install()
        first = await versions(cluster)
        assert len(first) == len(MANIFESTS)
        await CrdInstaller(cluster.admin, MANIFESTS).install()
        await CrdInstaller(cluster.admin, MANIFESTS).repair()
        assert await versions(cluster) == first

    run(tmp_path, test)


def test_a_start_brings_an_old_one_up_to_date_and_keeps_what_is_not_ours(tmp_path: Path) -> None:
    async def test(cluster: ExtensionCluster) -> None:
        await cluster.admin.create(CRD, described("old"))
        await cluster.admin.patch(CRD, NAME, {"metadata": {"labels": {"theirs": "yes"}}})
        await CrdInstaller(cluster.admin, MANIFESTS).install()
        stored = await cluster.admin.get(CRD, NAME)
        assert stored["spec"]["versions"][0]["schema"] == MANIFESTS[0]["spec"]["versions"][0]["schema"]
        assert stored["metadata"]["labels"] == {"theirs": "yes"}

    run(tmp_path, test)


def test_b057_the_old_replica_repairs_absence_and_never_the_specification(tmp_path: Path) -> None:
    async def test(cluster: ExtensionCluster) -> None:
        old = CrdInstaller(cluster.admin, (described("old"), *MANIFESTS[1:]))
        await old.install()
        new = CrdInstaller(cluster.admin, (described("new"), *MANIFESTS[1:]))
        await new.install()
        stored = await versions(cluster)
        for _ in range(3):
            await old.repair()
            await new.repair()
        assert await versions(cluster) == stored
        await cluster.admin.delete(CRD, NAME)
        await old.repair()
        assert len(await cluster.admin.list(CRD)) == len(MANIFESTS)

    run(tmp_path, test)


def test_a_conflict_is_read_again(tmp_path: Path) -> None:
    async def test(cluster: ExtensionCluster) -> None:
        await cluster.admin.create(CRD, described("old"))
        cluster.wire.faults[:] = [refusing("PUT", 409, "Conflict", times=1)]
        await CrdInstaller(cluster.admin, MANIFESTS[:1]).install()
        stored = await cluster.admin.get(CRD, NAME)
        assert stored["spec"]["versions"] == MANIFESTS[0]["spec"]["versions"]
        cluster.wire.faults[:] = [refusing("PUT", 409, "Conflict")]
        with pytest.raises(Conflict):
            await CrdInstaller(cluster.admin, [described("other")]).install()

    run(tmp_path, test)


def test_no_right_to_create_is_an_error(tmp_path: Path) -> None:
    async def test(cluster: ExtensionCluster) -> None:
        cluster.wire.faults[:] = [refusing("POST", 403, "Forbidden")]
        with pytest.raises(Forbidden):
            await CrdInstaller(cluster.admin, MANIFESTS).install()

    run(tmp_path, test)


CONVERSION = {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://x"}}}
NEXT: dict[str, tuple[Any, bool]] = {
    "the same": (MANIFESTS[0], False),
    "as the server completes it": (changed(MANIFESTS[0], conversion={"strategy": "None"}), False),
    "somebody's conversion": (changed(MANIFESTS[0], conversion=CONVERSION), False),
    "another schema": (described("old"), True),
    "no short names": (changed(MANIFESTS[0], names={"kind": "Devices", "plural": "devices"}), True),
    "nonsense": ({"spec": None}, True),
}


@pytest.mark.parametrize("row", NEXT.values(), ids=NEXT.keys())
def test_next_crd(row: tuple[Any, bool]) -> None:
    have, writes = row
    wanted = next_crd(have, MANIFESTS[0])
    assert (wanted is not None) is writes


def test_conversion_stays_and_a_going_crd_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    have = changed(described("old"), conversion=CONVERSION)
    wanted = next_crd(have, MANIFESTS[0])
    assert wanted is not None
    assert wanted["spec"] == {**MANIFESTS[0]["spec"], "conversion": CONVERSION}
    assert next_crd({**have, "metadata": {"name": NAME, "deletionTimestamp": "x"}}, MANIFESTS[0]) is None
    assert "CRD is being deleted" in caplog.text
