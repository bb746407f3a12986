"""Unit-resource presets: spec 01 §11."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import nodefeature
from nodefeature.manufacturers import MANUFACTURER_NAMES
from nodefeature.preset_rules import LADDER
from nodefeature.presets import Presets, PresetsInvalid, load_presets
from tests.builders.rows import Row, recorded, row_id, rows

PACKAGED = Path(nodefeature.__file__).with_name("presets.yaml").read_text("utf-8")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "instance-type-unit-resources.md"
TABLE = load_presets(PACKAGED)
TIERS = [
    {"name": "fallback", "cpu": 4, "ram": "16Gi"},
    {"name": "small", "cpu": 8, "ram": "32Gi"},
    {"name": "medium", "cpu": 8, "ram": "64Gi"},
    {"name": "large", "cpu": 12, "ram": "128Gi"},
    {"name": "xlarge", "cpu": 12, "ram": "192Gi"},
]


def entry(prefix: str, *, family: str | None = None, tier: str = "small", **more: Any) -> dict[str, Any]:
    return {"prefix": prefix, "family": f"f-{prefix}" if family is None else family, "tier": tier} | more


def by(token: str, *, family: str | None = None, tier: str = "large") -> dict[str, str]:
    return {"token": token, "family": f"b-{token}" if family is None else family, "tier": tier}


def text(
    *entries: dict[str, Any],
    manufacturer: str = "nvidia",
    strip: list[str] | None = None,
    tiers: list[dict[str, Any]] | None = None,
    **more: Any,
) -> str:
    table = {"tiers": tiers or TIERS, "strip": strip or [], "manufacturers": {manufacturer: list(entries)}} | more
    return yaml.safe_dump(table)


def tiers(**changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [tier | changes.get(str(tier["name"]), {}) for tier in TIERS]


@pytest.mark.parametrize("row", rows("01-preset-lookups"), ids=row_id)
def test_lookup(row: Row) -> None:
    tier = TABLE.lookup(row["manufacturer"], row["product"])
    assert (tier.cpu, tier.ram) == (row["cpu"], row["ram"])


REFUSED = [
    (text(tiers=TIERS[:4]), "must define exactly"),
    (text(tiers=[*TIERS, TIERS[0]]), "must define exactly"),
    (text(tiers=tiers(fallback={"name": "tiny"})), '"fallback" is missing'),
    (text(tiers=tiers(fallback={"cpu": 2})), "must stay 4 CPU / 16Gi"),
    (text(tiers=tiers(small={"cpu": 4})), "must be strictly larger"),
    (text(tiers=tiers(small={"ram": "16Gi"})), "must be strictly larger"),
    (text(tiers=tiers(large={"cpu": 4})), "must not be smaller"),
    (text(tiers=tiers(xlarge={"ram": "64Gi"})), "must not be smaller"),
    (text(tiers=tiers(small={"cpu": "8000m"})), "must be a positive integer with no unit suffix"),
    (text(tiers=tiers(small={"cpu": 0})), "must be a positive integer with no unit suffix"),
    (text(tiers=tiers(xlarge={"cpu": 2**31})), "must be a positive integer with no unit suffix"),
    (text(tiers=tiers(small={"ram": "32gi"})), 'must carry a case-sensitive "Gi" suffix'),
    (text(tiers=tiers(small={"ram": "32G"})), 'must carry a case-sensitive "Gi" suffix'),
    (text(manufacturer="kunlun"), "is not a manufacturer the operator can detect"),
    (text(entry("h100", tier="huge")), '"huge" is not a defined tier'),
    (text(entry("h100", by=[by("80gb", tier="huge")])), '"huge" is not a defined tier'),
    (text(entry("h100"), entry("h100", family="x")), 'prefix "h100" is used twice'),
    (text(entry("a100"), entry("a100-sxm")), 'is a token-prefix of "a100-sxm"'),
    (text(entry("h100", family="")), "must not be empty"),
    (text(entry("h100", family="x"), entry("h200", family="x")), "is already claimed elsewhere"),
    (text(entry("h100", family="x", by=[by("80gb", family="x")])), "is already claimed elsewhere"),
    (text(entry("h100", by=[by("")])), "must not be empty"),
    (text(entry("h100", by=[by("80gb"), by("80gb", family="x")])), "is listed twice"),
    (text(entry("h100-80gb", by=[by("80gb")])), "makes the entry's own tier unreachable"),
    (text(entry("h100", by=[by("80-gb")])), "must be a single lowercase"),
    (text(entry("h100", by=[by("80GB")])), "must be a single lowercase"),
    (text(entry("-")), "must carry at least one token"),
    (text(strip=["_"]), "must carry at least one token"),
    (text(entry("H100")), "must be lowercase"),
    (text(entry("h 100")), "must be lowercase"),
    (text(strip=["tesla", "tesla"]), "is listed twice"),
    (text(strip=["meta", "meta-x"]), "depend on the order the two are listed in"),
    (text(entry("tesla-t4"), strip=["tesla"]), "starts with the stripped sequence"),
    (text(entry("nvidia-h100")), "starts with its own manufacturer name"),
    (text(entry("h100", colour="green")), "decoding unit-resources presets"),
    (text(extra=1), "decoding unit-resources presets"),
    (text(entry("h100") | {"tier": None}), "decoding unit-resources presets"),
    ("strip: []\nstrip: []\n", "decoding unit-resources presets"),
    ("tiers: [", "decoding unit-resources presets"),
    ("", "decoding unit-resources presets"),
    ("? [a]\n: 1\n", "decoding unit-resources presets"),
    (yaml.safe_dump({"tiers": {}, "strip": "x", "manufacturers": []}), "decoding unit-resources presets"),
    (
        yaml.safe_dump({"tiers": TIERS, "strip": [], "manufacturers": {"nvidia": "x"}}),
        "decoding unit-resources presets",
    ),
]


@pytest.mark.parametrize(("table", "fragment"), REFUSED, ids=[f"{i} {row[1]}" for i, row in enumerate(REFUSED)])
def test_refused(table: str, fragment: str) -> None:
    with pytest.raises(PresetsInvalid) as refused:
        load_presets(table)
    assert any(fragment in error for error in refused.value.errors), refused.value.errors


def test_all_mistakes_are_reported_at_once_with_their_paths() -> None:
    table = text(
        entry("H100", tier="huge", by=[by("80gb"), by("80gb", family="x")]),
        entry("a100", family=""),
        strip=["tesla", "tesla"],
        tiers=tiers(fallback={"cpu": 2}),
    )
    with pytest.raises(PresetsInvalid) as refused:
        load_presets(table)
    assert [error.partition(":")[0] for error in refused.value.errors] == [
        "tiers.fallback",
        "strip[1]",
        "manufacturers.nvidia[0].prefix",
        "manufacturers.nvidia[0].by[1].token",
        "manufacturers.nvidia[0].tier",
        "manufacturers.nvidia[1].family",
    ]


def test_all_decoding_mistakes_are_reported_at_once() -> None:
    with pytest.raises(PresetsInvalid) as refused:
        load_presets(text(entry("h100", colour="green"), {"prefix": "a"}, extra=1))
    assert len(refused.value.errors) == 4


@pytest.mark.parametrize(
    ("table", "product", "tier"),
    [
        (text(entry("h20"), entry("h200", tier="xlarge")), "NVIDIA H200", "xlarge"),
        (text(entry("h20"), entry("h200", tier="xlarge")), "NVIDIA H20", "small"),
        (text(entry("a10"), entry("a100", tier="large")), "NVIDIA A100-PCIE", "large"),
        (text(entry("l4"), entry("l40", tier="medium"), entry("l40s", tier="large")), "NVIDIA L40S", "large"),
        (text(entry("c500", tier="large"), strip=["meta-x", "moore-threads"]), "Meta X C500", "large"),
        (text(entry("s4000"), strip=["meta-x", "moore-threads"]), "Moore Threads Moore Threads S4000", "small"),
    ],
)
def test_accepted(table: str, product: str, tier: str) -> None:
    assert load_presets(table).lookup("nvidia", product).name == tier


@given(st.permutations(["h100", "a100", "l40s", "t4"]), st.permutations(["tesla", "geforce", "quadro"]))
def test_order_of_entries_and_stripped_words_does_not_matter(prefixes: list[str], strip: list[str]) -> None:
    table = load_presets(text(*(entry(p, tier=LADDER[1 + len(p) % 4]) for p in prefixes), strip=strip))
    for prefix in prefixes:
        assert table.lookup("nvidia", f"Tesla Quadro {prefix}").name == LADDER[1 + len(prefix) % 4]


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_lookup_never_fails(manufacturer: str, product: str) -> None:
    assert TABLE.lookup(manufacturer, product).name in LADDER
    assert TABLE.lookup("nvidia", product).name in LADDER


def test_policy() -> None:
    assert max(int(tier.cpu) for tier in TABLE.tiers.values()) == 12
    assert tuple(sorted(TABLE.entries)) == MANUFACTURER_NAMES


def test_every_recorded_name_has_a_unit() -> None:
    names = [each for each in recorded("names")["names"] if each["kind"] == "accelerator"]
    found = {each["name"]: TABLE.lookup(each["owner"], each["name"]).name for each in names}
    assert found["NVIDIA GB200"] == "xlarge"
    assert found["AMD Instinct MI308X OAM"] == "xlarge"
    assert found["NVIDIA H20"] == "fallback"


def _documented(table: Presets) -> list[str]:
    rows_of = itertools.chain.from_iterable(
        [(each.family, each.tier), *((ref.family, ref.tier) for ref in each.by)]
        for entries in table.entries.values()
        for each in entries
    )
    return [
        f"| `{family}` | `{tier}` | `{table.tiers[tier].cpu}` | `{table.tiers[tier].ram}` |" for family, tier in rows_of
    ]


def test_the_reference_page_lists_every_entry() -> None:
    page = PAGE.read_text("utf-8").splitlines()
    assert [row for row in _documented(TABLE) if not any(line.startswith(row) for line in page)] == []


def test_families_are_named_after_manufacturer_and_prefix() -> None:
    for manufacturer, entries in TABLE.entries.items():
        for each in entries:
            assert each.family == f"{manufacturer}-{'-'.join(each.prefix)}"
            assert all(refinement.family == f"{each.family}-{refinement.token}" for refinement in each.by)
