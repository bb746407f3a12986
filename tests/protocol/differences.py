"""Where the servers differ: the suite's one table.

For: the tests of this folder, which ask it for the answer to expect, and `docs/devcluster.md`, whose section on
differences is generated from it. In: nothing. Out: frozen rows. Promises: a row has a reason; a row no test asks for,
and a page that is stale, fail.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

Backend: TypeAlias = Literal["devcluster", "kube-apiserver", "view-of-devcluster", "view-of-kube-apiserver"]
DEVCLUSTER: Backend = "devcluster"
KUBE_APISERVER: Backend = "kube-apiserver"
VIEW_OF: Mapping[Backend, Backend] = {"view-of-devcluster": DEVCLUSTER, "view-of-kube-apiserver": KUBE_APISERVER}
"""Our v1 views, which answer as the server below them does."""
SERVERS: tuple[Backend, ...] = (DEVCLUSTER, KUBE_APISERVER, *VIEW_OF)
PAGE = Path(__file__).parents[2] / "docs" / "devcluster.md"


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
        what="Items of a list of a built-in kind name their `kind` and `apiVersion`",
        devcluster=True,
        kube_apiserver=False,
        why="The stored bytes are sent as they are; clients of the real server fill both in, and find them here.",
    ),
    Difference(
        id="columns-of-config-maps",
        what="Columns of the Table of ConfigMaps",
        devcluster=["Name", "Age"],
        kube_apiserver=["Name", "Data", "Age"],
        why="Built-in kinds get columns of their own only where a demo shows them.",
    ),
    Difference(
        id="items-of-an-empty-metadata-list",
        what="`items` of an empty metadata-only list",
        devcluster=[],
        kube_apiserver=None,
        why="An empty list is easier to read; clients must take both.",
    ),
    Difference(
        id="any-subtype-of-built-in-kinds",
        what="Code of `Accept: application/*` for built-in kinds",
        devcluster=200,
        kube_apiserver=406,
        why="One negotiation serves all kinds here.",
    ),
    Difference(
        id="one-at-abc",
        what="Code of a GET of one object at resourceVersion `abc`",
        devcluster=400,
        kube_apiserver=500,
        why="The real answer blames the server for the client's mistake.",
    ),
    Difference(
        id="one-from-the-future",
        what="Code of a GET of one object at a resourceVersion that does not exist yet",
        devcluster=200,
        kube_apiserver=504,
        why="The newest state is served here.",
    ),
    Difference(
        id="watch-at-abc",
        what="Code of a watch at resourceVersion `abc`",
        devcluster=400,
        kube_apiserver=500,
        why="The real answer blames the server for the client's mistake.",
    ),
    Difference(
        id="watch-from-the-future",
        what="Code of a watch at a resourceVersion that does not exist yet",
        devcluster=504,
        kube_apiserver=200,
        why="The real watch stays silent until the version comes; a version from another data folder never does.",
    ),
    Difference(
        id="expired-watch-in-stream",
        what="A watch at a version that is too old: the 410 is an event of an opened stream",
        devcluster=False,
        kube_apiserver=True,
        why="It is known before the stream is opened.",
    ),
    Difference(
        id="token-that-goes-on",
        what="The 410 of an expired page token carries a token that goes on at the newest version",
        devcluster=False,
        kube_apiserver=True,
        why="Our client lists anew instead, which is the only consistent way.",
    ),
    Difference(
        id="null-body-of-built-in-kinds",
        what="Code of a create with the body `null`, built-in kinds",
        devcluster=400,
        kube_apiserver=422,
        why="One decoder serves all kinds here.",
    ),
    Difference(
        id="managers-of-a-create",
        what="Managers in `managedFields` after a create",
        devcluster=[],
        kube_apiserver=["tester"],
        why="Only what is applied is tracked: it is what our code asks of managedFields.",
    ),
    Difference(
        id="apply-over-a-plain-write",
        what="Code of an unforced apply over a field that somebody wrote plainly",
        devcluster=501,
        kube_apiserver=409,
        why="Owners of plain writes are not recorded, so the conflict cannot be judged: refused, not guessed.",
    ),
    Difference(
        id="apply-of-an-unknown-field",
        what="Code of an apply of a field the schema does not know",
        devcluster=201,
        kube_apiserver=500,
        why="The field is pruned with a warning, as in any other write.",
    ),
    Difference(
        id="strategic-merge-of-built-in-kinds",
        what="Code of a strategic merge patch of a built-in kind",
        devcluster=415,
        kube_apiserver=200,
        why="It needs the Go types' merge keys.",
    ),
)

DIFFERENCES: Mapping[str, Difference] = {row.id: row for row in _ROWS}

BEGIN = "<!-- generated from tests/protocol/differences.py -->"
END = "<!-- end of the generated part -->"
_WORDS = {True: "yes", False: "no", None: "`null`"}


def difference_table() -> str:
    """Return the table as Markdown."""
    lines = ["| What | Devcluster | kube-apiserver | Why |", "|---|---|---|---|"]
    for row in _ROWS:
        lines.append(f"| {row.what} | {_word(row.devcluster)} | {_word(row.kube_apiserver)} | {row.why} |")
    return "\n".join(lines)


def with_difference_table(page: str) -> str:
    """Return the page with its generated part as the table says now; ValueError when it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks {BEGIN!r} or {END!r}")
    return f"{before}{BEGIN}\n\n{difference_table()}\n\n{END}{after}"


def _word(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def main() -> int:
    """Write the table into the page: `python -m tests.protocol.differences`."""
    PAGE.write_text(with_difference_table(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
