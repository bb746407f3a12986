"""Which servers the protocol tests run against.

`PROTOCOL_SERVERS` names them, separated by commas; without it the devcluster and our views over it, which
start in a second. The real kube-apiserver joins in `make e2e`, alone and below our views.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane.control_plane import REPOSITORY
from hack.controlplane.tools import DEFAULT_CACHE
from nodefeature.kinds import Kind
from tests.protocol import backends
from tests.protocol.differences import DEVCLUSTER, SERVERS, VIEW_OF, Backend
from tests.protocol.samples import KINDS, OURS, Shelf, kind_id
from tests.protocol.wire import Object, Server

VARIABLE = "PROTOCOL_SERVERS"
_ALWAYS = f"{DEVCLUSTER},view-of-devcluster"


def wanted() -> list[str]:
    """Return the servers this run is for."""
    chosen = [word for word in os.environ.get(VARIABLE, _ALWAYS).split(",") if word]
    if not chosen or any(name not in SERVERS for name in chosen):
        raise pytest.UsageError(f"{VARIABLE}={os.environ.get(VARIABLE)!r}: names of {', '.join(SERVERS)} are expected")
    return chosen


@pytest.fixture(scope="package", params=wanted())
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator[Server]:
    """Return one server under test; it does not run on beside what is tested after this folder."""
    as_view: Backend | None = request.param if request.param in VIEW_OF else None
    if VIEW_OF.get(request.param, request.param) == DEVCLUSTER:
        with backends.devcluster(tmp_path_factory.mktemp("devcluster"), as_view=as_view) as running:
            yield running
        return
    with backends.kube_apiserver(
        REPOSITORY / ".state" / f"protocol-{worker_id}", DEFAULT_CACHE, as_view=as_view
    ) as running:
        yield running


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only the views serve where there is none."""
    only = [item for item in items if item.get_closest_marker("views") and _server_of(item) not in VIEW_OF]
    config.hook.pytest_deselected(items=only)
    items[:] = [item for item in items if item not in only]


def _server_of(item: pytest.Item) -> Any:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("server") if callspec is not None else None


@pytest.fixture
def namespace(server: Server) -> str:
    """Return an empty namespace of the test's own."""
    name = server.unused("team")
    body: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    server.ok("POST", "/api/v1/namespaces", body)
    return name


@pytest.fixture(params=KINDS, ids=kind_id)
def shelf(request: pytest.FixtureRequest, server: Server, namespace: str) -> Shelf:
    """Return an empty collection of each kind in turn."""
    kind: Kind = request.param
    return Shelf(server, kind, namespace)


@pytest.fixture(params=OURS, ids=kind_id)
def our_shelf(request: pytest.FixtureRequest, server: Server, namespace: str) -> Shelf:
    """Return an empty collection of each of our kinds in turn."""
    kind: Kind = request.param
    return Shelf(server, kind, namespace)
