"""What happens to old versions and page tokens once history is gone.

One compaction serves all kinds: kube-apiserver looks for one every 15 s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from nodefeature.kinds import INSTANCE, Kind
from tests.protocol.samples import KINDS, Shelf, change, kind_id
from tests.protocol.wire import Answer, Object, Server, names, version_of


@dataclass(frozen=True, slots=True)
class Past:
    """A collection whose history is gone, and what pointed into it."""

    shelf: Shelf
    version: str
    token: str


@pytest.fixture(scope="module")
def pasts(server: Server) -> dict[Kind, Past]:
    """Make a past of every kind, then forget."""
    name = server.unused("past")
    body: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    server.ok("POST", "/api/v1/namespaces", body)
    made = {}
    for kind in KINDS:
        shelf = Shelf(server, kind, name)
        version = version_of(shelf.create("a"))
        for word in "bc":
            shelf.create(word)
        token = shelf.list(limit="1")["metadata"]["continue"]
        for turn in "xyz":
            server.patch(shelf.at("a"), change(kind, turn))
        made[kind] = Past(shelf, version, token)
    server.forget()
    for past in made.values():
        server.until(past.shelf.path, is_expired, timeout_s=40, pause_s=0.5, **exactly(past.version))
    return made


def exactly(version: str) -> dict[str, str]:
    return {"resourceVersion": version, "resourceVersionMatch": "Exact"}


def is_expired(answer: Answer) -> bool:
    return (answer.code, answer.reason) == (410, "Expired")


@pytest.fixture(params=KINDS, ids=kind_id)
def past(request: pytest.FixtureRequest, pasts: dict[Kind, Past]) -> Past:
    """Return the past of each kind in turn."""
    kind: Kind = request.param
    return pasts[kind]


def test_a_page_token_expires(past: Past) -> None:
    answer = past.shelf.server.ask("GET", past.shelf.path, limit="1", **{"continue": past.token})
    assert is_expired(answer)


def test_an_expired_token_comes_with_one_that_goes_on(past: Past) -> None:
    refused = past.shelf.server.ask("GET", past.shelf.path, limit="5", **{"continue": past.token})
    fresh = refused.json["metadata"].get("continue", "")
    assert bool(fresh) is past.shelf.server.answer_of("token-that-goes-on")
    if fresh:
        page = past.shelf.server.ok("GET", past.shelf.path, limit="500", **{"continue": fresh})
        assert past.shelf.name("c") in names(page)


def test_a_list_exactly_at_an_old_version_is_gone(past: Past) -> None:
    assert is_expired(past.shelf.server.ask("GET", past.shelf.path, **exactly(past.version)))


def test_a_watch_of_the_far_past_is_expired(past: Past) -> None:
    server = past.shelf.server
    if not past.shelf.kind.group:
        past = replace(
            past, shelf=Shelf(server, INSTANCE, past.shelf.prefix)
        )  # a built-in kind's cache reaches back to 1
    answer = server.ask("GET", past.shelf.path, watch="true", timeoutSeconds="1", resourceVersion="1")
    in_stream = answer.code == 200
    assert in_stream is server.answer_of("expired-watch-in-stream")
    status = answer.json["object"] if in_stream else answer.json
    assert (status["code"], status["reason"]) == (410, "Expired")


def test_lists_go_on(past: Past) -> None:
    assert names(past.shelf.list(limit="2")) == [past.shelf.name(word) for word in "ab"]
