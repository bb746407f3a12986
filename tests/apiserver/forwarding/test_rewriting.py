"""Answers pass through with their version rewritten, wherever they are cut."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable

import pytest

from apiserver.forwarding.rewriting import OPENING_BYTES, Renaming, Rewriter
from tests.builders.rows import Row, row_id, rows

OLD, NEW = "worker.gpustack.ai/v1alpha1", "worker.gpustack.ai/v1"
REWRITER = Rewriter(Renaming("worker.gpustack.ai", "v1alpha1", "v1", "Instance"))
ROWS = rows("relayed-answers")
ANSWERS = {row["row"]: row["answer"] for row in ROWS}
OBJECT, OWNED, STATUS, PARTIAL = (ANSWERS[name] for name in ("object", "owned object", "status", "metadata"))
TABLE = ANSWERS["table of objects"].replace(OWNED, OBJECT)


def sent(text: str) -> bytes:
    return text.replace('"V"', f'"{OLD}"').replace('\\"V\\"', f'\\"{OLD}\\"').replace('"K"', f'"{OLD}"').encode()


def wanted(text: str) -> bytes:
    if "Devices" in text:
        return sent(text)
    out = text.replace('\\"V\\"', f'\\"{OLD}\\"').replace('"V"', f'"{NEW}"')
    return out.replace('"K"', f'"{OLD}"').encode()


async def pieces(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def chunks(*parts: bytes) -> bytes:
    async def gather() -> bytes:
        return b"".join([chunk async for chunk in REWRITER.chunks(pieces(parts))])

    return asyncio.run(gather())


def lines(*parts: bytes) -> bytes:
    async def gather() -> bytes:
        return b"".join([chunk async for chunk in REWRITER.lines(pieces(parts))])

    return asyncio.run(gather())


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_answers(row: Row) -> None:
    whole = chunks(sent(row["answer"]))
    if row["parsed"]:
        assert json.loads(whole) == json.loads(wanted(row["answer"]))
    else:
        assert whole == wanted(row["answer"])


@pytest.mark.parametrize("text", ANSWERS.values(), ids=ANSWERS)
def test_every_cut_gives_the_same(text: str) -> None:
    data = sent(text)
    whole = chunks(data)
    for at in range(len(data) + 1):
        assert chunks(data[:at], data[at:]) == whole, at
    assert chunks(*(data[i : i + 1] for i in range(len(data)))) == whole
    assert chunks(*(data[i : i + 7] for i in range(0, len(data), 7))) == whole


@pytest.mark.parametrize("text", [OBJECT, OWNED, STATUS, PARTIAL, TABLE])
def test_one(text: str) -> None:
    assert REWRITER.one(sent(text)) == wanted(text)


EVENTS = (
    f'{{"type":"ADDED","object":{OWNED}}}\n',
    '{"type":"BOOKMARK","object":{"kind":"Instance","apiVersion":"V","metadata":{"resourceVersion":"5"}}}\n',
    f'{{"type":"MODIFIED","object":{TABLE}}}\n',
    f'{{"type":"MODIFIED","object":{PARTIAL}}}\n',
    '{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired"}}\n',
)


def test_events_at_every_cut() -> None:
    data = sent("".join(EVENTS))
    for at in range(len(data) + 1):
        assert lines(data[:at], data[at:]) == wanted("".join(EVENTS)), at


def test_an_unusual_event_is_parsed() -> None:
    line = '{"object":{"metadata":{},"kind":"Instance","apiVersion":"V"},"type":"ADDED"}\n'
    assert json.loads(lines(sent(line))) == json.loads(wanted(line))


def test_half_an_event_is_dropped() -> None:
    assert lines(sent(EVENTS[0]), sent(EVENTS[1])[:30]) == wanted(EVENTS[0])


def test_a_long_opening_without_items_is_parsed() -> None:
    text = ANSWERS["list, kind first"].replace('"resourceVersion"', f'"continue":"{"c" * OPENING_BYTES}","x"')
    assert json.loads(chunks(sent(text))) == json.loads(wanted(text))


def test_ten_thousand_objects_stay_flat_and_quick() -> None:
    item = sent('{"apiVersion":"V","kind":"Instance","metadata":{"name":"a"},"spec":{"a":"%s"}}' % ("x" * 1200))
    most = longest = 0.0

    async def body() -> AsyncIterator[bytes]:
        yield sent('{"apiVersion":"V","items":[')
        for number in range(10_000):
            yield (b"," if number else b"") + item
        yield b'],"kind":"InstanceList","metadata":{}}'

    async def relay() -> int:
        nonlocal most, longest
        renamed, before = 0, time.perf_counter()
        async for chunk in REWRITER.chunks(body()):
            most = max(most, len(chunk))
            longest = max(longest, time.perf_counter() - before)
            renamed += chunk.count(f'"{NEW}","kind"'.encode())
            before = time.perf_counter()
        return renamed

    assert asyncio.run(relay()) == 10_000
    assert most < 4 * len(item)
    assert longest < 0.5  # a step handles one chunk; the bound only catches an accidental collection of all of them
