"""Whom the ConfigMap lets speak, and whom headers name."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.authn.request_header import (
    NOBODY,
    Trust,
    UnreadableIdentity,
    read_trust,
    stripped,
    user_from_headers,
)
from apiserver.rest.storage import User
from tests.builders.front_proxy import CLIENTS, PROXY, PROXY_2, config_map, trust

TRUST = trust()


def pairs(*headers: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in headers]


NAMED: dict[str, tuple[list[tuple[bytes, bytes]], User | None]] = {
    "user alone": (pairs(("X-Remote-User", "bob")), User("bob")),
    "groups repeat": (
        pairs(("X-Remote-User", "bob"), ("X-Remote-Group", "dev"), ("X-Remote-Group", "ops")),
        User("bob", groups=("dev", "ops")),
    ),
    "a comma does not split a group": (
        pairs(("X-Remote-User", "bob"), ("X-Remote-Group", "dev, ops")),
        User("bob", groups=("dev, ops",)),
    ),
    "empty groups are none": (pairs(("X-Remote-User", "bob"), ("X-Remote-Group", "")), User("bob")),
    "uid": (pairs(("X-Remote-User", "bob"), ("X-Remote-Uid", "7")), User("bob", "7")),
    "extra keys are decoded and lower-cased, values repeat": (
        pairs(
            ("X-Remote-User", "bob"),
            ("X-Remote-Extra-Acme.com%2Fproject", "p1"),
            ("X-Remote-Extra-acme.com%2fProject", "p2"),
            ("X-Remote-Extra-Scopes", ""),
        ),
        User("bob", extra={"acme.com/project": ("p1", "p2"), "scopes": ("",)}),
    ),
    "a badly encoded extra key stays": (
        pairs(("X-Remote-User", "bob"), ("X-Remote-Extra-a%ff", "x")),
        User("bob", extra={"a%ff": ("x",)}),
    ),
    "groups without a user are nobody": (pairs(("X-Remote-Group", "system:masters")), None),
    "an empty user is nobody": (pairs(("X-Remote-User", ""), ("X-Remote-Group", "system:masters")), None),
    "the first value counts": (pairs(("X-Remote-User", "bob"), ("X-Remote-User", "admin")), User("bob")),
    "an empty first value is nobody": (pairs(("X-Remote-User", ""), ("X-Remote-User", "admin")), None),
    "underscores are another header": (pairs(("X_Remote_User", "admin")), None),
    "UTF-8": (pairs(("X-Remote-User", "jürgen")), User("jürgen")),
    "no headers": ([], None),
}


@pytest.mark.parametrize("row", NAMED.values(), ids=NAMED.keys())
def test_user_from_headers(row: tuple[list[tuple[bytes, bytes]], User | None]) -> None:
    headers, want = row
    assert user_from_headers(headers, TRUST) == want


def test_other_names_in_their_order() -> None:
    two = trust(requestheader_username_headers='["X-First", "X-Second"]', requestheader_group_headers='["G1", "G2"]')
    headers = pairs(("X-Second", "b"), ("G2", "two"), ("G1", "one"), ("X-Remote-User", "admin"))
    assert user_from_headers(headers, two) == User("b", groups=("one", "two"))
    assert user_from_headers([*headers, *pairs(("X-First", "a"))], two) == User("a", groups=("one", "two"))


def test_identity_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(UnreadableIdentity):
        user_from_headers([(b"x-remote-user", b"\xff")], TRUST)


def test_stripped_leaves_no_identity() -> None:
    own = trust(requestheader_username_headers='["X-Own-User"]', requestheader_extra_headers_prefix='["X-Own-"]')
    given = pairs(
        ("X-Own-User", "a"),
        ("X-Own-Extra", "b"),
        ("X-Remote-User", "c"),
        ("X-Remote-Uid", "d"),
        ("X-Remote-Group", "e"),
        ("X-Remote-Extra-F", "f"),
        ("Accept", "g"),
    )
    assert stripped(given, own) == [(b"accept", b"g")]
    assert stripped(given[2:], NOBODY) == [(b"accept", b"g")]


def test_a_whole_config_map() -> None:
    assert TRUST.proxy_ca == (PROXY.parsed,)
    assert TRUST.client_ca == (CLIENTS.parsed,)
    assert TRUST.allowed_names == ("front-proxy-client",)
    assert TRUST.bundle.count("BEGIN CERTIFICATE") == 2


READABLE: dict[str, tuple[dict[str, str | None], dict[str, Any]]] = {
    "no client CA": ({"client_ca_file": None}, {"client_ca": ()}),
    "empty client CA": ({"client_ca_file": " \n"}, {"client_ca": ()}),
    "two CAs": (
        {"requestheader_client_ca_file": PROXY.pem + PROXY_2.pem},
        {"proxy_ca": (PROXY.parsed, PROXY_2.parsed)},
    ),
    "any name": ({"requestheader_allowed_names": "[]"}, {"allowed_names": ()}),
    "no uid headers": ({"requestheader_uid_headers": None}, {"uid_headers": ()}),
    "no front proxy": ({"requestheader_client_ca_file": None}, {"proxy_ca": ()}),
}


@pytest.mark.parametrize("row", READABLE.values(), ids=READABLE.keys())
def test_what_may_be_absent(row: tuple[dict[str, str | None], dict[str, Any]]) -> None:
    given, want = row
    found = trust(**given)
    assert {key: getattr(found, key) for key in want} == want


BROKEN = {
    "CA no certificate": {"requestheader_client_ca_file": "not a certificate"},
    "client CA no certificate": {"client_ca_file": "not a certificate"},
    "CA cut off": {"requestheader_client_ca_file": PROXY.pem[:-40]},
    "names no JSON": {"requestheader_allowed_names": "front-proxy-client"},
    "names no list": {"requestheader_allowed_names": '"front-proxy-client"'},
    "names no strings": {"requestheader_allowed_names": "[1]"},
    "headers no JSON": {"requestheader_group_headers": "[X-Remote-Group"},
}


@pytest.mark.parametrize("given", BROKEN.values(), ids=BROKEN.keys())
def test_anything_unreadable_refuses_the_whole(given: dict[str, str | None]) -> None:
    found, problems = read_trust(config_map(**given)["data"])
    assert found is None
    assert [problem.path for problem in problems] == [f"data[{key.replace('_', '-')}]" for key in given]


def test_every_mistake_is_named() -> None:
    everything = {key: value for row in BROKEN.values() for key, value in row.items()}
    found, problems = read_trust(config_map(**everything)["data"])
    assert found is None
    assert len(problems) == len(everything)
    assert "not a certificate" not in "".join(map(str, problems))


def test_nobody_is_trusted_without_a_config_map() -> None:
    assert Trust() == NOBODY
    assert user_from_headers(pairs(("X-Remote-User", "admin")), NOBODY) is None


def test_names_that_strangers_make_up_are_not_kept() -> None:
    found = trust()
    assert not found.looks_like_identity(b"x-" + b"a" * 10_000)
    assert not found.looks_like_identity(b"accept")
    assert list(found._known) == [b"accept"]
