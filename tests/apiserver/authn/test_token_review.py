"""What is sent to review a token, and how often."""

from __future__ import annotations

import asyncio
import logging

import orjson
import pytest

from apiserver.authn.token_review import TokenReviews
from apiserver.rest.status import Refusal
from tests.builders.virtual_clock import VirtualClock
from tests.kube.wire import Wire, answer, client_over, refuse

YES = answer({"status": {"authenticated": True, "user": {"username": "carla"}}}, 201)
NO = answer({"status": {"authenticated": False, "error": "no"}}, 201)


def test_yes_and_no_are_remembered_for_ten_seconds_by_token() -> None:
    async def test() -> None:
        clock, wire = VirtualClock(), Wire(YES, NO, YES)
        tokens = TokenReviews(client_over(wire, clock), clock, ttl_s=10)
        for _ in range(3):
            assert await tokens.user_of("good") is not None
            assert await tokens.user_of("bad") is None
        assert len(wire.requests) == 2
        await clock.advance(10.1)
        assert await tokens.user_of("bad") is not None
        sent = wire.requests[0]
        assert sent.url.path == "/apis/authentication.k8s.io/v1/tokenreviews"
        assert orjson.loads(sent.content)["spec"] == {"token": "good"}

    asyncio.run(test())


def test_a_failed_review_is_no_answer_and_names_no_token(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        clock, wire = VirtualClock(), Wire(refuse(503, "ServiceUnavailable"), YES)
        tokens = TokenReviews(client_over(wire, clock), clock, ttl_s=10)
        with pytest.raises(Refusal) as failed:
            await tokens.user_of("s3cret")
        assert (failed.value.code, failed.value.retry_after_s) == (500, 1)
        assert "s3cret" not in str(failed.value.document())
        assert await tokens.user_of("s3cret") is not None

    with caplog.at_level(logging.DEBUG):
        asyncio.run(test())
    assert "s3cret" not in caplog.text
