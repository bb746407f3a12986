"""Label and field selectors."""

from __future__ import annotations

import pytest

from apiserver.rest.selectors import check_fields, parse_fields, parse_labels
from apiserver.rest.status import Refusal

LABELS = {"a": "b", "n": "5", "gpustack.ai/managed": "true", "empty": ""}
ROWS = [
    ("", True),
    ("a=b", True),
    ("a==b", True),
    ("a=c", False),
    ("a!=c", True),
    ("x!=c", True),
    ("a in (b,c)", True),
    ("a in (c, d)", False),
    ("a notin (c)", True),
    ("x notin (c)", True),
    ("a", True),
    ("x", False),
    ("!x", True),
    ("!a", False),
    ("n>4", True),
    ("n > 5", False),
    ("n<6", True),
    ("a>1", False),
    ("empty=", True),
    ("a=b,gpustack.ai/managed=true", True),
    ("a=b,!gpustack.ai/managed", False),
    ("a in (b),n", True),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0] or "everything")
def test_labels_match(row: tuple[str, bool]) -> None:
    assert parse_labels(row[0]).matches(LABELS) is row[1]


@pytest.mark.parametrize(
    "text",
    ["a=b=c", "=b", "a in b", "a in (b", "!a=b", "a>x", "a,,b", "a b", "-a=b", "a=b c", "a" + " " * 100_000 + "b"],
    ids=lambda text: text[:20],
)
def test_bad_label_selectors_are_400(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_labels(text)
    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", True),
        ("metadata.name=x", True),
        ("metadata.name==x", True),
        ("metadata.name!=x", False),
        ("spec.nodeName=", True),
        ("metadata.name=x,spec.nodeName=n", False),
        (r"note=a\,b", True),
    ],
)
def test_fields_match(text: str, want: bool) -> None:
    fields = {"metadata.name": "x", "note": "a,b"}
    assert parse_fields(text).matches(lambda path: fields.get(path, "")) is want


def test_fields_that_a_resource_did_not_declare_are_400() -> None:
    with pytest.raises(Refusal) as refused:
        check_fields(parse_fields("spec.secret=x"), {"metadata.name"})
    assert refused.value.code == 400
    assert "spec.secret" in refused.value.message
