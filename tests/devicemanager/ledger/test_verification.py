"""The ledger held against the kubelet's listing (spec 06 §6.7)."""

from __future__ import annotations

from typing import Any

import pytest

from api.ledger.modes import CARD_UNITS
from devicemanager.ledger.accounts import Accounts
from devicemanager.ledger.kubelet_word import word_of
from devicemanager.ledger.publishing import conditions_with
from devicemanager.ledger.verification import unaccounted
from nodefeature.kinds import DEVICES, POD
from tests.builders.agent_cards import T4, sliceable
from tests.builders.agent_world import NODE_NAME, REGISTRY, AgentWorld, claiming, play, pod

GPU = "nvidia.com/gpu"


def found(raw: dict[str, Any], listed: dict[str, Any]) -> list[tuple[tuple[int, ...], str]]:
    groups = sliceable(2)
    accounts = [Accounts(REGISTRY).of(raw, groups)]
    word = word_of([(("default", "a"), listed)])
    charges = [account.charge for account in accounts]
    answers = unaccounted(word, accounts, charges, groups=groups, registry=REGISTRY)
    return [(tuple(r.allocated for r in charge.records), reason) for charge, reason in answers]


@pytest.mark.parametrize(
    ("resource", "token", "units"),
    [
        (GPU, f"{T4}:GPU-0:0000", (CARD_UNITS,)),
        (f"{GPU}.shared", f"{T4}:GPU-0:160000", (160_000,)),
        (f"{GPU}.sliced", f"{T4}:GPU-0:0001", (CARD_UNITS,)),
        (GPU, "other:GPU-9:0000", None),
        ("cpu", "x", None),
    ],
)
def test_ids_without_a_record_are_charged(resource: str, token: str, units: tuple[int, ...] | None) -> None:
    answers = found(pod("a", claiming()), {"main": {resource: frozenset({token})}})
    assert [charged for charged, _ in answers] == ([units] if units else [])
    assert all("allocation identity conflict for pod default/a" in reason for _, reason in answers)


def test_ended_pod_blocks_nothing() -> None:
    raw = pod("a", claiming())
    raw["status"]["phase"] = "Failed"
    assert found(raw, {"main": {GPU: frozenset({f"{T4}:GPU-0:0000"})}}) == []


def test_record_edited_away_keeps_its_card_and_is_said() -> None:
    async def story(world: AgentWorld) -> None:
        await world.run_pod(pod("a", claiming(exclusive=1)))
        await world.settled()
        held = [card for card, row in world.rows().items() if row["mode"]]
        world.api.edit(POD, "a", {"metadata": {"annotations": None}}, "default")
        await world.until(lambda: world.conditions().get("LedgerTrusted") == "False")
        assert [card for card, row in world.rows().items() if row["mode"]] == held
        assert await world.run_pod(pod("b", claiming(exclusive=2), age=1)) == "Failed"
        assert await world.run_pod(pod("c", claiming(exclusive=1), age=2)) == "Running"
        world.delete_pod("a")
        await world.until(lambda: world.conditions().get("LedgerTrusted") == "True", 15)

    play(sliceable(2), story)


def test_devices_object_edited_by_hand_is_put_right() -> None:
    async def story(world: AgentWorld) -> None:
        await world.run_pod(pod("a", claiming(exclusive=1)))
        await world.settled()
        before = dict(world.rows())
        world.api.edit(DEVICES, NODE_NAME, {"status": {"groups": []}})
        await world.settled()
        assert world.rows() == before

    play(sliceable(2), story)


def test_condition_only_once_something_was_wrong() -> None:
    other = {"type": "Detected-nvidia", "status": "True"}
    assert conditions_with([other], [], "now") == [other]
    bad = conditions_with([other], ["x"], "t1")
    assert [c["status"] for c in bad] == ["True", "False"]
    assert conditions_with(bad, ["x"], "t2") == bad
    assert conditions_with(bad, [], "t2")[1] == {
        "type": "LedgerTrusted",
        "status": "True",
        "reason": "Agreed",
        "message": "",
        "lastTransitionTime": "t2",
    }
