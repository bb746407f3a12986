"""The last check of everything that leaves us (design §8.2)."""

from __future__ import annotations

import pytest

from nodefeature.destinations import (
    NameInvalid,
    is_dns_label,
    label_key,
    label_value,
    legal_labels,
    object_name,
    resource_name,
)

LEGAL_NAMES = ["a", "a-b", "a.b", "gpustack-amd-25-1-linux-amd64-8c", "0", "a" * 253, "a--b"]
BAD_NAMES = ["", "-a", "a-", ".a", "a.", "a..b", "a.-b", "a-.b", "A", "a_b", "a/b", "a" * 254, "ä", "a b", "a\n"]
LEGAL_KEYS = ["a", "A_b.c", "gpustack.ai/managed", "x/" + "a" * 63, "a" * 63]
BAD_KEYS = ["", "/", "/a", "a/", "a/b/c", "A/b", "x/" + "a" * 64, "-a", "a-", "a b", "x/Bad Group", "ä/b", "a\n"]


@pytest.mark.parametrize("text", LEGAL_NAMES)
def test_object_name(text: str) -> None:
    assert object_name(text) == text


@pytest.mark.parametrize("text", BAD_NAMES)
def test_bad_object_name(text: str) -> None:
    with pytest.raises(NameInvalid, match=r"metadata\.name: .*DNS-1123"):
        object_name(text)


@pytest.mark.parametrize("text", LEGAL_KEYS)
def test_label_key(text: str) -> None:
    assert label_key(text) == text


@pytest.mark.parametrize("text", BAD_KEYS)
def test_bad_label_key(text: str) -> None:
    with pytest.raises(NameInvalid, match="qualified name"):
        label_key(text)


@pytest.mark.parametrize("text", ["", "a", "A_b-c.d", "0", "a" * 63])
def test_label_value(text: str) -> None:
    assert label_value(text) == text


@pytest.mark.parametrize("text", ["-a", "a-", "a b", "a" * 64, "a+b", "ü", "a\n", "a/b"])
def test_bad_label_value(text: str) -> None:
    with pytest.raises(NameInvalid, match="label value"):
        label_value(text)


def test_resource_name_has_a_domain() -> None:
    assert resource_name("nvidia.com/gpu.sliced") == "nvidia.com/gpu.sliced"
    for bad in ("cpu", "nvidia.com/gpu.partitioned.mig-1g.10gb+me", "nvidia.com/"):
        with pytest.raises(NameInvalid, match="domain-qualified"):
            resource_name(bad)


@pytest.mark.parametrize(
    ("text", "legal"), [("a", True), ("a" * 63, True), ("a" * 64, False), ("a.b", False), ("", False)]
)
def test_dns_label(text: str, legal: bool) -> None:
    assert is_dns_label(text) is legal


def test_one_bad_label_is_left_out_and_named_and_its_neighbours_stay() -> None:
    checked = legal_labels({"a/good": "1", "a/" + "x" * 64: "1", "a/bad-value": "1 2", "b": ""}, about="node gpu-a")
    assert checked.labels == {"a/good": "1", "b": ""}
    assert len(checked.problems) == 2
    assert all(problem.startswith("node gpu-a: label ") for problem in checked.problems)
    assert "a/bad-value" in checked.problems[1]
