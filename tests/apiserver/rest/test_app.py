"""The whole engine over the smallest storage: routing, bodies, limits, refusals."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import orjson
import pytest

from apiserver.rest import app
from apiserver.rest.app import Limits, manager_of, warning_value
from apiserver.rest.options import WriteOptions
from apiserver.rest.status import MAX_BODY_BYTES
from apiserver.rest.storage import Call, Document
from tests.apiserver.rest.asgi import Answer, Browser
from tests.apiserver.rest.memory_storage import MemoryStorage, serve, widget

BASE = "/apis/example.com/v1/namespaces/ns/widgets"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


def ask(method: str, target: str, body: Any = b"", storage: MemoryStorage | None = None, **more: Any) -> Answer:
    return asyncio.run(Browser(serve(storage or MemoryStorage([widget("w", size=1)])))(method, target, body, **more))


def test_reading_one_object_in_every_form() -> None:
    assert ask("GET", f"{BASE}/w").json == widget("w", size=1)
    table = ask("GET", f"{BASE}/w", accept=TABLE).json
    assert (table["kind"], table["rows"][0]["cells"], table["metadata"]) == (
        "Table",
        ["w", 1],
        {"resourceVersion": "5"},
    )
    assert ask("GET", f"{BASE}/w", accept=PARTIAL).json["kind"] == "PartialObjectMetadata"
    answer = ask("GET", f"{BASE}/w", accept="application/yaml")
    assert (answer.headers["content-type"], answer.body[:10]) == ("application/yaml", b"apiVersion")


@pytest.mark.parametrize("count", [0, 1, 64, 65, 1201])
def test_lists_in_every_form_and_size(count: int) -> None:
    storage = MemoryStorage([widget(f"w{i:04}", size=i) for i in range(count)])
    plain = ask("GET", BASE, storage=storage).json
    assert (plain["kind"], plain["apiVersion"], len(plain["items"])) == ("WidgetList", "example.com/v1", count)
    assert plain["metadata"] == {"resourceVersion": "7"}
    table = ask("GET", BASE, storage=storage, accept=TABLE).json
    assert (len(table["rows"]), [c["name"] for c in table["columnDefinitions"]]) == (count, ["Name", "Size"])
    partial = ask("GET", BASE, storage=storage, accept=PARTIAL_LIST).json
    assert (partial["kind"], len(partial["items"])) == ("PartialObjectMetadataList", count)
    assert isinstance(plain["items"], list)


def test_a_page_says_how_to_go_on() -> None:
    storage = MemoryStorage([widget(f"w{i}") for i in range(3)])
    meta = ask("GET", f"{BASE}?limit=2", storage=storage).json["metadata"]
    assert meta == {"resourceVersion": "7", "continue": "next", "remainingItemCount": 1}


def test_writes_reach_the_storage_with_their_options() -> None:
    storage = MemoryStorage([widget("w", size=1)])
    created = ask("POST", f"{BASE}?dryRun=All&fieldManager=me", widget("n"), storage=storage)
    assert created.code == 201
    assert storage.calls[-1] == ("create", WriteOptions(dry_run=True, field_manager="me"))
    assert ask("PUT", f"{BASE}/w", widget("w"), storage=storage).code == 200
    assert storage.calls[-1] == ("update", WriteOptions(field_manager="test"))
    patched = ask(
        "PATCH",
        f"{BASE}/w/status",
        b'{"spec":{"size":3}}',
        storage=storage,
        content_type="application/merge-patch+json",
    )
    assert patched.json["spec"] == {"size": 3}
    deleted = ask("DELETE", f"{BASE}/w", storage=storage)
    assert (deleted.code, deleted.json["status"], deleted.json["details"]["uid"]) == (200, "Success", "u1")


REFUSED: list[tuple[str, str, str, Any, str, int]] = [
    ("unknown resource", "GET", "/apis/example.com/v1/gadgets", b"", "", 404),
    ("unknown object", "GET", f"{BASE}/none", b"", "", 404),
    ("name of 300 characters", "GET", f"{BASE}/{'x' * 300}", b"", "", 404),
    ("escaped slash", "GET", f"{BASE}/..%2f..%2fsecrets", b"", "", 400),
    ("NUL", "GET", f"{BASE}/a%00", b"", "", 400),
    ("undeclared sub-resource", "GET", f"{BASE}/w/log", b"", "", 404),
    ("undeclared verb of a sub-resource", "DELETE", f"{BASE}/w/status", b"", "", 405),
    ("post to a name", "POST", f"{BASE}/w", widget("w"), "application/json", 405),
    ("unknown method", "BREW", f"{BASE}/w", b"", "", 405),
    ("deletion in every namespace", "DELETE", "/apis/example.com/v1/widgets", b"", "", 405),
    ("create without namespace", "POST", "/apis/example.com/v1/widgets", widget("w"), "application/json", 404),
    ("broken body", "POST", BASE, b"{", "application/json", 400),
    ("empty body", "POST", BASE, b"", "application/json", 400),
    ("a list as body", "POST", BASE, [], "application/json", 400),
    ("metadata is a string", "POST", BASE, {**widget("w"), "metadata": "x"}, "application/json", 400),
    ("kind of another path", "POST", BASE, {**widget("w"), "kind": "Gadget"}, "application/json", 400),
    ("version of another path", "POST", BASE, {**widget("w"), "apiVersion": "v1"}, "application/json", 400),
    (
        "namespace of another path",
        "POST",
        BASE,
        {**widget("w"), "metadata": {"name": "w", "namespace": "other"}},
        "application/json",
        400,
    ),
    ("name of another path", "PUT", f"{BASE}/w", widget("v"), "application/json", 400),
    ("protobuf", "POST", BASE, b"k8s", "application/vnd.kubernetes.protobuf", 415),
    ("strategic merge", "PATCH", f"{BASE}/w", b"{}", "application/strategic-merge-patch+json", 415),
    ("force without apply", "PATCH", f"{BASE}/w?force=true", b"{}", "application/merge-patch+json", 422),
    (
        "apply without manager",
        "PATCH",
        f"{BASE}/w",
        {"apiVersion": "example.com/v1", "kind": "Widget"},
        "application/apply-patch+yaml",
        422,
    ),
    ("bad includeObject", "GET", f"{BASE}?includeObject=All", b"", "", 400),
]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[0])
def test_refusals_are_status_documents(row: tuple[str, str, str, Any, str, int]) -> None:
    answer = ask(row[1], row[2], row[3], content_type=row[4])
    assert answer.code == row[5]
    assert (answer.json["kind"], answer.json["code"], answer.json["status"]) == ("Status", row[5], "Failure")


def test_nothing_acceptable_is_406() -> None:
    assert ask("GET", BASE, accept="application/vnd.kubernetes.protobuf").code == 406


def test_bodies_over_the_limit_are_413_announced_or_not() -> None:
    big = b" " * (10 * 1024 * 1024)
    assert ask("POST", BASE, big, chunks=100).code == 413
    assert ask("POST", BASE, b"{}", headers={"content-length": str(MAX_BODY_BYTES + 1)}).code == 413


def test_compressed_bodies_are_415() -> None:
    assert ask("POST", BASE, b"x", headers={"content-encoding": "gzip"}).code == 415


def test_more_requests_than_allowed_are_429_and_watches_do_not_count() -> None:
    async def test() -> None:
        storage = MemoryStorage([widget("w")])
        storage.hold = asyncio.Event()
        browser = Browser(serve(storage, limits=Limits(reads=1, writes=1)))
        async with browser.watch(f"{BASE}?watch=1"):
            first = asyncio.create_task(browser("GET", f"{BASE}/w"))
            await asyncio.sleep(0)
            refused = await browser("GET", f"{BASE}/w")
            assert (refused.code, refused.headers["retry-after"]) == (429, "1")
            assert (await browser("POST", BASE, widget("n"))).code == 201
            storage.hold.set()
            assert (await first).code == 200
            assert (await browser("GET", f"{BASE}/w")).code == 200

    asyncio.run(test())


class BrokenStorage(MemoryStorage):
    """Fails with something nobody expected."""

    async def get(self, call: Call) -> Document:
        raise KeyError("secret inside")


def test_unexpected_errors_are_500_without_the_inside(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = ask("GET", f"{BASE}/w", storage=BrokenStorage())
    assert answer.code == 500
    assert b"secret" not in answer.body
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("agent", "want"),
    [
        ("kubectl/v1.33 (linux)", "kubectl"),
        ("", "unknown"),
        ("x" * 200, "x" * 128),
        ("a\tb/1", "ab"),
        ("\x80\xff", "unknown"),
        ("größe".encode().decode("latin-1"), "größe"),
        ("ö".encode().decode("latin-1") * 100, "ö" * 64),
    ],
)
def test_the_manager_of_a_client(agent: str, want: str) -> None:
    assert manager_of(agent) == want


WARNINGS = [
    ("plain", 'unknown field "a"', b'299 - "unknown field \\"a\\""'),
    ("a line of its own", "a\r\nset-cookie: b", b'299 - "aset-cookie: b"'),
    ("backslash", "a\\", b'299 - "a\\\\"'),
    ("other letters", "größe", '299 - "größe"'.encode()),
    ("long", "x" * 100_000, b'299 - "%b"' % (b"x" * 256)),
]


@pytest.mark.parametrize("row", WARNINGS, ids=lambda row: row[0])
def test_what_a_warning_may_hold(row: tuple[str, str, bytes]) -> None:
    assert warning_value(row[1]) == row[2]


def test_a_body_that_comes_too_slowly_is_504(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "WRITE_DEADLINE_S", 0.05)
    sent: list[Any] = []

    async def dawdle() -> Any:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "raw_path": BASE.encode(), "query_string": b"", "headers": []}
    asyncio.run(serve(MemoryStorage([]))(scope, dawdle, send))
    assert (sent[0]["status"], orjson.loads(sent[1]["body"])["reason"]) == (504, "Timeout")
