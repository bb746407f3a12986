"""The promises of kube.watch."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import watch
from kube.errors import ApiError, Expired, MalformedAnswer
from kube.watch import Event, LineSplitter, decode_event
from tests.kube.wire import end_mark, line

TEXT = "a\u2028b\u0085c\rd é 漢 😀"


@given(st.lists(st.text(max_size=20), max_size=8), st.integers(min_value=1, max_value=7))
def test_chunks_may_be_cut_anywhere(texts: list[str], size: int) -> None:
    lines = [line("ADDED", {"text": text + TEXT}) for text in texts]
    whole, splitter, got = b"".join(lines), LineSplitter(), list[bytes]()
    for start in range(0, len(whole), size):
        got += splitter.feed(whole[start : start + size])
    assert [decode_event(each).object["text"] for each in got] == [text + TEXT for text in texts]


def test_a_line_ends_at_the_byte_newline_only() -> None:
    body = '{"type":"ADDED","object":{"text":"a\u2028b\u0085c"}}\r\n\n'.encode()
    (only,) = LineSplitter().feed(body)
    assert decode_event(only).object["text"] == "a\u2028b\u0085c"


def test_a_line_without_its_end_is_never_an_event() -> None:
    assert LineSplitter().feed(line("ADDED", {})[:-1]) == []


def test_a_line_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LINE_LIMIT", 10)
    splitter = LineSplitter()
    assert splitter.feed(b"123456") == []
    with pytest.raises(MalformedAnswer):
        splitter.feed(b"7890123")


def test_an_error_event_becomes_what_it_says() -> None:
    with pytest.raises(Expired):
        decode_event(line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}))
    with pytest.raises(ApiError) as caught:
        decode_event(line("ERROR", {"kind": "Status", "code": 500, "metadata": None}))
    assert caught.value.code == 500


@pytest.mark.parametrize(
    "raw", [b"{", b"[]", b"null", b'{"type":"ADDED"}', b'{"type":"ADDED","object":null}', b'{"type":"X","object":{}}']
)
def test_a_line_that_is_no_event_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        decode_event(raw)


def test_versions_and_the_end_mark() -> None:
    assert Event("ADDED", {"metadata": {"resourceVersion": "7"}}).version == "7"
    assert Event("ADDED", {"metadata": None}).version == ""
    assert Event("BOOKMARK", end_mark("9")).ends_initial
    assert not Event("BOOKMARK", {"metadata": {"annotations": None}}).ends_initial
    assert not Event("ADDED", end_mark("9")).ends_initial
    assert orjson.loads(line("BOOKMARK", end_mark("9")))["type"] == "BOOKMARK"
