"""The product's client and informer against kube-apiserver, in what a fake server can only imitate.

Bookmarks, streaming lists, page tokens that expire, 429 from priority and fairness, a projected token that is rotated,
apply conflicts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import uvloop

from hack.controlplane import audit
from hack.controlplane.admin import Admin, Object
from hack.controlplane.control_plane import ControlPlane
from hack.controlplane.manifests import namespace_manifest
from hack.controlplane.product import Account, install_account
from kube.client import Client, Page
from kube.clock import SystemClock
from kube.connection import Connection
from kube.credentials import find_credentials, in_cluster
from kube.errors import Conflict, Expired, TooManyRequests, Unauthorized
from kube.informer import Informer
from kube.reconciler import Selection
from kube.requests import ListOptions
from kube.store import Change, Store
from kube.watch import LineSplitter, decode_event
from nodefeature.fields import as_str, at, name_of
from nodefeature.kinds import CONFIG_MAP, NAMESPACE, SECRET, Kind

pytestmark = pytest.mark.timeout(600)

TEAM = "team-client"
READER = Account(name="slow-reader", namespace=TEAM)
RBAC_GROUP = "rbac.authorization.k8s.io"
FLOW_GROUP = "flowcontrol.apiserver.k8s.io/v1"
IDLE_WATCH_S = 12
"""kube-apiserver sends a bookmark two seconds before a watch ends."""


@pytest.fixture(scope="module")
def team(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace, and in it an account that may read ConfigMaps."""
    admin = control_plane.admin
    admin.apply(namespace_manifest(TEAM))
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]
    meta = {"name": READER.name, "namespace": TEAM}
    role: Object = {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "Role", "metadata": meta, "rules": rules}
    subject = {"kind": "ServiceAccount", "name": READER.name, "namespace": TEAM}
    reference = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": READER.name}
    binding = {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}
    del binding["rules"]
    install_account(admin, READER, [role, binding])
    yield TEAM
    admin.delete(NAMESPACE, TEAM)


def config_map(name: str, **data: str) -> Object:
    meta = {"name": name, "namespace": TEAM}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def run(control_plane: ControlPlane, test: Callable[[Client], Awaitable[None]]) -> None:
    """Run a test with the product's client, as the administrator."""

    async def body() -> None:
        client = Client(Connection(find_credentials(kubeconfig=str(control_plane.kubeconfig), environ={})))
        try:
            await test(client)
        finally:
            await client.close()
            await asyncio.sleep(0.25)  # a TLS connection that was broken off ends some turns of the loop later

    uvloop.run(body())


def test_a_streaming_list_ends_with_its_bookmark(control_plane: ControlPlane, team: str) -> None:
    async def test(client: Client) -> None:
        await client.create(CONFIG_MAP, config_map("streamed"))
        options = ListOptions(resource_version_match="NotOlderThan")
        opened = client.watch(CONFIG_MAP, TEAM, options, timeout_s=30, initial=True, first_s=10)
        splitter, events = LineSplitter(), []
        async with opened as chunks:
            async for chunk in chunks:
                events += [decode_event(line) for line in splitter.feed(chunk)]
                if events and events[-1].ends_initial:
                    break
        assert "streamed" in {name_of(event.object) for event in events[:-1]}
        assert {event.type for event in events[:-1]} == {"ADDED"}
        assert int(events[-1].version) > 0

    run(control_plane, test)


