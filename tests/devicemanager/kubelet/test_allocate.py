"""Allocate end to end: a kubelet stand-in, real gRPC, an API server in memory (spec 06 §7)."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.ledger.modes import CARD_UNITS, Mode
from hack.kubelet.device_manager import AdmissionRefused
from nodefeature.fields import annotations_of
from nodefeature.kinds import DEVICES, POD
from tests.builders.agent_cards import T4, carved, hygon, sliceable
from tests.builders.agent_world import NODE_NAME, AgentWorld, claiming, partition, play, pod
from tests.builders.fake_api import refusal

ANNOTATION = "device.gpustack.ai/accelerator.allocated"
CASES = Path(__file__).parents[2] / "cases"
SLICED = "nvidia.com/gpu.sliced"


def record_of(world: AgentWorld, name: str) -> dict[str, Any]:
    stored = world.api.get(POD, name, "default")
    text = annotations_of(stored).get(ANNOTATION)
    decoded: dict[str, Any] = json.loads(text) if text else {}
    return decoded


def sliced(units: int, count: int = 1) -> Any:
    return claiming(sliced=count, sliced_units=units)


def test_every_family_is_served() -> None:
    async def story(world: AgentWorld) -> None:
        assert await world.run_pod(pod("whole", claiming(exclusive=1))) == "Running"
        assert await world.run_pod(pod("share", claiming(shared=1))) == "Running"
        assert await world.run_pod(pod("slice", sliced(320000))) == "Running"
        assert await world.run_pod(pod("part", partition("1g.10gb"))) == "Running"
        await world.settled()
        held = sorted((row["mode"], row.get("remaining", 0)) for row in world.rows().values())
        assert held == [
            (Mode.EXCLUSIVE, 0),
            (Mode.SHARED, 1_440_000),
            (Mode.SLICED, 1_280_000),
            (Mode.PARTITIONED, 1_400_000),
        ]
        assert world.rows()["PART-0"]["allocatedProfiles"] == [{"name": "1g.10gb", "count": 1}]

    play(sliceable(3) + carved(), story)


def test_one_status_write_an_allocation_and_none_settled() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        await world.settled()
        before = world.agent.publisher.writes
        await world.run_pod(pod("one", sliced(320000)))
        await world.settled()
        assert world.agent.publisher.writes == before + 1
        writes = len(world.api.writes)
        world.api.edit(POD, "one", {"metadata": {"labels": {"x": "y"}}}, "default")
        await world.settled()
        assert len(world.api.writes) == writes

    play(sliceable(), story)


def test_half_beside_half_is_granted_and_one_unit_more_is_not() -> None:
    async def story(world: AgentWorld) -> None:
        assert await world.run_pod(pod("a", sliced(800000))) == "Running"
        assert await world.run_pod(pod("more", sliced(800001), age=1)) == "Failed"
        assert "has 800000 of 1600000 units free and the slice needs 800001" in world.kubelet.reasons["uid-more"]
        assert "FAILED_PRECONDITION" in world.kubelet.reasons["uid-more"]
        assert await world.run_pod(pod("b", sliced(800000), age=2)) == "Running"
        await world.settled()
        assert "remaining" not in world.rows()["GPU-0"]

    play(sliceable(1), story)


def test_a_hygon_card_of_four_slices_takes_no_fifth() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        for number in range(4):
            claim = claiming(manufacturer="hygon", sliced=1, sliced_units=100000)
            assert await world.run_pod(pod(f"p{number}", claim, age=number)) == "Running"
        ids = ["k100-ai:DCU-0:0003"]
        world.api.add(POD, pod("fifth", claiming(manufacturer="hygon", sliced=1, sliced_units=100000), age=9))
        world.kubelet.pods["uid-fifth"] = world.api.get(POD, "fifth", "default") or {}
        with pytest.raises(Exception, match="already hosts 4 of its 4 slices"):
            await world.agent.allocator.allocate("hygon", Mode.SLICED, ids)

    play(hygon(), story)


def test_same_container_asked_again_counts_itself_not_and_writes_nothing() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        await world.run_pod(pod("a", sliced(1_600_000)))
        record = record_of(world, "a")
        world.kubelet.devices.lose()  # the kubelet lost its checkpoint before the container ran
        world.api.edit(POD, "a", {"status": {"phase": "Pending", "containerStatuses": None}}, "default")
        writes = len(world.api.writes)
        await world.agent.allocator.allocate("nvidia", Mode.SLICED, record["main"]["deviceIDs"])
        assert record_of(world, "a") == record
        assert [w for w in world.api.writes[writes:] if w.kind is POD] == []

    play(sliceable(), story)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_pod_frees_its_slice(phase: str) -> None:
    async def story(world: AgentWorld) -> None:
        await world.run_pod(pod("a", sliced(1_600_000)))
        await world.kubelet.end("uid-a", phase)
        assert await world.run_pod(pod("b", sliced(1_600_000), age=1)) == "Running"
        await world.settled()
        assert world.rows()["GPU-0"].get("remaining", 0) == 0

    play(sliceable(1), story)


def test_another_mode_is_refused() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        await world.run_pod(pod("a", sliced(16000)))
        world.api.add(POD, pod("b", claiming(exclusive=1), age=1))
        world.kubelet.pods["uid-b"] = world.api.get(POD, "b", "default") or {}
        with pytest.raises(Exception, match="is held in Sliced mode, cannot allocate it in Exclusive mode"):
            await world.agent.allocator.allocate("nvidia", Mode.EXCLUSIVE, [f"{T4}:GPU-0:0000"])

    play(sliceable(1), story)


def test_two_shares_of_one_card_are_refused_and_of_two_are_granted() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        assert await world.run_pod(pod("two", claiming(shared=2))) == "Running"
        await world.settled()
        assert [row["remaining"] for row in world.rows().values()] == [1_440_000, 1_440_000]
        world.api.add(POD, pod("b", claiming(shared=2), age=1))
        world.kubelet.pods["uid-b"] = world.api.get(POD, "b", "default") or {}
        with pytest.raises(Exception, match="must lie on 2 distinct cards"):
            await world.agent.allocator.allocate("nvidia", Mode.SHARED, [f"{T4}:GPU-0:0000", f"{T4}:GPU-0:160000"])

    play(sliceable(2), story)


def test_without_the_gate_slices_overcommit() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        world.agent.allocator._options = type(world.agent.allocator._options)(sliced_gate=False, again_s=0.01)
        await world.run_pod(pod("a", sliced(1_200_000)))
        assert await world.run_pod(pod("b", sliced(1_200_000), age=1)) == "Running"
        await world.settled()
        assert "remaining" not in world.rows()["GPU-0"]

    play(sliceable(1), story)


def test_identical_pods_at_once_are_two_pods() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        for name in ("a", "b"):
            world.api.add(POD, pod(name, claiming(exclusive=1)))
            world.kubelet.pods[f"uid-{name}"] = world.api.get(POD, name, "default") or {}
        calls = [world.agent.allocator.allocate("nvidia", Mode.EXCLUSIVE, [f"{T4}:GPU-{n}:0000"]) for n in range(2)]
        answers = await asyncio.gather(*calls)
        assert {answer.envs["POD"] for answer in answers} == {"uid-a", "uid-b"}

    play(sliceable(2), story)


@pytest.mark.parametrize(
    ("ids", "why"),
    [
        (["a:b"], "invalid device ID format"),
        ([":b:0"], "cannot be empty"),
        (["a:b:x"], "invalid index"),
        (["other:GPU-0:0000"], "no nvidia card of this node"),
        ([f"{T4}:GPU-0:160000"], "not offered as exclusive"),
        ([f"{T4}:GPU-0:0000"] * 2, "none twice"),
        ([], "at least one"),
        (["k100-ai:DCU-0:0000"], "no nvidia card of this node"),
    ],
)
def test_ids_that_were_never_offered(ids: list[str], why: str) -> None:
    async def story(world: AgentWorld) -> None:
        endpoint = world.kubelet.devices.endpoints["nvidia.com/gpu"]
        assert endpoint.client is not None
        with pytest.raises(Exception, match=why) as refused:
            await endpoint.client.allocate(ids)
        assert "INVALID_ARGUMENT" in str(refused.value)

    play(sliceable(1) + hygon(), story)


def test_row_17_partition_wanted_and_all_cards_full() -> None:
    async def story(world: AgentWorld) -> None:
        whole = partition("7g.80gb")
        assert await world.run_pod(pod("a", whole)) == "Running"
        endpoint = world.kubelet.devices.endpoints["nvidia.com/gpu.partitioned"]
        await world.until(lambda: len(endpoint.healthy) == 1)
        assert await world.run_pod(pod("b", whole, age=1)) == "Failed"
        assert "Available: 0" in world.kubelet.reasons["uid-b"]
        assert world.agent is not None
        world.kubelet.phases["uid-b"] = "Pending"
        world.api.edit(POD, "b", {"status": {"phase": "Pending"}}, "default")
        free = sorted(endpoint.unhealthy)[:1]
        with pytest.raises(Exception, match="no card on this node can host 1 instance") as refused:
            await world.agent.allocator.allocate("nvidia", Mode.PARTITIONED, free)
        assert getattr(refused.value, "code", "") == "RESOURCE_EXHAUSTED"

    play(carved(), story)


def test_partitions_pack_the_fullest_card() -> None:
    async def story(world: AgentWorld) -> None:
        for number, profile in enumerate(("3g.40gb", "2g.20gb", "1g.10gb")):
            claim = partition(profile)
            assert await world.run_pod(pod(f"p{number}", claim, age=number)) == "Running"
        cards = {record_of(world, f"p{n}")["main"]["devices"]["groups"][0]["accelerators"][0]["id"] for n in range(3)}
        assert len(cards) == 1

    play(carved(2), story)


def test_refused_injection_gives_everything_back() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        world.agent.injector.refuse = "no library on this node"
        assert await world.run_pod(pod("a", sliced(800000))) == "Failed"
        assert "no library on this node" in world.kubelet.reasons["uid-a"]
        await world.until(lambda: record_of(world, "a") == {})
        world.agent.injector.refuse = ""
        assert await world.run_pod(pod("b", claiming(exclusive=1), age=1)) == "Running"

    play(sliceable(1), story)


def test_refused_injection_of_a_partition_destroys_it() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        world.agent.injector.refuse = "no"
        claim = partition("7g.80gb")
        assert await world.run_pod(pod("a", claim)) == "Failed"
        assert world.hardware.live == {}

    play(carved(), story)


@pytest.mark.parametrize("wanted", [claiming(exclusive=1), partition("7g.80gb")], ids=["whole card", "partition"])
def test_what_nobody_foresaw_gives_everything_back(wanted: Any) -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        world.agent.injector.crash = OverflowError("a library's number")
        assert await world.run_pod(pod("a", wanted)) == "Failed"
        assert "the plugin failed; its log says more" in world.kubelet.reasons["uid-a"]
        await world.until(lambda: record_of(world, "a") == {})
        assert world.hardware.live == {}
        world.agent.injector.crash = None
        assert await world.run_pod(pod("b", wanted, age=1)) == "Running", world.kubelet.reasons

    play(sliceable(1) + carved(), story)


def test_record_that_cannot_be_written_is_withdrawn_until_it_lands() -> None:
    async def story(world: AgentWorld) -> None:
        fails = {"left": 3}

        def fault(request: Any) -> Exception | None:
            if request.method == "PATCH" and "/pods/" in request.path and fails["left"]:
                fails["left"] -= 1
                return refusal(504, "Timeout", "the server was too slow")
            return None

        world.api.faults.append(fault)
        assert await world.run_pod(pod("a", claiming(exclusive=1))) == "Failed"
        await world.until(lambda: fails["left"] == 0)
        assert await world.run_pod(pod("b", claiming(exclusive=1), age=1)) == "Running"
        assert record_of(world, "a") == {}

    play(sliceable(1), story)


def test_pod_deleted_under_its_allocation() -> None:
    async def story(world: AgentWorld) -> None:
        def fault(request: Any) -> Exception | None:
            if request.method == "PATCH" and "/pods/a" in request.path and world.api.get(POD, "a", "default"):
                world.api.remove(POD, "a", "default")
            return None

        world.api.faults.append(fault)
        assert await world.run_pod(pod("a", claiming(exclusive=1))) == "Failed"
        assert "is gone" in world.kubelet.reasons["uid-a"]
        assert await world.run_pod(pod("b", claiming(exclusive=1), age=1)) == "Running"

    play(sliceable(1), story)


def test_namesake_of_another_uid_is_never_written_to() -> None:
    async def story(world: AgentWorld) -> None:
        def fault(request: Any) -> Exception | None:
            stored = world.api.get(POD, "a", "default")
            if request.method == "PATCH" and "/pods/a" in request.path and stored["metadata"]["uid"] == "uid-a":  # type: ignore[index]  # it is there
                world.api.remove(POD, "a", "default")
                world.api.add(POD, pod("a", claiming(exclusive=1), uid="uid-new"))
            return None

        world.api.faults.insert(0, fault)
        assert await world.run_pod(pod("a", claiming(exclusive=1))) == "Failed"
        assert record_of(world, "a") == {}

    play(sliceable(1), story)


def test_inventory_that_loses_the_card_refuses_its_tokens() -> None:
    async def story(world: AgentWorld) -> None:
        assert world.agent is not None
        world.api.edit(DEVICES, NODE_NAME, {"spec": {"groups": []}})
        world.api.add(POD, pod("a", claiming(exclusive=1)))
        world.kubelet.pods["uid-a"] = world.api.get(POD, "a", "default") or {}
        with pytest.raises(Exception, match="no nvidia card of this node"):
            await world.agent.allocator.allocate("nvidia", Mode.EXCLUSIVE, [f"{T4}:GPU-0:0000"])

    play(sliceable(1), story)


STEPS = ["before bind", "after bind", "before record", "after record", "before inject", "after inject"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("family", ["exclusive", "shared", "sliced", "partitioned"])
def test_killed_between_any_two_steps_and_started_again(family: str, step: str) -> None:
    """Whatever a dead process left behind: the failed Pod frees it, and the next Pod gets all of it."""
    if step.endswith("bind") and family != "partitioned":
        step = "before record"
    claim = {
        "exclusive": claiming(exclusive=1),
        "shared": claiming(shared=1),
        "sliced": sliced(CARD_UNITS),
        "partitioned": partition("7g.80gb"),
    }[family]

    async def story(world: AgentWorld) -> None:
        world.kill_at = step
        admission = asyncio.create_task(world.run_pod(pod("a", claim)))
        await world.stuck.wait()
        await world.kill_agent()
        assert await admission == "Failed"
        await world.start_agent()
        if family == "partitioned":  # a partition stays with its Pod until that is gone
            world.delete_pod("a")
            await world.until(lambda: not world.hardware.live)
        assert await world.run_pod(pod("b", claim, age=1)) == "Running", world.kubelet.reasons
        await world.settled()
        assert len(world.hardware.live) == (family == "partitioned")
        rows = [row for row in world.rows().values() if row["mode"]]
        assert len(rows) == 1
        if family == "shared":
            assert rows[0]["remaining"] == 1_440_000

    play(carved() if family == "partitioned" else sliceable(1), story)


@pytest.mark.parametrize("step", STEPS)
def test_killed_agent_serves_the_same_container_again(step: str) -> None:
    """The kubelet restarts at the same moment and asks anew for the Pod it was just admitting."""

    async def story(world: AgentWorld) -> None:
        world.kill_at = step
        raw = pod("a", partition("3g.40gb"))
        admission = asyncio.create_task(world.run_pod(raw))
        await world.stuck.wait()
        await world.kill_agent()
        await admission
        world.api.edit(POD, "a", {"status": {"phase": "Pending", "reason": None}}, "default")
        await world.kubelet.restart()
        await world.start_agent()
        stored = world.api.get(POD, "a", "default")
        assert stored is not None
        assert await world.kubelet.admit(stored) == "Running", world.kubelet.reasons
        await world.settled()
        assert len(world.hardware.live) == 1
        assert world.rows()["PART-0"]["allocatedProfiles"] == [{"name": "3g.40gb", "count": 1}]

    play(carved(), story)


def test_b007_each_container_gets_its_own_limit() -> None:
    small, large = yaml.safe_load_all((CASES / "B007-two-slices.yaml").read_text())

    async def story(world: AgentWorld) -> None:
        rng = random.Random(7)
        for _ in range(40):
            pods = [small, large] if rng.random() < 0.5 else [large, small]
            for raw in pods:
                assert await world.run_pod(raw) == "Running", world.kubelet.reasons
            for raw, units in ((small, 160000), (large, 960000)):
                [row] = record_of(world, raw["metadata"]["name"])["main"]["devices"]["groups"][0]["accelerators"]
                assert row["allocated"] == units
                answer = world.kubelet.devices.answers[raw["metadata"]["uid"], "main", SLICED]
                assert answer.envs["POD"] == raw["metadata"]["uid"]
            for raw in pods:
                world.delete_pod(raw["metadata"]["name"])
            await world.settled()

    play(sliceable(1, slices=8), story)


def test_b007_what_cannot_be_told_apart_is_refused() -> None:
    small, large = yaml.safe_load_all((CASES / "B007-two-slices.yaml").read_text())

    async def story(world: AgentWorld) -> None:
        world.api.add(POD, small)
        world.kubelet.pods[small["metadata"]["uid"]] = small  # known to the kubelet, not served, not failed
        assert await world.run_pod(large) == "Failed"
        assert "ask for different things" in world.kubelet.reasons[large["metadata"]["uid"]]
        assert record_of(world, "small") == record_of(world, "large") == {}

    play(sliceable(1, slices=8), story)


def test_b008_forged_annotations_charge_nothing_and_give_nothing() -> None:
    squatter, crumb = yaml.safe_load_all((CASES / "B008-forged-annotation.yaml").read_text())

    async def story(world: AgentWorld) -> None:
        crumb["spec"]["nodeName"] = NODE_NAME
        world.api.add(POD, squatter, crumb)
        await world.settled()
        assert {row["mode"] for row in world.rows().values()} == {0}
        for number in range(3):
            assert await world.run_pod(pod(f"p{number}", claiming(exclusive=1), age=number)) == "Running"

    play(sliceable(3), story)


def test_b008_a_visible_card_needs_more_than_its_pods_own_word() -> None:
    async def story(world: AgentWorld) -> None:
        forged = {
            "main": {
                "devices": {
                    "groups": [
                        {"id": T4, "manufacturer": "nvidia", "accelerators": [{"id": "GPU-1", "index": 1, "mode": 1}]}
                    ]
                },
                "deviceIDs": [f"{T4}:GPU-1:0000"],
            }
        }
        raw = pod(
            "a",
            claiming("aside", visibility=1),
            claiming("main", exclusive=1),
            annotations={ANNOTATION: json.dumps(forged)},
        )
        assert await world.run_pod(raw) == "Failed"
        assert (
            "does not list what the record" in world.kubelet.reasons["uid-a"]
            or "no other container" in (world.kubelet.reasons["uid-a"])
        )

    play(sliceable(2), story)


def test_side_container_sees_its_owners_cards_also_after_a_restart() -> None:
    async def story(world: AgentWorld) -> None:
        raw = pod("a", claiming("main", exclusive=2), claiming("ssh", visibility=2))
        assert await world.run_pod(raw) == "Running", world.kubelet.reasons
        key = ("uid-a", "ssh", "device.gpustack.ai/nvidia.visibility")
        assert world.kubelet.devices.answers[key].envs["VISIBLE"] == "GPU-0,GPU-1"
        wrong = pod("b", claiming("ssh", visibility=1), age=1)
        assert await world.run_pod(wrong) == "Failed"
        assert "no other container of its pod holds nvidia cards" in world.kubelet.reasons["uid-b"]

    play(sliceable(2), story)


def test_admission_words_of_the_kubelet() -> None:
    async def story(world: AgentWorld) -> None:
        await world.run_pod(pod("a", claiming(exclusive=1)))
        with pytest.raises(AdmissionRefused, match="Requested: 1, Available: 0"):
            await world.kubelet.devices.allocate("uid-x", "main", "nvidia.com/gpu", 1)

    play(sliceable(1), story)


def test_units_are_folded_where_no_webhook_did() -> None:
    async def story(world: AgentWorld) -> None:
        await world.run_pod(pod("a", claiming(sliced=1, sliced_memory_percentage=25)))
        await world.run_pod(pod("b", claiming(sliced=1, sliced_memory_mib=4096), age=1))
        await world.settled()
        assert world.rows()["GPU-0"]["remaining"] == CARD_UNITS // 2

    play(sliceable(1), story)
