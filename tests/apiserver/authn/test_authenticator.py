"""Who is asking: case B005 and what surrounds it; over real connections in `serving/test_connection.py`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apiserver.authn import authenticator as authenticator_module
from apiserver.authn.authenticator import ANONYMOUS, PEER, Authenticator
from apiserver.authn.peer import Peer
from apiserver.authn.request_header import NOBODY, Trust
from apiserver.authn.token_review import TokenReviews
from apiserver.rest.status import Refusal
from apiserver.rest.storage import User
from tests.builders.front_proxy import ALLOWED, CLIENTS, PROXY, PROXY_2, trust
from tests.builders.pki import NOW, Certificate, make
from tests.builders.virtual_clock import VirtualClock
from tests.kube.wire import Handler, answer, client_over, refuse

B005 = json.loads((Path(__file__).parents[2] / "cases" / "B005-forged-identity.json").read_text("utf-8"))

MASTERS = (("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters"))
CARLA = {"username": "carla", "uid": "u1", "groups": ["dev"], "extra": {"scopes": ["a", "b"]}}
UNKNOWN_TOKEN = answer({"status": {"authenticated": False}}, 201)
KNOWN_TOKEN = answer({"status": {"authenticated": True, "user": CARLA}}, 201)

CERTIFICATES: Mapping[str, Certificate | None] = {
    "none": None,
    "self-signed, CN=front-proxy-client": make(ALLOWED),
    "request-header CA, CN=not-allowed": make("not-allowed", by=PROXY),
    "request-header CA, CN=allowed": make(ALLOWED, by=PROXY),
    "cluster client CA, CN=alice": make("alice", "dev", "ops", by=CLIENTS),
}


def scope_of(headers: Any, certificate: Certificate | None = None) -> dict[str, Any]:
    given = headers.items() if isinstance(headers, Mapping) else headers
    extensions = {PEER: Peer(certificate.parsed)} if certificate is not None else {}
    pairs = [(str(name).lower().encode("latin-1"), str(value).encode()) for name, value in given]
    return {"type": "http", "headers": pairs, "extensions": extensions}


def ask(
    scope: dict[str, Any],
    *,
    trusted: Trust | None = None,
    reviews: Handler = UNKNOWN_TOKEN,
    clock: VirtualClock | None = None,
) -> User | int:
    """Return the user, or the code of the refusal."""
    clock = clock or VirtualClock(NOW)
    current = trust() if trusted is None else trusted

    async def test() -> User | int:
        tokens = TokenReviews(client_over(reviews, clock), clock, ttl_s=10)
        try:
            return await Authenticator(lambda: current, tokens, clock)(scope)
        except Refusal as refusal:
            return refusal.code

    return asyncio.run(test())


WANTED: Mapping[str, User] = {
    "system:anonymous": ANONYMOUS,
    "system:anonymous or 401": ANONYMOUS,
    "not admin": ANONYMOUS,
    "alice": User("alice", groups=("dev", "ops", "system:authenticated")),
    "bob, groups dev+ops+system:authenticated, extra acme.com/project=[p1]": User(
        "bob", groups=("dev", "ops", "system:authenticated"), extra={"acme.com/project": ("p1",)}
    ),
    "no user header: next method, never masters": ANONYMOUS,
}


@pytest.mark.parametrize("row", B005["rows"], ids=[f"B005-{index}" for index in range(len(B005["rows"]))])
def test_forged_identity(row: dict[str, Any]) -> None:
    scope = scope_of(row["headers"], CERTIFICATES[row["clientCert"]])
    assert ask(scope) == WANTED[row["identity"]]
    assert not [name for name, _ in scope["headers"] if name.startswith(b"x-remote-")]


ALICE = User("alice", groups=("system:authenticated",))
PROXIED = User("admin", groups=("system:masters", "system:authenticated"))
ROWS: dict[str, tuple[Certificate | None, dict[str, Any], User | int]] = {
    "the front proxy, believed": (make(ALLOWED, by=PROXY), {}, PROXIED),
    "a proxy's name signed by the client CA is only that name": (
        make(ALLOWED, by=CLIENTS),
        {},
        User(ALLOWED, groups=("system:authenticated",)),
    ),
    "a person signed by the proxy's CA is nobody": (make("alice", by=PROXY), {}, ANONYMOUS),
    "an expired front proxy": (make(ALLOWED, by=PROXY, valid=(timedelta(days=-9), timedelta(days=-1))), {}, ANONYMOUS),
    "a front proxy of tomorrow": (make(ALLOWED, by=PROXY, valid=(timedelta(days=1), timedelta(days=2))), {}, ANONYMOUS),
    "any name, when the list is empty": (
        make("whatever", by=PROXY),
        {"trusted": trust(requestheader_allowed_names="[]")},
        PROXIED,
    ),
    "no trust read yet": (make(ALLOWED, by=PROXY), {"trusted": NOBODY}, ANONYMOUS),
    "no client CA published": (make("alice", by=CLIENTS), {"trusted": trust(client_ca_file=None)}, ANONYMOUS),
    "a certificate without a name": (make("", "system:masters", by=CLIENTS), {}, ANONYMOUS),
    "one CA for both: the name decides, allowed": (
        make(ALLOWED, by=PROXY),
        {"trusted": trust(client_ca_file=PROXY.pem)},
        PROXIED,
    ),
    "one CA for both: the name decides, a person": (
        make("alice", by=PROXY),
        {"trusted": trust(client_ca_file=PROXY.pem)},
        ALICE,
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_certificates(row: tuple[Certificate | None, dict[str, Any], User | int]) -> None:
    certificate, more, want = row
    assert ask(scope_of(MASTERS, certificate), **more) == want


def bearer(*values: str) -> dict[str, Any]:
    return scope_of([("Authorization", value) for value in values])


TOKENS: dict[str, tuple[dict[str, Any], Handler, User | int]] = {
    "known": (
        bearer("Bearer t"),
        KNOWN_TOKEN,
        User("carla", "u1", ("dev", "system:authenticated"), {"scopes": ("a", "b")}),
    ),
    "the scheme in any case": (
        bearer("bEARER  t "),
        KNOWN_TOKEN,
        User("carla", "u1", ("dev", "system:authenticated"), {"scopes": ("a", "b")}),
    ),
    "unknown": (bearer("Bearer t"), UNKNOWN_TOKEN, 401),
    "too long to be one": (bearer("Bearer " + "t" * 70_000), KNOWN_TOKEN, 401),
    "two of them": (bearer("Bearer a", "Bearer b"), KNOWN_TOKEN, 401),
    "another scheme": (bearer("Basic YTpi"), KNOWN_TOKEN, ANONYMOUS),
    "an empty one": (bearer("Bearer "), KNOWN_TOKEN, ANONYMOUS),
    "a review without a name": (bearer("Bearer t"), answer({"status": {"authenticated": True}}, 201), 401),
    "a review that says yes as text": (
        bearer("Bearer t"),
        answer({"status": {"authenticated": "true", "user": CARLA}}, 201),
        401,
    ),
    "a review that says nothing": (bearer("Bearer t"), answer({}, 201), 401),
    "a review that is forbidden": (bearer("Bearer t"), refuse(403, "Forbidden"), 500),
    "a review that fails": (bearer("Bearer t"), refuse(500, "InternalError"), 500),
    "impersonation": (
        scope_of([("Authorization", "Bearer t"), ("Impersonate-User", "admin")]),
        KNOWN_TOKEN,
        400,
    ),
}


@pytest.mark.parametrize("row", TOKENS.values(), ids=TOKENS.keys())
def test_tokens(row: tuple[dict[str, Any], Handler, User | int]) -> None:
    scope, reviews, want = row
    assert ask(scope, reviews=reviews) == want


def test_a_certificate_goes_before_a_token() -> None:
    scope = scope_of([("Authorization", "Bearer t")], make("alice", by=CLIENTS))
    assert ask(scope, reviews=KNOWN_TOKEN) == ALICE


def test_the_anonymous_user_of_the_front_proxy_stays_anonymous() -> None:
    said = (("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated"))
    assert ask(scope_of(said, make(ALLOWED, by=PROXY))) == ANONYMOUS


def test_unreadable_identity_is_401() -> None:
    scope = scope_of([], make(ALLOWED, by=PROXY))
    scope["headers"] = [(b"x-remote-user", b"\xff")]
    assert ask(scope) == 401


def test_a_rotation_counts_for_open_connections() -> None:
    clock = VirtualClock(NOW)
    peer = make(ALLOWED, by=PROXY)
    trusts = [trust()]

    async def test() -> None:
        tokens = TokenReviews(client_over(UNKNOWN_TOKEN, clock), clock, ttl_s=10)
        authenticator = Authenticator(lambda: trusts[-1], tokens, clock)
        assert (await authenticator(scope_of(MASTERS, peer))).name == "admin"
        trusts.append(trust(requestheader_client_ca_file=PROXY.pem + PROXY_2.pem))
        assert (await authenticator(scope_of(MASTERS, peer))).name == "admin"
        trusts.append(trust(requestheader_client_ca_file=PROXY_2.pem))
        assert await authenticator(scope_of(MASTERS, peer)) == ANONYMOUS

    asyncio.run(test())


def test_a_certificate_that_expires_on_an_open_connection_counts_no_more() -> None:
    clock = VirtualClock(NOW)
    peer = make(ALLOWED, by=PROXY, valid=(timedelta(hours=-1), timedelta(seconds=30)))

    async def test() -> None:
        tokens = TokenReviews(client_over(UNKNOWN_TOKEN, clock), clock, ttl_s=10)
        authenticator = Authenticator(trust, tokens, clock)
        assert (await authenticator(scope_of(MASTERS, peer))).name == "admin"
        await clock.advance(31)
        assert await authenticator(scope_of(MASTERS, peer)) == ANONYMOUS

    asyncio.run(test())


def test_verdicts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator_module, "_JUDGED", 8)
    clock = VirtualClock(NOW)
    current = trust()

    async def test() -> None:
        tokens = TokenReviews(client_over(UNKNOWN_TOKEN, clock), clock, ttl_s=10)
        authenticator = Authenticator(lambda: current, tokens, clock)
        for _ in range(30):
            await authenticator(scope_of([], make("x", by=CLIENTS)))
        assert len(authenticator._verdicts) <= 8

    asyncio.run(test())