class Impatient(Client):
    """Ends every watch soon, and remembers from which version each started."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.started: asyncio.Queue[str] = asyncio.Queue()

    def watch(
        self, kind: Kind, namespace: str, options: ListOptions, *, timeout_s: int, initial: bool, first_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        self.started.put_nowait(options.resource_version)
        return super().watch(kind, namespace, options, timeout_s=IDLE_WATCH_S, initial=initial, first_s=first_s)

    async def list_page(self, kind: object, namespace: str = "", options: ListOptions | None = None) -> Page:
        raise AssertionError("an informer with a version must not list")


def test_a_bookmark_moves_an_idle_watch_on(control_plane: ControlPlane, team: str) -> None:
    """Nothing that the informer selects changes, and yet it goes on after what others changed meanwhile."""

    async def test(client: Client) -> None:
        impatient, seen = Impatient(client.connection), list[Change]()
        selection = Selection(namespace=TEAM, field_selector="metadata.name=nobody")
        informer = Informer(
            impatient, Store(CONFIG_MAP), seen.append, selection=selection, clock=SystemClock(), rng=random.Random(1)
        )
        following = asyncio.create_task(informer.run(), name="informer")
        async with asyncio.timeout(60):
            assert await impatient.started.get() == ""
            await informer.synced.wait()
            changed = await asyncio.to_thread(control_plane.admin.create, config_map("somebody"))
            second = await impatient.started.get()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert int(second) >= int(changed["metadata"]["resourceVersion"])
        assert seen == []

    run(control_plane, test)


def test_an_informer_follows_a_restart_of_the_server(control_plane: ControlPlane, team: str) -> None:
    async def test(client: Client) -> None:
        seen: asyncio.Queue[Change] = asyncio.Queue()
        store = Store(CONFIG_MAP)
        selection = Selection(namespace=TEAM, field_selector="metadata.name!=kube-root-ca.crt")
        informer = Informer(
            client, store, seen.put_nowait, selection=selection, clock=SystemClock(), rng=random.Random(1)
        )
        following = asyncio.create_task(informer.run(), name="informer")
        async with asyncio.timeout(60):
            await informer.synced.wait()
            await asyncio.to_thread(control_plane.admin.create, config_map("before"))
            while name_of((await seen.get()).new) != "before":
                pass
            await asyncio.to_thread(control_plane.restart, "kube-apiserver")
            await asyncio.to_thread(control_plane.admin.create, config_map("after"))
            while name_of((await seen.get()).new) != "after":
                pass
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    run(control_plane, test)


async def expire(client: Client, control_plane: ControlPlane, token: str) -> None:
    """Make a page token unusable: the collection moves on, its past goes, and kube-apiserver learns of it."""
    for turn in "ab":
        await asyncio.to_thread(control_plane.admin.apply, config_map("turn", turn=turn))
    await asyncio.to_thread(control_plane.compact)
    async with asyncio.timeout(40):
        while True:
            try:
                await client.list_page(CONFIG_MAP, TEAM, ListOptions(limit=3, continue_token=token))
            except Expired:
                return
            await asyncio.sleep(0.5)  # it looks for a compaction every 15 s, and tells no watch


class Compacting(Client):
    """Compacts etcd between the first page and the second."""

    def __init__(self, connection: Connection, control_plane: ControlPlane) -> None:
        super().__init__(connection)
        self.pages: list[ListOptions] = []
        self._control_plane = control_plane

    async def list_page(self, kind: object, namespace: str = "", options: ListOptions | None = None) -> Page:
        self.pages.append(options or ListOptions())
        page = await super().list_page(CONFIG_MAP, namespace, options)
        if len(self.pages) == 1:
            await expire(Client(self.connection), self._control_plane, page.continue_token)
        return page


def test_an_expired_page_leads_to_one_list_that_is_whole(control_plane: ControlPlane, team: str) -> None:
    names = {f"paged-{number:02d}" for number in range(8)}
    for name in names:
        control_plane.admin.apply(config_map(name))

    async def test(client: Client) -> None:
        compacting = Compacting(client.connection, control_plane)
        items, version = await compacting.list_all(CONFIG_MAP, TEAM, ListOptions(limit=3))
        found = [name_of(item) for item in items]
        assert names <= set(found)
        assert len(found) == len(set(found))
        assert int(version) > 0
        assert compacting.pages[-1].limit == 0  # the token was refused; one list without pages followed

    run(control_plane, test)


def test_apply_conflicts_until_forced(control_plane: ControlPlane, team: str) -> None:
    async def test(client: Client) -> None:
        one, two = client.as_manager("one"), client.as_manager("two")
        await one.apply(CONFIG_MAP, config_map("shared", text="1"))
        with pytest.raises(Conflict, match=r"conflict with \"one\""):
            await two.apply(CONFIG_MAP, config_map("shared", text="2"), force=False)
        forced = await two.apply(CONFIG_MAP, config_map("shared", text="2"))
        assert forced["data"] == {"text": "2"}
        with pytest.raises(Conflict):
            await one.apply(CONFIG_MAP, config_map("shared", text="1"), force=False)

    run(control_plane, test)


@pytest.fixture
def starved(control_plane: ControlPlane, team: str) -> Iterator[None]:
    """Give the reader a priority level of one seat: kube-apiserver rejects what comes beside a running request."""
    admin = control_plane.admin
    limited: Object = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0}
    limited["limitResponse"] = {"type": "Reject"}
    level: Object = {
        "apiVersion": FLOW_GROUP,
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "starved"},
        "spec": {"type": "Limited", "limited": limited},
    }
    subject = {"kind": "ServiceAccount", "serviceAccount": {"name": READER.name, "namespace": TEAM}}
    scope = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    flow: Object = {
        "apiVersion": FLOW_GROUP,
        "kind": "FlowSchema",
        "metadata": {"name": "starved"},
        "spec": {
            "priorityLevelConfiguration": {"name": "starved"},
            "matchingPrecedence": 2,
            "rules": [{"subjects": [subject], "resourceRules": [scope]}],
        },
    }
    for obj in (level, flow):
        admin.apply(obj)
    yield
    for obj in (flow, level):
        admin.delete(admin.kind_of(obj), "starved")


def test_429_of_priority_and_fairness_is_waited_out(control_plane: ControlPlane, starved: None, tmp_path: Path) -> None:
    credentials = pod_folder(control_plane, tmp_path)
    write_token(tmp_path, fresh_token(control_plane.admin))

    def rejected() -> int:
        requests = audit.read(control_plane.audit_log, user=READER.user)
        return sum(1 for request in requests if request.code == httpx.codes.TOO_MANY_REQUESTS)

    async def body() -> None:
        client = Client(Connection(in_cluster(credentials, folder=tmp_path)))
        outcomes: list[object] = []
        async with asyncio.timeout(90):
            while not rejected():  # the server takes a moment to read its configuration
                calls = [client.list(CONFIG_MAP, TEAM) for _ in range(12)]
                outcomes += await asyncio.gather(*calls, return_exceptions=True)
        served = [outcome for outcome in outcomes if isinstance(outcome, list)]
        given_up = [outcome for outcome in outcomes if not isinstance(outcome, list)]
        assert all(isinstance(error, TooManyRequests) and (error.retry_after or 0) >= 1 for error in given_up)
        assert len(served) > len(given_up)
        await client.close()

    uvloop.run(body())


def pod_folder(control_plane: ControlPlane, folder: Path) -> dict[str, str]:
    """Lay out what a kubelet gives to a Pod; return the variables."""
    (folder / "ca.crt").write_bytes(control_plane.authority.read_bytes())
    server = urlsplit(control_plane.server)
    return {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}


def write_token(folder: Path, token: str) -> None:
    """Put a token in place in one step, as a kubelet does."""
    fresh = folder / "fresh"
    fresh.write_text(token)
    fresh.rename(folder / "token")


def fresh_token(admin: Admin, bound_to: Object | None = None) -> str:
    """Return a token of the reader, bound to a Secret when one is given: it dies with it."""
    spec: Object = {"expirationSeconds": 600}
    if bound_to is not None:
        meta = bound_to["metadata"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Secret", "name": meta["name"], "uid": meta["uid"]}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = admin.post(f"/api/v1/namespaces/{TEAM}/serviceaccounts/{READER.name}/token", body)
    return as_str(at(answer, "status", "token"))


def test_b048_a_rotated_token_costs_no_request(control_plane: ControlPlane, team: str, tmp_path: Path) -> None:
    admin = control_plane.admin
    meta = {"name": "first-token", "namespace": TEAM}
    secret = admin.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta})
    credentials = pod_folder(control_plane, tmp_path)
    write_token(tmp_path, fresh_token(admin, secret))
    old = (tmp_path / "token").read_text()

    async def body() -> None:
        client = Client(Connection(in_cluster(credentials, folder=tmp_path)))
        assert isinstance(await client.list(CONFIG_MAP, TEAM), list)
        await asyncio.to_thread(write_token, tmp_path, fresh_token(admin))
        await asyncio.to_thread(admin.delete, SECRET, "first-token", TEAM)
        async with asyncio.timeout(60):
            while await asyncio.to_thread(accepts, control_plane, old):
                pass
            # The client still holds the old token; the file has the new one.
            assert isinstance(await client.list(CONFIG_MAP, TEAM), list)
        (tmp_path / "token").write_text(old)
        stale = Client(Connection(in_cluster(credentials, folder=tmp_path)))
        with pytest.raises(Unauthorized):
            await stale.list(CONFIG_MAP, TEAM)
        await stale.close()
        await client.close()

    uvloop.run(body())


def accepts(control_plane: ControlPlane, token: str) -> bool:
    """Say whether the server still takes a token: it believes one for ten seconds after its end."""
    asking = Admin(control_plane.server, authority=control_plane.authority, token=token)
    try:
        return asking.get(CONFIG_MAP, "none", TEAM) is None
    except Exception as error:
        if getattr(error, "code", 0) == 401:
            return False
        raise
    finally:
        asking.close()
