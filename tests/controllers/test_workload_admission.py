"""What gate 3 reads from a Workload."""

from __future__ import annotations

from typing import Any

import pytest

from api.ledger.workload_fit import PodGroup
from controllers.workload_admission import Demands, demands_of, flavor_key, hosts_of, is_promised_cards, may_be_judged
from nodefeature.fields import has_condition
from nodefeature.labels import HOSTNAME
from nodefeature.manufacturers import build_manufacturers
from tests.builders.gate import FLAVOR, GPU, exclusive, gate_pod_set, gate_workload, sliced
from tests.builders.queues import device_flavor
from tests.builders.rows import case_yaml

REGISTRY = build_manufacturers({})
CHECK = "gpustack-node-devices"
FLAVORS: dict[str, Any] = {
    FLAVOR: device_flavor(count=8),
    "two-keys": {
        "spec": {
            "nodeLabels": {
                "acceleratable.feature.gpustack.ai/nvidia-a10g": "true",
                "acceleratable.feature.gpustack.ai/nvidia-t4": "true",
            }
        }
    },
}


@pytest.mark.parametrize(
    ("conditions", "spec", "want"),
    [
        (["QuotaReserved"], {}, True),
        (["QuotaReserved"], {"active": False}, False),
        ([], {}, False),
        (["QuotaReserved", "Evicted"], {}, False),
        (["QuotaReserved", "Admitted"], {}, False),
        (["QuotaReserved", "Finished"], {}, False),
    ],
    ids=["reserved", "not active", "no reservation", "evicted", "admitted", "finished"],
)
def test_may_be_judged(conditions: list[str], spec: dict[str, Any], want: bool) -> None:
    assert may_be_judged(gate_workload(conditions=conditions, **spec)) is want


def test_b006_between_the_two_writes_of_an_eviction() -> None:
    (workload,) = case_yaml("B006-workload-evicting")
    assert has_condition(workload, "QuotaReserved")
    assert not may_be_judged(workload)
    assert not is_promised_cards(workload, [CHECK]), "it was never admitted: no Pod of it has started"


@pytest.mark.parametrize(
    ("conditions", "state", "want"),
    [
        (["QuotaReserved"], "Ready", True),
        (["QuotaReserved"], "Pending", False),
        (["QuotaReserved"], "Retry", False),
        (["QuotaReserved", "Admitted"], "Ready", True),
        (["QuotaReserved", "Admitted", "Evicted"], "Pending", True),
        (["QuotaReserved", "Admitted", "Finished"], "Ready", False),
        ([], "Ready", False),
    ],
    ids=["we said Ready", "waits", "refused", "admitted", "being evicted, Pods still run", "finished", "quota is gone"],
)
def test_is_promised_cards(conditions: list[str], state: str, want: bool) -> None:
    assert is_promised_cards(gate_workload(conditions=conditions, state=state), [CHECK]) is want


def demands(workload: Any) -> Demands:
    return demands_of(workload, FLAVORS.get, REGISTRY, lambda host: f"node-of-{host}")


def plain(group: PodGroup) -> tuple[Any, ...]:
    return group.role, group.needs, group.count, group.hosts


def test_demands() -> None:
    asked = {f"{GPU}.sliced": "1", f"{GPU}.sliced.units": "320000"}
    both = gate_workload("w", gate_pod_set({GPU: "2"}, name="a", count=3), gate_pod_set(asked, name="b"))
    assert [plain(group) for group in demands(both).groups] == [
        ("a", (exclusive(2),), 3, None),
        ("b", (sliced(320_000),), 1, None),
    ]
    (alone,) = demands(gate_workload()).groups
    assert plain(alone) == ("", (exclusive(),), 1, None), "one PodSet needs no name in messages"


