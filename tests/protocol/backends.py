"""The servers under test, each started once a run of this folder.

For: `conftest`. In: a folder. Out: a `Server` while the block runs.
Promises: a devcluster runs inside this process, on a thread and a loopback port, so that the tests reach its store; a
kube-apiserver is the harness' own, with etcd and the controller manager and nothing else.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn

from api.crds import crd_manifests
from hack.controlplane.control_plane import ControlPlane
from hack.controlplane.pki import Pki
from hack.devcluster import certificates
from hack.devcluster.__main__ import Server as Listener
from hack.devcluster.__main__ import listen
from hack.devcluster.foreign_crds import foreign_manifests
from hack.devcluster.server import DevCluster
from hack.devcluster.store import Store
from kube.credentials import Credentials
from nodefeature.fields import as_maps, at
from nodefeature.kinds import CUSTOM_RESOURCE_DEFINITION
from tests.protocol.differences import DEVCLUSTER, KUBE_APISERVER, Backend
from tests.protocol.views import view
from tests.protocol.wire import Server

_START_S = 20.0
_CALL_S = 30.0


@dataclass(frozen=True, slots=True)
class _Running:
    """A devcluster on its thread."""

    cluster: DevCluster
    listener: Listener
    loop: asyncio.AbstractEventLoop


@contextmanager
def devcluster(folder: Path, *, as_view: Backend | None = None) -> Iterator[Server]:
    """Run a devcluster, or our views over it."""
    certificates.ensure_certificates(folder)
    token = secrets.token_urlsafe(24)
    socket = listen(0)
    socket.listen(128)
    url = f"https://127.0.0.1:{socket.getsockname()[1]}"
    started: Future[_Running] = Future()

    async def serve() -> None:
        store = Store(folder / "store.sqlite")
        cluster = DevCluster(store, token=token, crds=(*foreign_manifests(), *crd_manifests()))
        config = uvicorn.Config(
            cluster.app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
            ssl_certfile=folder / certificates.CERT_FILE,
            ssl_keyfile=str(folder / certificates.KEY_FILE),
        )
        async with cluster.running():
            listener = Listener(config)
            started.set_result(_Running(cluster, listener, asyncio.get_running_loop()))
            await listener.serve(sockets=[socket])
        store.close()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            socket.close()

    thread = threading.Thread(target=run, name="devcluster")
    thread.start()
    running = started.result(_START_S)
    try:
        context = ssl.create_default_context(cafile=str(folder / certificates.CA_FILE))
        with _client(url, context, token) as http:
            below = Server(DEVCLUSTER, http, forget=lambda: _forget(running))
            if as_view is None:
                yield below
                return
            us = Credentials(server=url, token=token, ca_pem=(folder / certificates.CA_FILE).read_text("ascii"))
            with view(as_view, below, us, context) as views:
                yield views
    finally:
        running.listener.should_exit = True
        thread.join(_START_S)


def _forget(running: _Running) -> None:
    async def forget() -> None:
        running.cluster.store.forget()

    asyncio.run_coroutine_threadsafe(forget(), running.loop).result(_CALL_S)


@contextmanager
def kube_apiserver(folder: Path, cache: Path, *, as_view: Backend | None = None) -> Iterator[Server]:
    """Run the real thing with our CRDs, or our views over it."""
    with ControlPlane(folder, cache=cache, engines=(), chain=()) as running:
        for manifest in crd_manifests():
            running.admin.apply(dict(manifest))
        for manifest in crd_manifests():
            running.admin.wait(
                CUSTOM_RESOURCE_DEFINITION, manifest["metadata"]["name"], until=_is_established, what="Established"
            )
        # The garbage collector looks for kinds when it starts, then twice a minute.
        running.start_process("kube-controller-manager")
        pair = Pki(running.layout.pki).pair("admin")
        context = ssl.create_default_context(cafile=str(running.authority))
        context.load_cert_chain(pair.certificate, pair.key)
        with _client(running.server, context) as http:
            below = Server(KUBE_APISERVER, http, forget=lambda: _compact(running))
            if as_view is None:
                yield below
                return
            certificate, key = (Path(path).read_text("ascii") for path in (pair.certificate, pair.key))
            ca = Path(running.authority).read_text("ascii")
            us = Credentials(server=running.server, ca_pem=ca, certificate_pem=certificate, key_pem=key)
            with view(as_view, below, us, context) as views:
                yield views


def _compact(running: ControlPlane) -> None:
    running.compact()


def _is_established(crd: object) -> bool:
    conditions = as_maps(at(crd, "status", "conditions"))
    return any((c.get("type"), c.get("status")) == ("Established", "True") for c in conditions)


def _client(url: str, context: ssl.SSLContext, token: str = "") -> httpx.Client:
    headers = {"user-agent": "protocol-test/1.0"} | ({"authorization": f"Bearer {token}"} if token else {})
    return httpx.Client(base_url=url, verify=context, headers=headers, timeout=_CALL_S, trust_env=False)
