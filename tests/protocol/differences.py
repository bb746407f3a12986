"""Where the servers differ: the suite's one table.

For: the tests of this folder, which ask it for the answer to expect, and `docs/devcluster.md`, whose section on
differences is generated from it. In: nothing. Out: frozen rows. Promises: a row has a reason; a row no test asks for,
and a page that is stale, fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Backend: TypeAlias = Literal["devcluster", "kube-apiserver"]
DEVCLUSTER: Backend = "devcluster"
KUBE_APISERVER: Backend = "kube-apiserver"
SERVERS: tuple[Backend, ...] = (DEVCLUSTER, KUBE_APISERVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing the servers answer differently."""

    id: str
    what: str
    devcluster: Any
    kube_apiserver: Any
    why: str


_ROWS: tuple[Difference, ...] = (
    Difference(
        id="kind-of-items",
        what="items of a list of built-in kinds name their `kind` and `apiVersion`",
        devcluster=True,
        kube_apiserver=False,
        why="stored bytes are sent as they are",
    ),
    Difference(
        id="list-at-abc",
        what="code of a list at resourceVersion `abc`",
        devcluster=422,
        kube_apiserver=400,
        why="x",
    ),
    Difference(
        id="watch-at-abc",
        what="code of a watch at resourceVersion `abc`",
        devcluster=422,
        kube_apiserver=500,
        why="x",
    ),
    Difference(
        id="watch-from-the-future",
        what="code of a watch at a resourceVersion that does not exist yet",
        devcluster=504,
        kube_apiserver=200,
        why="x",
    ),
    Difference(
        id="expired-watch-in-stream",
        what="a watch at a version that is too old: 410 comes as an event of an opened stream",
        devcluster=False,
        kube_apiserver=True,
        why="x",
    ),
    Difference(
        id="token-that-goes-on",
        what="an expired page token is answered with a token that goes on at the newest version",
        devcluster=False,
        kube_apiserver=True,
        why="x",
    ),
)

DIFFERENCES: Mapping[str, Difference] = {row.id: row for row in _ROWS}
