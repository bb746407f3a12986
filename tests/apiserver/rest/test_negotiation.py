"""Rows of spec 03 B5."""

from __future__ import annotations

import pytest

from apiserver.rest.negotiation import MOST_DEEP, View, decode, negotiate, wants_gzip
from apiserver.rest.repeated import repeated_fields
from apiserver.rest.status import Refusal

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
KUBECTL = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"

ROWS = [
    ("no header", "", "get", View.PLAIN),
    ("json", "application/json", "list", View.PLAIN),
    ("anything", "*/*", "get", View.PLAIN),
    ("kubectl", KUBECTL, "list", View.TABLE),
    ("kubectl watches", KUBECTL, "watch", View.TABLE),
    ("protobuf first", f"{PROTOBUF},application/json", "list", View.PLAIN),
    ("metadata informer", f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{PARTIAL}", "watch", View.METADATA),
    ("metadata list", PARTIAL_LIST, "list", View.METADATA_LIST),
    ("metadata of one", PARTIAL, "get", View.METADATA),
    (
        "unknown version falls through",
        "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
        "get",
        View.PLAIN,
    ),
    ("quality decides", "application/json;q=0.1, application/yaml;q=0.9", "get", View.YAML),
    ("quality zero is no", "application/yaml;q=0,application/json", "get", View.PLAIN),
    ("unknown parameter skips", "application/json;sv=2,application/yaml", "get", View.YAML),
    ("stream of a watch", "application/json;stream=watch", "watch", View.PLAIN),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_forms(row: tuple[str, str, str, View]) -> None:
    assert negotiate(row[1], row[2]).view is row[3]


REFUSED = [
    ("protobuf only", PROTOBUF, "get"),
    ("html", "text/html", "get"),
    ("single form of a list", PARTIAL, "list"),
    ("list form of one", PARTIAL_LIST, "get"),
    ("yaml watch", "application/yaml", "watch"),
    ("nothing but garbage", ";;;,,", "get"),
]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[0])
def test_nothing_left_is_406(row: tuple[str, str, str]) -> None:
    with pytest.raises(Refusal) as refused:
        negotiate(row[1], row[2])
    assert (refused.value.code, refused.value.reason) == (406, "NotAcceptable")


def _nested(depth: int) -> object:
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


BODIES = [
    ("json", b'{"a": 1}', "application/json", {"a": 1}),
    ("no type means json", b'{"a": 1}', "", {"a": 1}),
    ("charset", b'{"a": 1}', "application/json; charset=utf-8", {"a": 1}),
    ("yaml", b"a: 1\nd: 2026-01-01\n", "application/yaml", {"a": 1, "d": "2026-01-01"}),
    ("yaml without a number", b"a: .nan", "application/yaml", {"a": None}),
    ("as deep as allowed", b"[" * MOST_DEEP + b"]" * MOST_DEEP, "application/json", _nested(MOST_DEEP)),
]


@pytest.mark.parametrize("row", BODIES, ids=lambda row: row[0])
def test_bodies(row: tuple[str, bytes, str, object]) -> None:
    assert decode(row[1], row[2]) == row[3]


BAD = [
    ("broken json", b'{"a": ', "application/json", 400),
    ("invalid UTF-8", b'{"a": "\xff\xfe"}', "application/json", 400),
    ("not a number", b'{"a": NaN}', "application/json", 400),
    ("deep nesting", b"[" * 100_000, "application/json", 400),
    ("nesting that the parser takes", b'{"a":' * 1000 + b"1" + b"}" * 1000, "application/json", 400),
    ("one level too deep", b"[" * (MOST_DEEP + 1) + b"]" * (MOST_DEEP + 1), "application/json", 400),
    ("empty", b"", "application/json", 400),
    ("broken yaml", b"a: [", "application/yaml", 400),
    ("yaml bomb", b"a: &a [x]\nb: [*a, *a]", "application/yaml", 400),
    ("yaml with python", b"!!python/object/apply:os.system [ls]", "application/yaml", 400),
    ("yaml with odd keys", b"{1: 2, [a]: 3}", "application/yaml", 400),
    ("yaml nests too deep", b"[" * 500_000, "application/yaml", 400),
    ("yaml number of 5,000 digits", b"a: " + b"1" * 5000, "application/yaml", 400),
    ("yaml tag that does not fit: int", b"a: !!int abc", "application/yaml", 400),
    ("yaml tag that does not fit: empty int", b'a: !!int ""', "application/yaml", 400),
    ("yaml tag that does not fit: float", b"a: !!float 1:2:x", "application/yaml", 400),
    ("yaml tag that does not fit: bool", b"a: !!bool abc", "application/yaml", 400),
    ("yaml tag that does not fit: timestamp", b"a: !!timestamp abc", "application/yaml", 400),
    ("yaml timestamp that is none", b"a: !!timestamp 2001-99-99", "application/yaml", 400),
    ("yaml timestamp", b"a: !!timestamp 2001-01-01", "application/yaml", 400),
    ("yaml binary", b"a: !!binary aGk=", "application/yaml", 400),
    ("yaml too long", b"#" * (1024 * 1024 + 1), "application/yaml", 413),
    ("protobuf", b"k8s\x00", PROTOBUF, 415),
    ("form", b"a=b", "application/x-www-form-urlencoded", 415),
]


@pytest.mark.parametrize("row", BAD, ids=lambda row: row[0])
def test_bad_bodies(row: tuple[str, bytes, str, int]) -> None:
    with pytest.raises(Refusal) as refused:
        decode(row[1], row[2])
    assert refused.value.code == row[3]


REPEATED = {
    "none": (b'{"a": 1, "b": {"a": 2}}', JSON, []),
    "at the root": (b'{"a": 1, "a": 2}', JSON, ["a"]),
    "deep, each once": (b'{"a": [{"b": 1, "b": 2}, {"b": 1, "b": 2}], "a": 1}', JSON, ["b", "a"]),
    "JSON under a YAML type": (b' {"a": 1, "a": 2}', YAML, ["a"]),
    "YAML, none": (b"a: {b: 1}\nc: [b, b, {b: 1}, {b: 2}]\nb: a", YAML, []),
    "YAML at the root": (b"a: 1\n'a': 2", YAML, ["a"]),
    "YAML, deep, each once": (b"a:\n- {b: 1, b: 2}\n- {b: [x], b: {}, b: 3}\nc: 1\na: 1", YAML, ["b", "a"]),
    "YAML, a mapping as key": (b"? {a: 1}\n: a\nb: 1\nb: 2", YAML, ["b"]),
    "no YAML": (b"a: 1\na: [", YAML, []),
    "neither": (b"a: 1\na: 2", "text/plain", []),
    "nested too deep": (b'{"a":' * 100_000, JSON, []),
    "too long": (b'{"a": 1, "a": "' + b"x" * 300_000 + b'"}', JSON, []),
}


@pytest.mark.parametrize("row", REPEATED)
def test_fields_given_twice(row: str) -> None:
    body, content_type, want = REPEATED[row]
    assert repeated_fields(body, content_type) == want


ENCODINGS = {
    "gzip": True,
    "deflate, gzip;q=0.5": True,
    "GZIP": True,
    "*": True,
    "*;q=0": False,
    "gzip; q=0.0": False,
    "identity": False,
    "": False,
}


@pytest.mark.parametrize(("accept", "want"), ENCODINGS.items(), ids=map(repr, ENCODINGS))
def test_wants_gzip(accept: str, want: bool) -> None:
    assert wants_gzip(accept.encode()) is want
