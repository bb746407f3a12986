"""ResourceFlavor content: spec 01 §7.2, design §8.5, case B024 (tolerations)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodefeature.flavor import NodeFlavor, extract_node_flavors
from nodefeature.keys import cpu_detail
from nodefeature.manufacturers import build_manufacturers
from nodefeature.resource_flavor import (
    MAX_TOLERATIONS,
    Tolerations,
    flavor_tolerations,
    resource_flavor_labels,
    resource_flavor_name,
    resource_flavor_notes,
    resource_flavor_spec,
)
from nodefeature.topology import DEFAULT_PROFILE
from tests.builders.node_labels import card_labels, cpu_annotations, cpu_labels, cpu_pool_labels, platform

G = "general.feature.gpustack.ai/"
P = "acceleratable.feature.gpustack.ai/"
REGISTRY = build_manufacturers({})
LABELS = (
    platform()
    | cpu_labels("AMD", "25", "1")
    | cpu_pool_labels("amd-epyc-7571", "64")
    | card_labels("nvidia-a10g", "2", product="NVIDIA-A10G", family="ampere", memory="24Gi", cores="9216")
)
ANNOTATIONS = cpu_annotations(name="AMD EPYC 7571", physical_cores="32")
PROFILE = {"topology.gpustack.ai/profile": DEFAULT_PROFILE}
COMMON = {"resource.gpustack.ai/type": "nodes", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"} | PROFILE
UMBRELLA = "feature.gpustack.ai/acceleratable"


def flavors(*, aware: bool = False) -> tuple[NodeFlavor, NodeFlavor]:
    cpu, card = extract_node_flavors(LABELS, ANNOTATIONS, cpu_aware=aware).flavors
    return cpu, card


def notes(flavor: NodeFlavor, *, detail: bool) -> dict[str, str]:
    cpu = cpu_detail(LABELS, ANNOTATIONS) if detail else None
    found = resource_flavor_notes(flavor, profile=DEFAULT_PROFILE, cpu=cpu)
    return {key.removeprefix("note.gpustack.ai/"): value for key, value in found.items()}


def test_the_default_profile_has_no_suffix() -> None:
    cpu, _ = flavors()
    assert resource_flavor_name(cpu, DEFAULT_PROFILE) == cpu.name
    assert resource_flavor_name(cpu, "fnv64-0109f115c79ca357") == f"{cpu.name}-fnv64-0109f115c79ca357"


def test_labels_of_a_cpu_flavor() -> None:
    cpu, _ = flavors()
    own = G + "amd-epyc-7571"
    assert resource_flavor_labels(cpu, profile=DEFAULT_PROFILE, nodes=3) == COMMON | {
        UMBRELLA: "false",
        own: "true",
        f"{own}.count": "64",
        f"{own}.capacity": "192",
    }


@pytest.mark.parametrize("aware", [False, True])
def test_labels_of_a_device_flavor(aware: bool) -> None:
    _, card = flavors(aware=aware)
    own = P + "nvidia-a10g"
    want = COMMON | {UMBRELLA: "true", own: "true", f"{own}.count": "2", f"{own}.capacity": "2"}
    assert resource_flavor_labels(card, profile=DEFAULT_PROFILE, nodes=1) == want | (
        {G + "amd-epyc-7571": "true"} if aware else {}
    )


def test_notes_of_a_cpu_flavor() -> None:
    found = notes(flavors()[0], detail=True)
    detail = json.loads(found.pop("cpuDetail"))
    assert detail["physicalCores"] == "32"
    assert "product" not in detail
    assert found == {
        "acceleratable": "false",
        "generalGroup": "amd-epyc-7571",
        "acceleratorGroup": "",
        "manufacturer": "amd",
        "product": "AMD EPYC 7571",
        "family": "",
        "memory": "",
        "cores": "",
        "topologyProfile": DEFAULT_PROFILE,
    }


def test_notes_of_a_device_flavor() -> None:
    assert notes(flavors()[1], detail=False) == {
        "acceleratable": "true",
        "generalGroup": "generic",
        "acceleratorGroup": "nvidia-a10g",
        "manufacturer": "nvidia",
        "product": "NVIDIA-A10G",
        "family": "ampere",
        "memory": "24Gi",
        "cores": "9216",
        "topologyProfile": DEFAULT_PROFILE,
    }
    aware = notes(flavors(aware=True)[1], detail=True)
    assert aware["generalGroup"] == "amd-epyc-7571"
    assert json.loads(aware["cpuDetail"])["product"] == "AMD EPYC 7571"


@pytest.mark.parametrize("mixed", [True, False])
def test_spec(mixed: bool) -> None:
    for flavor in flavors(aware=True):
        spec = resource_flavor_spec(flavor, profile=DEFAULT_PROFILE, mixed=mixed, tolerations=Tolerations(()))
        marker = {} if mixed or flavor.acceleratable else {"feature.gpustack.ai/cpu-only": "true"}
        assert spec == {
            "nodeLabels": dict(flavor.node_labels) | PROFILE | marker,
            "topologyName": f"gpustack-{DEFAULT_PROFILE}",
        }
        assert len(spec["nodeLabels"]) <= 8


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> dict[str, Any]:
    return {"key": key, "effect": effect, "value": value}


def exists(key: str, effect: str = "NoSchedule") -> dict[str, Any]:
    return {"key": key, "operator": "Exists", "effect": effect}


TAINTS = [
    taint("node.kubernetes.io/unschedulable"),
    taint("node.kubernetes.io/unreachable", "NoExecute"),
    taint("dedicated", value="team-a"),
    taint("gpustack.ai/quarantine", "NoExecute"),
    taint("model.gpustack.ai/warm"),
    taint("evilgpustack.ai/x"),
    taint("amd.com/gpu"),
    taint("amd.com/gpu", "NoExecute"),
    {"key": None},
    {},
]
MET = [exists("amd.com/gpu"), exists("gpustack.ai/quarantine", "NoExecute"), exists("model.gpustack.ai/warm")]


def test_case_b024_a_flavor_tolerates_what_is_ours_and_never_everything() -> None:
    cpu, card = flavors()
    assert list(flavor_tolerations(REGISTRY, cpu, taints=TAINTS).items) == MET
    assert list(flavor_tolerations(REGISTRY, card, taints=TAINTS).items) == [exists("nvidia.com/gpu"), *MET]
    assert flavor_tolerations(REGISTRY, cpu, taints=[]).items == ()


def test_what_the_administrator_lists_is_tolerated_first() -> None:
    _, card = flavors()
    extra = [{"key": "dedicated", "operator": "Equal", "value": "team-a", "effect": "", "tolerationSeconds": None}]
    found = flavor_tolerations(REGISTRY, card, taints=[], extra=extra)
    assert list(found.items) == [
        {"key": "dedicated", "operator": "Equal", "value": "team-a"},
        exists("nvidia.com/gpu"),
    ]
    spec = resource_flavor_spec(card, profile=DEFAULT_PROFILE, mixed=True, tolerations=found)
    assert spec["tolerations"] == list(found.items)


def test_tolerations_beyond_kueues_bound_are_named() -> None:
    _, card = flavors()
    taints = [taint(f"gpustack.ai/t{number}") for number in range(10)]
    found = flavor_tolerations(REGISTRY, card, taints=[*taints, *reversed(taints)])
    assert len(found.items) == MAX_TOLERATIONS
    assert len(found.problems) == 3
    assert all(card.name in problem for problem in found.problems)
    assert "'gpustack.ai/t9'" in found.problems[-1]
