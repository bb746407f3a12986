"""Tests of the harness's waits: what a failure shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from hack.controlplane.admin import Admin, Object
from hack.controlplane.errors import NotReadyError, RequestError
from nodefeature.fields import at
from nodefeature.kinds import INSTANCE_TYPE, NODE


class Told(Admin):
    """Answers with the given states, one a watch event."""

    def __init__(self, *states: Object | None) -> None:
        self._told = list(states)

    def get(self, *_where: object) -> Object | None:
        return self._told[0]

    def watch(self, *_where: object, **_options: object) -> Iterator[tuple[str, Any]]:
        while len(self._told) > 1:
            del self._told[0]
            yield ("DELETED", {}) if self._told[0] is None else ("MODIFIED", self._told[0])


def node(version: str, **more: Any) -> Object:
    return {"metadata": {"name": "n", "resourceVersion": version, "managedFields": [{"manager": "m"}]}, **more}


def test_a_wait_ends_with_the_awaited_state() -> None:
    found = Told(None, node("1"), node("2")).wait(NODE, "n", until=lambda obj: obj is not None)
    assert at(found, "metadata", "resourceVersion") == "1"


def test_a_failed_wait_shows_the_last_three_states_without_managed_fields() -> None:
    told = Told(node("1"), node("2"), node("3", spec={"unschedulable": True}), None)
    with pytest.raises(NotReadyError, match=r"nodes n: not gone for good within 0 s; its last states:") as late:
        told.wait(NODE, "n", until=lambda _obj: False, what="gone for good", timeout_s=0.01)
    lines = [line for line in str(late.value).splitlines() if line.startswith("after ")]
    assert [line.partition(": ")[2] for line in lines] == ["{", "{", "absent"]
    assert '"resourceVersion": "2"' in str(late.value)
    assert '"unschedulable": true' in str(late.value)
    assert "managedFields" not in str(late.value)


class Asked(Admin):
    """Asks a server that gives the answers in turn."""

    def __init__(self, *answers: httpx.Response) -> None:
        turns = iter(answers)
        self._http = httpx.Client(base_url="https://api", transport=httpx.MockTransport(lambda _request: next(turns)))


def test_a_server_that_sets_up_its_storage_is_asked_again() -> None:
    busy = httpx.Response(429, headers={"Retry-After": "0"}, text="storage is (re)initializing")
    with_one = httpx.Response(200, json={"items": [{"metadata": {"name": "t"}}]})
    assert [at(found, "metadata", "name") for found in Asked(busy, with_one).list(INSTANCE_TYPE)] == ["t"]


def test_so_is_one_that_is_watched() -> None:
    busy = httpx.Response(429, headers={"Retry-After": "0"}, text="storage is (re)initializing")
    asked = Asked(busy, httpx.Response(200, text='{"type":"ADDED","object":{"metadata":{"name":"t"}}}'))
    assert [(kind, at(obj, "metadata", "name")) for kind, obj in asked.watch(INSTANCE_TYPE)] == [("ADDED", "t")]


OF_ONE = {"kind": "Node", "metadata": {"name": "n", "resourceVersion": "7"}}
AWAY = httpx.Response(500, json={"message": "etcdserver: leader changed"})


def test_a_wait_outlasts_a_store_that_restarts() -> None:
    asked = Asked(AWAY, AWAY, httpx.Response(200, json=OF_ONE))
    assert asked.wait(NODE, "n", until=bool) == OF_ONE


def test_a_wait_that_a_broken_server_ends_says_what_it_answered() -> None:
    with pytest.raises(NotReadyError, match=r"its last states:\nGET /api/v1/nodes/n: 500: etcdserver: leader changed"):
        Asked(*[AWAY] * 9).wait(NODE, "n", until=bool, timeout_s=0.25)


def test_a_wait_that_is_refused_ends_at_once() -> None:
    with pytest.raises(RequestError, match="403"):
        Asked(httpx.Response(403, json={"message": "no"})).wait(NODE, "n", until=bool)
