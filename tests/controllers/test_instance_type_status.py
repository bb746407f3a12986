"""Phases, views, details and printed columns of a type (spec 04 §14.5, §14.7, spec 02 §4, case B024)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.ledger.contribution import contribution
from api.ledger.views import FourViews, View, fold
from controllers.instance_type_status import (
    PoolFacts,
    build_detail,
    build_status,
    count_in_name,
    cpu_view,
    foreign_queue_status,
    phase_of,
    terminating_status,
)
from controllers.queue_state import MIGRATION_PHASE, MIGRATION_STOP_POLICY, read_queue
from nodefeature.labels import EMPTY_PLAN_HOLD
from nodefeature.quantity import NANO
from tests.builders.instance_types import (
    FREE,
    TAKEN,
    WHOLE_ONLY,
    Card,
    device_groups,
    instance_type,
    mig,
    shared,
    sliced,
)
from tests.builders.queues import active, cluster_queue, cpu_flavor, device_flavor, group, usage

A100 = {"1g.5gb": 7, "2g.10gb": 3, "7g.40gb": 1}
H100 = {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}
CARVED = {"1g.10gb": 6, "1g.20gb": 3, "2g.20gb": 2, "3g.40gb": 1}


def views_of(*nodes: list[Card]) -> FourViews:
    return fold(contribution(device_groups(cards), "nvidia-a10g") for cards in nodes)


def figures(view: View) -> tuple[int, int, int]:
    return view.once, view.remaining, view.capacity


@pytest.mark.parametrize(
    ("nodes", "ex", "sh_remaining", "sl"),
    [
        pytest.param([[FREE] * 8], (8, 8, 8), 80, (100, 800, 800), id="8 free"),
        pytest.param([[TAKEN] * 2 + [FREE] * 6], (6, 6, 8), 60, (100, 600, 800), id="2 exclusive + 6 free"),
        pytest.param(
            [[TAKEN] * 2 + [shared(9)] * 2 + [FREE] * 4], (4, 4, 8), 58, (100, 400, 800), id="2 excl, 2 shared, 4 free"
        ),
        pytest.param(
            [[TAKEN] * 2 + [shared(9)] * 2 + [sliced(80)] * 2 + [FREE] * 2],
            (2, 2, 8),
            38,
            (100, 360, 800),
            id="+ 2 sliced at 80 %, 2 free",
        ),
        pytest.param(
            [[TAKEN] * 2 + [shared(9)] * 2 + [sliced(78)] * 2 + [FREE] * 2],
            (2, 2, 8),
            38,
            (100, 356, 800),
            id="sliced at 78 %",
        ),
        pytest.param(
            [[TAKEN] * 3 + [shared(9)] * 2 + [sliced(78)] * 2 + [FREE]],
            (1, 1, 8),
            28,
            (100, 256, 800),
            id="3 excl, 2 shared, 2 sliced, 1 free",
        ),
        pytest.param([[FREE] * 4, [FREE] * 2], (4, 6, 6), 60, (100, 600, 600), id="nodes of 4 and 2 free"),
        pytest.param([[sliced(40), sliced(30), sliced(20)]], (0, 0, 3), 0, (40, 90, 300), id="sliced 40,30,20"),
        pytest.param(
            [[WHOLE_ONLY, WHOLE_ONLY, FREE]], (3, 3, 3), 30, (100, 100, 100), id="2 whole-card-only + 1 sliceable"
        ),
        pytest.param([], (0, 0, 0), 0, (0, 0, 0), id="no Devices"),
        pytest.param([[FREE, sliced(80)]], (1, 1, 2), 10, (100, 180, 200), id="free + sliced(80)"),
    ],
)
def test_views_of_whole_cards(
    nodes: list[list[Card]], ex: tuple[int, int, int], sh_remaining: int, sl: tuple[int, int, int]
) -> None:
    views = views_of(*nodes)
    assert figures(views.exclusive) == ex
    assert (views.shared.remaining, views.shared.capacity) == (sh_remaining, ex[2] * 10)
    assert figures(views.sliced) == sl
    assert figures(views.partitioned) == (0, 0, 0)


@pytest.mark.parametrize(
    ("nodes", "pt"),
    [
        pytest.param([[mig(A100, left=A100)] * 2], (1, 14, 14), id="2 MIG cards ceiling 7"),
        pytest.param([[FREE, mig(A100, left=A100)]], (1, 7, 7), id="free logical + MIG(7)"),
        pytest.param(
            [[mig(A100, allocated={"1g.5gb": 1}, left={"1g.5gb": 6, "2g.10gb": 2, "7g.40gb": 1})]],
            (1, 6, 7),
            id="MIG with one carved (6,2,1)",
        ),
        pytest.param(
            [
                [mig(A100, left={"1g.5gb": 4}), mig(A100, left={"1g.5gb": 2})],
                [mig(A100, left={"1g.5gb": 5})],
            ],
            (1, 11, 21),
            id="MIG remaining 4,2 and 5 on other node",
        ),
        pytest.param(
            [[mig(A100, allocated={"1g.5gb": 7})], [mig(A100, allocated={"7g.40gb": 1})]], (0, 0, 14), id="all zero"
        ),
        pytest.param([[mig(H100, left=H100)]], (1, 7, 7), id="H100 empty"),
        pytest.param([[mig(H100, allocated={"1g.10gb": 1}, left=CARVED)]], (1, 6, 7), id="one 1g.10gb carved"),
        pytest.param([[mig(H100, ledger=False)]], (1, 7, 7), id="no ledger"),
        pytest.param(
            [[mig(H100, allocated={"1g.10gb": 1}, left=CARVED), mig(H100, left=H100)]], (1, 13, 14), id="two cards"
        ),
        pytest.param([[mig(H100, allocated={"7g.80gb": 1})]], (0, 0, 7), id="fully carved"),
        pytest.param(
            [[mig(H100, allocated={"1g.10gb": 1}, left=CARVED), mig(H100, ledger=False)]],
            (1, 13, 14),
            id="second card missing from status",
        ),
    ],
)
def test_views_of_partitioned_cards(nodes: list[list[Card]], pt: tuple[int, int, int]) -> None:
    assert figures(views_of(*nodes).partitioned) == pt


def test_every_offered_profile_is_listed_also_at_zero() -> None:
    views = views_of([mig(H100, allocated={"1g.10gb": 1}, left=CARVED)])
    assert dict(views.remaining_profiles) == {**CARVED, "4g.40gb": 0, "7g.80gb": 0}
    full = views_of([mig(H100, allocated={"7g.80gb": 1})])
    assert dict(full.remaining_profiles) == dict.fromkeys(H100, 0)


def test_two_h100_nodes_each_with_one_1g_10gb() -> None:
    card = mig(H100, allocated={"1g.10gb": 1}, left={"1g.10gb": 6, "3g.40gb": 1})
    views = views_of([card], [card])
    assert dict(views.allocated_profiles) == {"1g.10gb": 2}
    assert dict(views.remaining_profiles) == {
        "1g.10gb": 12,
        "1g.20gb": 0,
        "2g.20gb": 0,
        "3g.40gb": 2,
        "4g.40gb": 0,
        "7g.80gb": 0,
    }


def test_other_models_of_a_node_do_not_count() -> None:
    both = device_groups([FREE])
    other = device_groups([mig(H100, left=H100)], group="nvidia-h100")
    for part in ("spec", "status"):
        both[part]["groups"] += other[part]["groups"]
    views = fold([contribution(both, "nvidia-a10g")])
    assert (figures(views.exclusive), views.remaining_profiles) == ((1, 1, 1), ())


@pytest.mark.parametrize(
    ("reserved", "want"),
    [
        pytest.param("0", (16, 48, 48), id="reserved 0"),
        pytest.param("8", (16, 40, 48), id="reserved 8"),
        pytest.param("40", (8, 8, 48), id="reserved 40"),
    ],
)
def test_cpu_view(reserved: str, want: tuple[int, int, int]) -> None:
    assert figures(cpu_view(_cpu_facts(reserved))) == want


def _cpu_facts(reserved: str = "0", **fields: Any) -> PoolFacts:
    name = "gpustack-generic-linux-amd64-16c"
    status = {"flavorsReservation": usage("cpu", {name: reserved}), "conditions": [active()]}
    queue = cluster_queue("gpustack-generic-linux-amd64", groups=[group("cpu", {name: 48})], status=status)
    reserved_nano = int(reserved) * NANO
    return PoolFacts(instance_type(group=""), read_queue(queue), cpu_reserved_nano=reserved_nano, **fields)


def test_overcommitted_requests_are_scaled_back() -> None:
    """Ten cores of Instances request eight."""
    assert figures(cpu_view(_cpu_facts("8", overcommit=True))) == (16, 38, 48)


@pytest.mark.parametrize(
    ("unusable", "reserved", "want"),
    [
        pytest.param(1, "0", (16, 32, 32), id="one cordoned"),
        pytest.param(1, "8", (16, 24, 32), id="one cordoned, 8 reserved"),
        pytest.param(3, "0", (0, 0, 0), id="all cordoned"),
        pytest.param(3, "8", (0, 0, 0), id="never below zero"),
    ],
)
def test_b024_unusable_nodes_are_out_of_the_cpu_view(unusable: int, reserved: str, want: tuple[int, int, int]) -> None:
    facts = _cpu_facts(reserved, unusable={"gpustack-generic-linux-amd64-16c": unusable})
    assert figures(cpu_view(facts)) == want


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("gpustack-generic-linux-amd64-16c", 16),
        ("gpustack-nvidia-a10g-linux-amd64-4d", 4),
        ("gpustack-amd-epyc-7763-linux-amd64-64c", 64),
        ("gpustack-x-linux-amd64-2c-p-profilehash", 2),
        ("gpustack-x-linux-amd64-4c-fnv64-123456789012345c", 4),
        ("gpustack-x-linux-amd64", 0),
        ("", 0),
        ("c", 0),
    ],
)
def test_count_in_name(name: str, want: int) -> None:
    assert count_in_name(name) == want


RESERVED = {"reservingWorkloads": 1}
DRAINS = "cluster queue is draining admitted workloads"


@pytest.mark.parametrize(
    ("policy", "status", "want"),
    [
        pytest.param(
            "HoldAndDrain", RESERVED, ("Draining", "cluster queue is draining admitted workloads"), id="drain"
        ),
        pytest.param("HoldAndDrain", {}, ("Inactive", "cluster queue is held and drained"), id="HoldAndDrain without"),
        pytest.param("Hold", RESERVED, ("Inactive", "cluster queue is held"), id="Hold with reservation"),
        pytest.param("None", {"conditions": [active()]}, ("Active", ""), id="None + Active True"),
        pytest.param(
            None,
            {"conditions": [active("False", message="no flavor x")]},
            ("Inactive", "no flavor x"),
            id="nil + False",
        ),
        pytest.param("None", {"conditions": [active("Unknown")]}, ("Activating", ""), id="Unknown"),
        pytest.param("None", {}, ("Activating", ""), id="no condition yet"),
    ],
)
def test_phase(policy: str | None, status: dict[str, Any], want: tuple[str, str]) -> None:
    assert phase_of(read_queue(cluster_queue(policy=policy, status=status))) == want


def test_phase_of_our_own_hold_says_why() -> None:
    mark = {EMPTY_PLAN_HOLD: "true"}
    phase, message = phase_of(read_queue(cluster_queue(policy="Hold", annotations=mark)), has_flavors=False)
    assert phase == "Inactive"
    assert "no resource flavor offers this hardware" in message
    refused = {"type": "TopologyReady", "status": "False", "reason": "TooManyFlavors", "message": "65 flavors"}
    queue = cluster_queue(policy="Hold", annotations=mark, status={"conditions": [refused]})
    assert phase_of(read_queue(queue)) == ("Inactive", "cluster queue is held: TooManyFlavors: 65 flavors")
    switched = {MIGRATION_PHASE: "switched", MIGRATION_STOP_POLICY: "None"}
    emptied = read_queue(cluster_queue(policy="HoldAndDrain", annotations=switched))
    assert "no resource flavor offers this hardware" in phase_of(emptied, has_flavors=False)[1]


@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("policy", ["None", "HoldAndDrain"])
def test_entrance_is_always_there(accelerated: bool, policy: str) -> None:
    queue = cluster_queue("gpustack-nvidia-a10g-linux-amd64", policy=policy)
    facts = PoolFacts(instance_type(group="nvidia-a10g" if accelerated else ""), read_queue(queue))
    assert build_status(facts)["entrance"] == "gpustack-fnv64-7bc37bef52624161"


def test_all_views_are_zero_while_draining() -> None:
    queue = cluster_queue(policy="HoldAndDrain", status=RESERVED)
    status = build_status(PoolFacts(instance_type(), read_queue(queue), [device_flavor()], views_of([FREE])))
    assert status["summary"]["accelerator"] == "0/0 0/0 0/0 0/0"
    assert status["phase"] == "Draining"


def test_summary_of_eight_h100_three_in_mig() -> None:
    views = views_of([FREE] * 5 + [mig(H100, left=H100)] * 3)
    queue = cluster_queue(status={"conditions": [active()]})
    status = build_status(PoolFacts(instance_type(), read_queue(queue), [device_flavor()], views, views))
    assert status["summary"]["unit"] == "8/64Gi/100Gi"
    assert status["summary"]["accelerator"] == "5/5 5/50 100/500 1/21"
    assert status["summary"]["cpu"] == "0/0"
    assert status["cpu"] == {"onceMaxRequest": "0", "remaining": "0", "capacity": "0"}


CPU_NOTE = {"physicalCores": "64", "cache": {"l1i": "32768", "l3": "1"}, "manufacturer": "amd", "product": "EPYC"}
NOTES = {
    "manufacturer": "nvidia",
    "product": "NVIDIA-A10G",
    "family": "ampere",
    "memory": "24Gi",
    "cores": "9216",
    "cpuDetail": json.dumps(CPU_NOTE),
}


def _device_facts(**fields: Any) -> PoolFacts:
    capability = views_of([FREE, FREE])
    flavors = fields.pop("flavors", [device_flavor(notes=NOTES)])
    return PoolFacts(instance_type(), read_queue(cluster_queue()), flavors, capability=capability, **fields)


def test_detail_of_an_accelerated_pool() -> None:
    detail = build_detail(_device_facts(compute_capability="8.6"))
    assert {k: detail[k] for k in ("manufacturer", "product", "family", "memory", "cores", "computeCapability")} == {
        "manufacturer": "nvidia",
        "product": "NVIDIA-A10G",
        "family": "ampere",
        "memory": "24Gi",
        "cores": "9216",
        "computeCapability": "8.6",
    }
    assert detail["slicedDetail"]["logical"] == {"count": 256, "coresPercentageOvercommit": True}
    assert detail["cpu"] == {"cache": {}}, "unaware: no CPU facts"


def test_cpu_note_is_folded_under_cpu_when_aware() -> None:
    cpu = build_detail(_device_facts(aware=True))["cpu"]
    assert cpu == {
        "physicalCores": "64",
        "cache": {"l1i": "32768", "l3": "1"},
        "manufacturer": "amd",
        "product": "EPYC",
    }


@pytest.mark.parametrize("note", ["", "{", "[]", "null", '{"cache": null}'])
def test_empty_and_malformed_cpu_notes_are_ignored(note: str) -> None:
    flavor = device_flavor(notes={**NOTES, "cpuDetail": note})
    assert build_detail(_device_facts(aware=True, flavors=[flavor]))["cpu"] == {"cache": {}}


def test_cpu_pool_has_details_only_when_aware() -> None:
    flavor = cpu_flavor(notes={"cpuDetail": json.dumps(CPU_NOTE), "product": "AMD EPYC 7763"})
    state = read_queue(cluster_queue())
    unaware = build_detail(PoolFacts(instance_type(group=""), state, [flavor]))
    aware = build_detail(PoolFacts(instance_type(group=""), state, [flavor], aware=True))
    assert unaware == {"cache": {}, "cpu": {"cache": {}}, "slicedDetail": {"logical": {}, "physical": {}}}
    assert (aware["physicalCores"], aware["product"]) == ("64", "AMD EPYC 7763")
    assert aware["cache"] == {"l1i": "32768", "l3": "1"}


def _versions(*versions: str) -> dict[str, Any]:
    views = fold(contribution(device_groups([FREE], runtime=v), "nvidia-a10g") for v in versions)
    facts = PoolFacts(instance_type(), read_queue(cluster_queue()), [device_flavor()], capability=views)
    return build_detail(facts)


@pytest.mark.parametrize(
    ("versions", "want"),
    [
        (("12.9", "13.0", "12.4"), ["12.4", "12.9", "13.0"]),
        (("12.9", "9.0"), ["9.0", "12.9"]),
        (("12.10", "12.9"), ["12.9", "12.10"]),
        (("12.4",), ["12.4"]),
    ],
)
def test_runtime_versions(versions: tuple[str, ...], want: list[str]) -> None:
    detail = _versions(*versions)
    assert detail["runtimeVersions"] == want
    assert detail["runtimeVersion"] == want[0]


def test_unreadable_runtime_versions_are_dropped() -> None:
    assert "runtimeVersions" not in _versions("", "N/A", "12.x")


SCHEMA = Path(__file__).parents[2] / "chart" / "crds" / "worker.gpustack.ai_instancetypes.yaml"


def test_the_crd_keeps_every_field_of_a_status() -> None:
    """A field the schema drops would be written again for ever (case B027)."""
    crd = yaml.safe_load(SCHEMA.read_text("utf-8"))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    views = views_of([FREE, mig(H100, allocated={"1g.10gb": 1}, left=CARVED)])
    cpu = {**CPU_NOTE, "cache": dict.fromkeys(("l1i", "l1d", "l2", "l3"), "1"), "stepping": "1", "cacheLine": "64"}
    flavor = device_flavor(notes={**NOTES, "cpuDetail": json.dumps(cpu)})
    facts = PoolFacts(
        instance_type(), read_queue(cluster_queue(policy="Hold")), [flavor], views, views, "8.6", aware=True
    )
    for status in (build_status(facts), terminating_status("q"), foreign_queue_status("q")):
        assert _dropped(status, schema) == []


def _dropped(value: Any, schema: dict[str, Any], path: str = "status") -> list[str]:
    if isinstance(value, dict):
        known = schema.get("properties", {})
        missing = [f"{path}.{key}" for key in value if key not in known]
        missing += [f"{path}.{key} is required" for key in schema.get("required", ()) if key not in value]
        return missing + [m for k, v in value.items() if k in known for m in _dropped(v, known[k], f"{path}.{k}")]
    if isinstance(value, list):
        return [m for item in value for m in _dropped(item, schema.get("items", {}), path + "[]")]
    return []
