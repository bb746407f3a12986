"""Root versions are replaced; everything else arrives as it was sent."""

from __future__ import annotations

import asyncio

import pytest

from apiserver.forwarding.splicing import Splice
from apiserver.rest.status import Refusal
from tests.builders.rows import Row, rows

SPLICE = Splice("worker.gpustack.ai/v1", "worker.gpustack.ai/v1alpha1")
V1, OLD = SPLICE.wanted, SPLICE.stored


def _json(text: str) -> bytes:
    return text.replace('"V"', f'"{V1}"').replace('\\"V\\"', f'\\"{V1}\\"').replace('"S"', f'"{OLD}"').encode()


def _yaml(text: str) -> bytes:
    for before, after in ((" V", f" {V1}"), ("'V'", f"'{V1}'"), ('"V"', f'"{V1}"'), ('"S"', f'"{OLD}"')):
        text = text.replace(before, after)
    return text.encode()


@pytest.mark.parametrize("row", rows("spliced-bodies"), ids=lambda row: f"{row['form']}: {row['row']}")
def test_bodies(row: Row) -> None:
    fill, act = (_json, SPLICE.json_now) if row["form"] == "json" else (_yaml, SPLICE.yaml_now)
    assert act(fill(row["sent"])) == fill(row["stored"])


@pytest.mark.parametrize("found", ["worker.gpustack.ai/v1alpha1", "v1", ""])
def test_another_version_is_refused(found: str) -> None:
    for act, body in ((SPLICE.json_now, f'{{"apiVersion":"{found}"}}'), (SPLICE.yaml_now, f"apiVersion: '{found}'\n")):
        with pytest.raises(Refusal) as refused:
            act(body.encode())
        assert refused.value.code == 400


@pytest.mark.parametrize(
    "body",
    [b"[" * 10_000, b'{"a":' * 199, b'{"apiVersion":"' + b"\\" * 99, b"\xff\xfe{", b'{"a":"' + b"\\n" * 100_000],
    ids=["lists", "objects", "escapes", "no text", "long escapes"],
)
def test_hostile_bodies_pass_untouched(body: bytes) -> None:
    assert asyncio.run(SPLICE.json(body)) == body
    assert asyncio.run(SPLICE.yaml(body)) == body


TOO_DEEP = {
    "objects": (SPLICE.json, b'{"a":' * 10_000),
    "lists": (SPLICE.json, b'{"a":' + b"[" * 10_000),
    "JSON as YAML": (SPLICE.yaml, b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"),
    "YAML": (SPLICE.yaml, b"a: " + b"[" * 200 + b"]" * 200),
}


@pytest.mark.parametrize("row", TOO_DEEP)
def test_what_nests_too_deep_is_refused(row: str) -> None:
    act, body = TOO_DEEP[row]
    with pytest.raises(Refusal) as refused:
        asyncio.run(act(body))
    assert (refused.value.code, refused.value.message) == (400, "the body nests deeper than 200")


def test_a_long_body_is_spliced_too() -> None:
    body = b'{"data":"' + b"x" * 100_000 + b'","apiVersion":"%b"}' % V1.encode()
    assert asyncio.run(SPLICE.json(body)).endswith(b'"apiVersion":"%b"}' % OLD.encode())
