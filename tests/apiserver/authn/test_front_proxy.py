"""The ConfigMap on a running server: case B022."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import orjson
import pytest

from apiserver.authn.front_proxy import FrontProxyTrust
from apiserver.authn.request_header import NOBODY, Trust
from tests.builders.front_proxy import CLIENTS, PROXY, PROXY_2, config_map
from tests.builders.virtual_clock import VirtualClock, settle
from tests.kube.wire import FakeApi, client_over, status

PATH = "/api/v1/namespaces/kube-system/configmaps"
NAME = "extension-apiserver-authentication"


class Followed:
    """A ConfigMap that is followed, and what was heard of it."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.clock = VirtualClock()
        self.heard: list[Trust] = []
        self.trust = FrontProxyTrust(
            client_over(self.api, self.clock), clock=self.clock, rng=random.Random(1), on_change=self.heard.append
        )

    async def put(self, obj: dict[str, Any]) -> None:
        self.api.seed(PATH, obj)
        await settle()


def run(test: Callable[[Followed], Awaitable[None]]) -> None:
    async def body() -> None:
        followed = Followed()
        task = asyncio.create_task(followed.trust.run())
        await settle()
        await test(followed)
        task.cancel()

    asyncio.run(body())


B022_1 = config_map(client_ca_file=None, requestheader_uid_headers=None)
B022_2 = config_map(requestheader_client_ca_file=PROXY.pem + PROXY_2.pem, requestheader_allowed_names="[]")
B022_2_LATER = config_map(requestheader_client_ca_file=PROXY_2.pem, requestheader_allowed_names="[]")
B022_3 = config_map(
    client_ca_file="",
    requestheader_client_ca_file="not a certificate",
    requestheader_allowed_names="front-proxy-client",
    requestheader_username_headers=None,
)


def test_b022_the_variants_in_turn() -> None:
    async def test(followed: Followed) -> None:
        await followed.put(B022_1)
        assert (followed.trust.trust.client_ca, followed.trust.trust.proxy_ca) == ((), (PROXY.parsed,))
        await followed.put(B022_2)
        assert followed.trust.trust.client_ca == (CLIENTS.parsed,)
        assert list(followed.trust.trust.proxy_ca) == [PROXY.parsed, PROXY_2.parsed]
        await followed.put(B022_2_LATER)
        good: Trust = followed.trust.current()
        assert list(good.proxy_ca) == [PROXY_2.parsed]
        await followed.put(B022_3)
        assert followed.trust.trust is good
        assert followed.trust.fault() == ""
        assert len(followed.heard) == 3
        await followed.put(B022_1)
        assert list(followed.trust.trust.proxy_ca) == [PROXY.parsed]

    run(test)


def test_b022_a_broken_one_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test(followed: Followed) -> None:
        await followed.put(B022_1)
        caplog.clear()
        await followed.put(B022_3)

    with caplog.at_level(logging.WARNING):
        run(test)
    assert [record.getMessage() for record in caplog.records] == ["trust in callers not readable"]
    assert "the last good trust stays" in caplog.records[0].__dict__["reason"]


def test_b022_broken_at_the_start_trusts_nobody() -> None:
    async def test(followed: Followed) -> None:
        await followed.put(B022_3)
        assert followed.trust.trust == NOBODY
        assert "requestheader-client-ca-file" in followed.trust.fault()
        await followed.put(B022_1)
        assert followed.trust.fault() == ""

    run(test)


def test_b022_absent_at_the_start_waits_and_says_so() -> None:
    async def test(followed: Followed) -> None:
        assert followed.trust.fault() == f"ConfigMap kube-system/{NAME} does not exist"
        await followed.put(B022_1)
        assert followed.trust.fault() == ""

    run(test)


def test_b022_deleted_keeps_the_last_good_one() -> None:
    async def test(followed: Followed) -> None:
        await followed.put(B022_1)
        good = followed.trust.trust
        followed.api.drop(PATH, NAME)
        await settle()
        assert (followed.trust.trust, followed.trust.fault()) == (good, "")

    run(test)


def test_b022_no_right_to_read_it_is_waited_for() -> None:
    async def test(followed: Followed) -> None:
        assert followed.trust.fault() == f"ConfigMap kube-system/{NAME} has not been read"
        followed.api.before = None
        followed.api.seed(PATH, B022_1)
        await followed.clock.advance(30)
        assert followed.trust.fault() == ""

    async def forbid(_request: httpx.Request) -> httpx.Response | None:
        return httpx.Response(403, content=orjson.dumps(status(403, "Forbidden")))

    async def body() -> None:
        followed = Followed()
        followed.api.before = forbid
        task = asyncio.create_task(followed.trust.run())
        await settle()
        await test(followed)
        task.cancel()

    asyncio.run(body())


def test_only_this_one_object_is_asked_for() -> None:
    async def body() -> None:
        seen: list[httpx.Request] = []

        async def note(request: httpx.Request) -> httpx.Response | None:
            seen.append(request)
            return None

        followed = Followed()
        followed.api.before = note
        task = asyncio.create_task(followed.trust.run())
        await settle()
        task.cancel()
        assert seen
        assert {request.url.path for request in seen} == {PATH}
        assert {request.url.params["fieldSelector"] for request in seen} == {f"metadata.name={NAME}"}

    asyncio.run(body())


def test_the_same_again_is_no_change() -> None:
    async def test(followed: Followed) -> None:
        await followed.put(B022_1)
        await followed.put({**B022_1, "metadata": {**B022_1["metadata"], "labels": {"a": "b"}}})
        assert len(followed.heard) == 1

    run(test)