def test_partial_admission_counts_what_was_admitted() -> None:
    workload = gate_workload("w", gate_pod_set({GPU: "1"}, count=5))
    workload["status"]["admission"]["podSetAssignments"][0]["count"] = 2
    assert demands(workload).groups[0].count == 2


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        (gate_workload("w", gate_pod_set({"cpu": "4"})), Demands()),
        (gate_workload("w", gate_pod_set({GPU: "1"}, count=0)), Demands()),
        (gate_workload(flavors={}), Demands(unassigned=("",))),
        (gate_workload(flavors={"cpu": "c", "credits.example.com/x": "d"}), Demands(unassigned=("",))),
        (
            gate_workload(flavors={"credits.gpustack.ai/nvidia": FLAVOR, "credits.gpustack.ai/amd": "b"}),
            Demands(unassigned=("",)),
        ),
        (gate_workload(flavors={"credits.gpustack.ai/nvidia": "gone"}), Demands(vanished=(("gone", ""),))),
        (gate_workload(flavors={"credits.gpustack.ai/nvidia": "two-keys"}), Demands(unresolved=(("two-keys", ""),))),
    ],
    ids=["cpu only", "no Pods", "no flavor", "no credits of ours", "two manufacturers", "vanished", "two models"],
)
def test_demands_without_a_place(workload: Any, want: Demands) -> None:
    assert demands(workload) == want


@pytest.mark.parametrize("status", [None, {}, {"admission": None}, {"admission": {"podSetAssignments": "x"}}])
def test_bad_input_no_pod_set_assignments(status: Any) -> None:
    assert demands({**gate_workload(), "status": status}) == Demands(unassigned=("",))


@pytest.mark.parametrize("broken", [{}, {"spec": None}, {"spec": {"podSets": [None, 3, {}, {"template": []}]}}])
def test_bad_input_no_pod_sets(broken: Any) -> None:
    assert demands(broken) == Demands()


@pytest.mark.parametrize(
    ("topology", "want"),
    [
        (None, None),
        ({"levels": ["topology.kubernetes.io/rack"], "slices": []}, None),
        ({"levels": [HOSTNAME], "slices": None}, ()),
        (
            {
                "levels": [HOSTNAME],
                "slices": [
                    {
                        "domainCount": 2,
                        "valuesPerLevel": [{"individual": {"prefix": "gpu-", "suffix": "-x", "roots": ["1", "2"]}}],
                        "podCounts": {"individual": [3, 1]},
                    },
                    {
                        "domainCount": 1,
                        "valuesPerLevel": [{"universal": "gpu-1-x"}],
                        "podCounts": {"universal": 2},
                    },
                ],
            },
            (("node-of-gpu-1-x", 5), ("node-of-gpu-2-x", 1)),
        ),
        (
            {
                "levels": ["rack", HOSTNAME],
                "slices": [
                    {
                        "domainCount": 1,
                        "valuesPerLevel": [{"universal": "r1"}, {"individual": {"roots": ["a"]}}],
                        "podCounts": {"universal": 4},
                    }
                ],
            },
            (("node-of-a", 4),),
        ),
        ({"levels": [HOSTNAME], "slices": [{"domainCount": 2**40, "valuesPerLevel": [], "podCounts": None}]}, ()),
    ],
    ids=["none", "no hostname level", "no slices", "prefix, suffix, universal", "two levels", "nonsense"],
)
def test_hosts_of_a_topology_assignment(topology: Any, want: Any) -> None:
    assert hosts_of({"topologyAssignment": topology}, lambda host: f"node-of-{host}") == want


def test_hosts_that_are_fewer_than_the_pods_say_nothing() -> None:
    def hosts(named: dict[str, int]) -> Any:
        return demands(gate_workload("w", gate_pod_set({GPU: "1"}, count=2), hosts=named)).groups[0].hosts

    assert [hosts({}), hosts({"a": 1}), hosts({"a": 2})] == [None, None, (("node-of-a", 2),)]


def test_flavor_key() -> None:
    assert [flavor_key(FLAVORS[FLAVOR]), flavor_key(FLAVORS["two-keys"]), flavor_key({})] == ["nvidia-a10g", "", ""]
