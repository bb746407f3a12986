"""The order of installing, repairing and leaving, against a devcluster on virtual time. Cases B021, B057."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import orjson
import pytest

from api.crds import crd_manifests
from api.settings import SECRET_NAME
from apiserver.installers.api_services import ApiServiceInstaller
from apiserver.installers.crds import CrdInstaller
from apiserver.installers.installation import Installation, Installers
from apiserver.installers.outside_service import OutsideService
from apiserver.installers.probe import NotAnswering
from apiserver.installers.settings_secret import SettingsInstaller
from apiserver.installers.webhooks import NAMES, WebhookInstaller
from apiserver.route import Route
from kube.errors import NotFound
from nodefeature.kinds import (
    API_SERVICE,
    MUTATING_WEBHOOK_CONFIGURATION,
    NAMESPACE,
    SECRET,
    SERVICE,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from nodefeature.kinds import CUSTOM_RESOURCE_DEFINITION as CRD
from tests.builders.extension_cluster import SYSTEM, ExtensionCluster
from tests.builders.pki import authority
from tests.builders.virtual_loop import LoopClock, run_virtually
from tests.kube.wire import status

CONFIGURATION = (VALIDATING_WEBHOOK_CONFIGURATION, "gpustack-worker-validation")
BUNDLE = authority("serving").pem


class Replica:
    """One replica's installation; `answers` says whether its listener does."""

    def __init__(self, cluster: ExtensionCluster) -> None:
        self.cluster = cluster
        self.answers = True
        self.probes = 0
        client = cluster.new_client("gpustack-installer")
        installers = Installers(
            crds=CrdInstaller(client, crd_manifests()),
            settings=SettingsInstaller(client, namespace=SYSTEM, seeds={}),
            api_services=ApiServiceInstaller(client, service="server", namespace=SYSTEM),
            webhooks=WebhookInstaller(client, service="server", namespace=SYSTEM, version="1.0.0"),
            outside=OutsideService(client, name="server", namespace=SYSTEM, host="localhost"),
        )
        self.installation = Installation(installers, client, namespace=SYSTEM, clock=LoopClock(), rng=random.Random(1))

    def route(self) -> Route:
        return Route(service="server", namespace=SYSTEM, port=8443, bundle=BUNDLE)

    async def probe(self) -> None:
        self.probes += 1
        if not self.answers:
            raise NotAnswering("not yet")

    async def run(self) -> None:
        following = [
            asyncio.create_task(self.installation.follow_namespace()),
            asyncio.create_task(self.installation.follow_webhooks()),
        ]
        try:
            await self.installation.prepare()
            await self.installation.register(self.probe, self.route)
            await self.installation.repair(self.route)
        finally:
            for task in following:
                task.cancel()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def count(self) -> int:
        return len(await self.cluster.admin.list(API_SERVICE))

    async def hooks(self) -> int:
        """Return how many webhook configurations there are; the devcluster serves no policies."""
        kinds = (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
        assert set(kinds) < set(NAMES)
        return sum([len(await self.cluster.admin.list(kind)) for kind in kinds])


def run(folder: Path, test: Callable[[Replica], Awaitable[None]]) -> None:
    async def body() -> None:
        async with ExtensionCluster(folder, LoopClock(), aggregates=False).running() as cluster:
            await test(Replica(cluster))

    run_virtually(body())


def test_nothing_leads_here_before_the_listener_answers(tmp_path: Path) -> None:
    async def test(replica: Replica) -> None:
        replica.answers = False
        async with replica.running():
            await asyncio.sleep(60)
            assert (replica.installation.prepared, replica.installation.registered) == (True, False)
            assert (await replica.count(), await replica.hooks()) == (0, 0)
            assert 4 < replica.probes < 12
            replica.answers = True
            await asyncio.sleep(20)
            assert replica.installation.registered
            assert (await replica.count(), await replica.hooks()) == (2, 2)
            assert (await replica.cluster.admin.get(SERVICE, "server", SYSTEM))["spec"]["externalName"] == "localhost"

    run(tmp_path, test)


def test_b057_no_kueue_no_nfd_is_no_reason_to_wait(tmp_path: Path) -> None:
    async def test(replica: Replica) -> None:
        async with replica.running():
            await asyncio.sleep(3)
            assert replica.installation.registered
            await asyncio.sleep(9 * 60)
            assert await replica.count() == 2

    run(tmp_path, test)


def test_absence_is_repaired_within_half_a_minute(tmp_path: Path) -> None:
    async def test(replica: Replica) -> None:
        admin = replica.cluster.admin
        async with replica.running():
            await asyncio.sleep(3)
            crd = crd_manifests()[0]["metadata"]["name"]
            await admin.delete(API_SERVICE, "v1.gpustack.ai")
            await admin.delete(MUTATING_WEBHOOK_CONFIGURATION, "gpustack-worker-mutation")
            await admin.delete(VALIDATING_WEBHOOK_CONFIGURATION, "gpustack-worker-validation")
            await admin.delete(CRD, crd)
            await admin.delete(SECRET, SECRET_NAME, SYSTEM)
            await admin.delete(SERVICE, "server", SYSTEM)
            await asyncio.sleep(40)
            assert (await replica.count(), await replica.hooks()) == (2, 2)
            for kind, name, namespace in ((CRD, crd, ""), (SECRET, SECRET_NAME, SYSTEM), (SERVICE, "server", SYSTEM)):
                assert (await admin.get(kind, name, namespace))["metadata"]["name"] == name

    run(tmp_path, test)


async def edit(replica: Replica) -> None:
    """Let the validating webhooks match nothing any more."""
    admin, kind = replica.cluster.admin, VALIDATING_WEBHOOK_CONFIGURATION
    edited = await admin.get(kind, "gpustack-worker-validation")
    edited["webhooks"] = edited["webhooks"][:1]
    edited["webhooks"][0]["namespaceSelector"] = {"matchLabels": {"never": "true"}}
    await admin.update(kind, edited)


async def edited(replica: Replica) -> bool:
    after = await replica.cluster.admin.get(VALIDATING_WEBHOOK_CONFIGURATION, "gpustack-worker-validation")
    return [hook["namespaceSelector"].get("matchLabels") for hook in after["webhooks"]] != [None] * 3


def test_hand_edits_of_webhooks_are_written_back_at_once(tmp_path: Path) -> None:
    async def test(replica: Replica) -> None:
        async with replica.running():
            await asyncio.sleep(3)
            for _ in range(3):
                await edit(replica)
                assert await edited(replica)
                await asyncio.sleep(1)
                assert not await edited(replica)
                await asyncio.sleep(60)

    run(tmp_path, test)


def test_whoever_insists_on_edits_is_met_once_in_a_while(tmp_path: Path) -> None:
    async def test(replica: Replica) -> None:
        other = Replica(replica.cluster)
        async with replica.running(), other.running():
            await asyncio.sleep(3)
            began = int((await replica.cluster.admin.get(*CONFIGURATION))["metadata"]["generation"])
            for _ in range(60):
                if not await edited(replica):
                    await edit(replica)
                await asyncio.sleep(1)
            writes = int((await replica.cluster.admin.get(*CONFIGURATION))["metadata"]["generation"]) - began
            assert 4 <= writes <= 30
            await asyncio.sleep(40)
            assert not await edited(replica)

    run(tmp_path, test)

    run(tmp_path, test)


def test_settled_means_no_writes(tmp_path: Path) -> None:
    async def test(replica: Replica) -> None:
        async with replica.running():
            await asyncio.sleep(3)
            writes: list[str] = []

            def note(request: httpx.Request) -> httpx.Response | None:
                if request.method != "GET":
                    writes.append(f"{request.method} {request.url.path}")
                return None

            replica.cluster.wire.faults.append(note)
            await asyncio.sleep(600)
            assert writes == []

    run(tmp_path, test)


def test_b021_a_namespace_that_goes_takes_the_api_services_at_once(tmp_path: Path) -> None:
    async def test(replica: Replica) -> None:
        admin = replica.cluster.admin
        await admin.create(SERVICE, {"metadata": {"name": "held", "namespace": SYSTEM, "finalizers": ["test/hold"]}})
        async with replica.running() as task:
            await asyncio.sleep(3)
            assert await replica.count() == 2
            await admin.delete(NAMESPACE, SYSTEM)
            await asyncio.sleep(1)
            assert (await replica.count(), await replica.hooks()) == (0, 0)
            await asyncio.sleep(120)
            assert await replica.count() == 0
            assert task.done()
            assert replica.installation.going

    run(tmp_path, test)


def test_b021_leaving_takes_them_only_when_the_namespace_goes(tmp_path: Path) -> None:
    async def test(replica: Replica) -> None:
        async with replica.running():
            await asyncio.sleep(3)
        await replica.installation.leave()
        assert await replica.count() == 2

    run(tmp_path, test)


def test_b021_leaving_after_the_namespace_is_gone(tmp_path: Path) -> None:
    async def test(replica: Replica) -> None:
        async with replica.running():
            await asyncio.sleep(3)
        await replica.cluster.admin.delete(NAMESPACE, SYSTEM)
        await asyncio.sleep(2)
        with pytest.raises(NotFound):
            await replica.cluster.admin.get(NAMESPACE, SYSTEM)
        assert await replica.count() == 2
        await replica.installation.leave()
        assert await replica.count() == 0

    run(tmp_path, test)


def test_b021_leaving_deletes_nothing_when_nothing_can_be_read(tmp_path: Path) -> None:
    async def test(replica: Replica) -> None:
        async with replica.running():
            await asyncio.sleep(3)
        app, replica.cluster.wire.app = replica.cluster.wire.app, None
        await replica.installation.leave()
        replica.cluster.wire.app = app
        assert await replica.count() == 2

    run(tmp_path, test)


def test_an_api_server_that_is_away_is_waited_for(tmp_path: Path) -> None:
    async def test(replica: Replica) -> None:
        app, replica.cluster.wire.app = replica.cluster.wire.app, None
        async with replica.running():
            await asyncio.sleep(300)
            assert not replica.installation.prepared
            replica.cluster.wire.app = app
            await asyncio.sleep(90)
            assert replica.installation.registered
            replica.cluster.wire.app = None
            await asyncio.sleep(300)
            replica.cluster.wire.app = app
            await replica.cluster.admin.delete(API_SERVICE, "v1.gpustack.ai")
            await asyncio.sleep(120)
            assert await replica.count() == 2

    run(tmp_path, test)


def test_what_is_forbidden_is_said_and_holds_nothing_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def forbid(request: httpx.Request) -> httpx.Response | None:
        if request.method == "POST" and "customresourcedefinitions" in request.url.path:
            return httpx.Response(403, content=orjson.dumps(status(403, "Forbidden", "no right")))
        return None

    async def test(replica: Replica) -> None:
        replica.cluster.wire.faults.append(forbid)
        async with replica.running():
            await asyncio.sleep(90)
            assert replica.installation.registered
            assert await replica.count() == 2
            assert await replica.cluster.admin.list(CRD) == []

    run(tmp_path, test)
    said = [record for record in caplog.records if record.getMessage() == "not installed"]
    assert [record.levelname for record in said] == ["WARNING"]
    assert said[0].__dict__["step"] == "CRDs"


def test_two_replicas_agree(tmp_path: Path) -> None:
    async def test(replica: Replica) -> None:
        other = Replica(replica.cluster)
        async with replica.running(), other.running():
            await asyncio.sleep(120)
            assert replica.installation.registered
            assert other.installation.registered
            assert await replica.count() == 2

    run(tmp_path, test)
