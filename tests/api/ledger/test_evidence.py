"""Which records count: design §7, cases B007, B008."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.ledger.evidence import charge_of
from api.ledger.modes import CARD_UNITS, Mode
from api.ledger.rebuild import rebuild
from api.ledger.transport import ALLOCATED_ANNOTATION, Record
from nodefeature.manufacturers import build_manufacturers
from tests.builders.ledgers import card, group, mig_profiles
from tests.builders.rows import case_yaml

REGISTRY = build_manufacturers({})
GPU = "nvidia.com/gpu"
GROUPS = [group([card("a", slices=4), card("b", slices=4), card("m", profiles=mig_profiles())], group_id="g")]


def pod(limits: dict[str, str], *rows: dict[str, Any], text: str | None = None, **status: Any) -> Any:
    groups = [{"id": "g", "manufacturer": "nvidia", "accelerators": list(rows)}]
    written = json.dumps({"main": {"devices": {"groups": groups}}}) if text is None else text
    return {
        "metadata": {"name": "p", "namespace": "ns", "annotations": {ALLOCATED_ANNOTATION: written}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": status,
    }


def charge(one: Any, **fields: Any) -> Any:
    return charge_of(one, spec_groups=GROUPS, registry=REGISTRY, **fields)


def test_what_the_container_asked_for_counts() -> None:
    found, problems = charge(pod({GPU: "1"}, {"id": "a", "mode": 1, "allocated": CARD_UNITS}))
    assert problems == []
    assert [record.card_id for record in found.records] == ["a"]
    assert (found.pod, found.terminated, found.assumed) == ("ns/p", False, False)


@pytest.mark.parametrize(
    ("limits", "rows", "kept", "rule"),
    [
        ({}, [{"id": "a", "mode": 1, "allocated": 1}], 0, "did not ask for exclusive cards of nvidia"),
        ({f"{GPU}.shared": "1"}, [{"id": "a", "mode": 1, "allocated": 1}], 0, "did not ask for exclusive"),
        ({"amd.com/gpu": "1"}, [{"id": "a", "mode": 1, "allocated": 1}], 0, "did not ask for exclusive"),
        (
            {GPU: "1"},
            [{"id": "a", "mode": 1, "allocated": 1}, {"id": "b", "mode": 1, "allocated": 1}],
            1,
            "asked for 1 cards only",
        ),
        (
            {f"{GPU}.sliced": "1", f"{GPU}.sliced.units": "16000"},
            [{"id": "a", "mode": 3, "allocated": 160000}],
            0,
            "160000 units are more than the 16000",
        ),
    ],
)
def test_what_it_did_not_ask_for_does_not(limits: Any, rows: Any, kept: int, rule: str) -> None:
    found, problems = charge(pod(limits, *rows))
    assert len(found.records) == kept
    assert [rule in p.rule for p in problems] == [True]
    assert problems[0].path.startswith("Pod ns/p ")


def test_b008_a_forged_annotation_charges_nothing() -> None:
    for forged in case_yaml("B008-forged-annotation"):
        found, problems = charge(forged)
        assert found.records == ()
        assert problems


def test_unreadable_keeps_the_last_known_charge() -> None:
    known = (Record("main", "g", "nvidia", "a", 0, Mode.EXCLUSIVE, CARD_UNITS),)
    found, problems = charge(pod({GPU: "1"}, text="{"), known=known)
    assert (found.records, found.assumed) == (known, False)
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("limits", "held"),
    [
        ({GPU: "1"}, {"a": (1, 0), "b": (1, 0)}),
        ({f"{GPU}.shared": "1"}, {"a": (2, 1440000), "b": (2, 1440000)}),
        ({f"{GPU}.sliced": "1", f"{GPU}.sliced.units": "320000"}, {"a": (3, 1280000), "b": (3, 1280000)}),
        ({f"{GPU}.partitioned": "1", f"{GPU}.partitioned.mig-1g.10gb": "1"}, {"m": (4, 0)}),
        ({}, {}),
    ],
    ids=["exclusive", "shared", "sliced", "partitioned", "asks for nothing"],
)
def test_unreadable_at_first_sight_charges_what_it_could_touch(limits: Any, held: dict[str, tuple[int, int]]) -> None:
    found, _ = charge(pod(limits, text="nonsense"))
    assert found.assumed
    rebuilt = rebuild(GROUPS, [found]).status["groups"][0]["accelerators"]
    assert {r["id"]: (r["mode"], r.get("remaining", 0)) for r in rebuilt if r["mode"]} == held
    if "m" in held:
        assert "remainingProfiles" not in rebuilt[2], "no placement of the card is offered"


@pytest.mark.parametrize(("phase", "want"), [("Succeeded", True), ("Failed", True), ("Running", False), (None, False)])
def test_terminal_phases(phase: str | None, want: bool) -> None:
    assert charge(pod({}, phase=phase))[0].terminated is want


def test_visibility_is_not_charged() -> None:
    found, problems = charge(pod({}, {"id": "a", "mode": 5}))
    assert (found.records, problems) == ((), [])


def test_b007_each_pod_has_its_own_budget() -> None:
    for one, units in zip(case_yaml("B007-two-slices"), (160000, 960000), strict=True):
        groups = [{"id": "g", "manufacturer": "nvidia", "accelerators": [{"id": "a", "mode": 3, "allocated": 960000}]}]
        one["metadata"]["annotations"] = {ALLOCATED_ANNOTATION: json.dumps({"main": {"devices": {"groups": groups}}})}
        found, _ = charge(one)
        assert len(found.records) == (units == 960000)
