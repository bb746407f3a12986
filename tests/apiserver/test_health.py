"""Health endpoints, check by check."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver.health import HealthEndpoints

FAULTS = {"tasks": "", "front-proxy": "ConfigMap kube-system/x does not exist"}
HEALTH = HealthEndpoints({"tasks": lambda: FAULTS["tasks"]}, {"front-proxy": lambda: FAULTS["front-proxy"]})

ROWS: dict[str, tuple[str, str, int, str]] = {
    "live": ("/livez", "", 200, "ok"),
    "healthz": ("/healthz", "", 200, "ok"),
    "slash at the end": ("/livez/", "", 200, "ok"),
    "live in full": ("/livez", "verbose", 200, "[+]ping ok\n[+]log ok\n[+]tasks ok\nlivez check passed\n"),
    "not ready says why": (
        "/readyz",
        "",
        500,
        "[+]ping ok\n[+]log ok\n[+]tasks ok\n[-]front-proxy failed: ConfigMap kube-system/x does not exist\n"
        "readyz check failed\n",
    ),
    "without one check": ("/readyz", "exclude=front-proxy", 200, "ok"),
    "without several, in full": (
        "/readyz",
        "exclude=front-proxy&exclude=tasks&verbose=true",
        200,
        "[+]ping ok\n[+]log ok\n[+]tasks excluded: ok\n[+]front-proxy excluded: ok\nreadyz check passed\n",
    ),
    "one check": ("/livez/ping", "", 200, "ok"),
    "one check that fails": (
        "/readyz/front-proxy",
        "",
        500,
        "internal server error: ConfigMap kube-system/x does not exist\n",
    ),
    "a check of ready only": ("/livez/front-proxy", "", 404, "there is no check 'front-proxy'\n"),
    "no such check": ("/livez/<script>", "", 404, "there is no check '<script>'\n"),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_answers(row: tuple[str, str, int, str]) -> None:
    path, query, code, text = row
    got_code, got_text = HEALTH.answer(path, query)
    assert got_code == code
    assert sorted(got_text.splitlines()) == sorted(text.splitlines())


def test_a_task_that_is_gone_is_red_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAULTS, "tasks", "certificate: ended")
    for endpoint in ("/livez", "/healthz", "/readyz"):
        code, text = HEALTH.answer(endpoint, "")
        assert code == 500
        assert "[-]tasks failed: certificate: ended" in text


def ask(method: str, path: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(HEALTH({"method": method, "raw_path": path, "query_string": b""}, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_over_http() -> None:
    code, headers, body = ask("GET", b"/livez")
    assert (code, body) == (200, b"ok")
    assert headers[b"content-type"] == b"text/plain; charset=utf-8"
    assert ask("POST", b"/livez")[0] == 405


@pytest.mark.parametrize(
    ("path", "want"),
    [(b"/livez", True), (b"/readyz/x", True), (b"/livezzz", False), (b"/apis/livez", False), (b"//livez", False)],
)
def test_which_paths(path: bytes, want: bool) -> None:
    assert HEALTH.serves({"raw_path": path}) is want
