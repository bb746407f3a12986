"""ResourceFlavors and InstanceTypes as decisions: spec 04 §6, §13, §14.4, decision 0181."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controllers.contributors import contributor_of, flavors_of
from controllers.flavor_plan import FlavorPlan, SpecDrift, derived_type, plan_flavor, speaker_of, spec_drift
from kube.reconciler import Object
from nodefeature.fields import annotations_of, labels_of
from nodefeature.flavor import NodeFlavor
from nodefeature.labels import CPU_ONLY, DEVICE_PREFIX, GENERAL_PREFIX, NOTE_PREFIX
from tests.builders.chain import manufacturers, presets
from tests.builders.node_labels import card_labels, cpu_annotations, cpu_pool_labels
from tests.builders.nodes import MERGED, amd_labels, cpu_node, gpu_node, node

PROFILE = "fnv64-87bf574bea2a4f23"
PLATFORM = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


def flavor_named(shown: Object, name: str, *, cpu_aware: bool = False) -> NodeFlavor:
    return flavors_of(labels_of(shown), annotations_of(shown), cpu_aware=cpu_aware)[name]


def plan(
    *nodes: Object,
    name: str,
    stored: object = None,
    mixed: bool = True,
    cpu_aware: bool = False,
    extra: tuple[str, ...] = (),
) -> FlavorPlan:
    found = [contributor_of(each, labels_of(each)) for each in nodes]
    speaker = speaker_of(found, flavor_named(nodes[0], name, cpu_aware=cpu_aware))
    return plan_flavor(
        name,
        flavor_named(speaker.node, name, cpu_aware=cpu_aware),
        found,
        speaker=speaker,
        stored=stored,
        manufacturers=manufacturers(),
        mixed=mixed,
        cpu_aware=cpu_aware,
        extra_taints=extra,
    )


def note(found: FlavorPlan, name: str) -> str | None:
    return found.notes.get(NOTE_PREFIX + name)


GENERIC_4 = "gpustack-generic-linux-amd64-4c"
A10G_2 = "gpustack-nvidia-a10g-linux-amd64-2d"


@pytest.mark.parametrize(("nodes", "capacity"), [(1, "4"), (3, "12")], ids=["1 node of 4 cores", "3 nodes"])
def test_capacity(nodes: int, capacity: str) -> None:
    found = plan(*(cpu_node(f"n{number}") for number in range(nodes)), name=GENERIC_4)
    assert found.labels[GENERAL_PREFIX + "generic.capacity"] == capacity


def test_cpu_shape() -> None:
    found = plan(cpu_node("n"), name=GENERIC_4)
    own = GENERAL_PREFIX + "generic"
    assert found.labels == {
        **PLATFORM,
        own: "true",
        f"{own}.count": "4",
        f"{own}.capacity": "4",
        "feature.gpustack.ai/acceleratable": "false",
        "resource.gpustack.ai/type": "nodes",
        "topology.gpustack.ai/profile": PROFILE,
    }
    assert found.spec == {
        "nodeLabels": {**MERGED, **PLATFORM, own: "true", f"{own}.count": "4"},
        "topologyName": f"gpustack-{PROFILE}",
    }, "no toleration of everything: design §8.5"
    assert {key: note(found, key) for key in ("acceleratable", "manufacturer", "generalGroup")} == {
        "acceleratable": "false",
        "manufacturer": "generic",
        "generalGroup": "generic",
    }
    assert (note(found, "acceleratorGroup"), note(found, "cores"), note(found, "memory")) == ("", "", "")
    assert note(found, "topologyProfile") == PROFILE
    assert json.loads(note(found, "cpuDetail") or "")
    assert not any(note(found, key) for key in ("unitCPU", "unitRAM", "localStorage"))


def test_a10g_node_count_2() -> None:
    found = plan(gpu_node("n"), name=A10G_2)
    own = DEVICE_PREFIX + "nvidia-a10g"
    assert (found.labels[f"{own}.count"], found.labels[f"{own}.capacity"]) == ("2", "2")
    assert found.labels["feature.gpustack.ai/acceleratable"] == "true"
    assert not [key for key in found.labels if key.startswith(GENERAL_PREFIX)]
    assert [
        note(found, key) for key in ("manufacturer", "acceleratorGroup", "product", "family", "memory", "cores")
    ] == [
        "nvidia",
        "nvidia-a10g",
        "NVIDIA-A10G",
        "ampere",
        "24Gi",
        "9216",
    ]
    assert note(found, "cpuDetail") is None
    assert found.spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_13_2_aware_device_flavor() -> None:
    shown = gpu_node("n", labels={**amd_labels(), **cpu_pool_labels("amd-epyc-7571", "4")})
    shown["metadata"]["annotations"] = cpu_annotations(name="AMD EPYC 7571")
    found = plan(shown, name="gpustack-amd-epyc-7571--nvidia-a10g-linux-amd64-2d", cpu_aware=True)
    key = GENERAL_PREFIX + "amd-epyc-7571"
    assert found.labels[key] == found.spec["nodeLabels"][key] == "true"
    assert note(found, "generalGroup") == "amd-epyc-7571"
    assert json.loads(note(found, "cpuDetail") or "")["product"] == "AMD EPYC 7571"
    assert len(found.spec["nodeLabels"]) <= 8


def test_mixing_off_selects_cpu_only_nodes() -> None:
    assert plan(cpu_node("n"), name=GENERIC_4, mixed=False).spec["nodeLabels"][CPU_ONLY] == "true"
    assert CPU_ONLY not in plan(gpu_node("n"), name=A10G_2, mixed=False).spec["nodeLabels"]


def test_the_order_of_nodes_does_not_matter() -> None:
    nodes = [gpu_node("b", details={"product": "A10G-b"}), gpu_node("a"), gpu_node("c", details={})]
    wanted = plan(*nodes, name=A10G_2)
    assert plan(*reversed(nodes), name=A10G_2) == wanted


def test_a_product_that_nodes_stopped_reporting_keeps_its_note() -> None:
    shown = cpu_node("n", "amd-epyc-7571", labels=amd_labels(), annotations=cpu_annotations(name="AMD EPYC 7571"))
    name = "gpustack-amd-epyc-7571-linux-amd64-4c"
    before = plan(shown, name=name)
    bare = cpu_node("n", "amd-epyc-7571")
    after = plan(bare, name=name, stored=before.new_object())
    assert after.notes == before.notes


def stored(found: FlavorPlan, **notes: str) -> Object:
    obj = found.new_object()
    obj["metadata"] |= {"resourceVersion": "9"}
    obj["metadata"]["annotations"] |= {NOTE_PREFIX + key: value for key, value in notes.items()}
    return obj


class TestNoteSync:
    """Spec 04 §14.4, "note sync"."""

    def test_adds_cpu_detail(self) -> None:
        wanted = plan(cpu_node("n"), name=GENERIC_4)
        old = stored(wanted)
        del old["metadata"]["annotations"][NOTE_PREFIX + "cpuDetail"]
        patch = wanted.difference(old, with_spec=False)
        assert list(patch["metadata"]["annotations"]) == [NOTE_PREFIX + "cpuDetail"]

    def test_removes_cpu_detail(self) -> None:
        wanted = plan(gpu_node("n"), name=A10G_2)
        patch = wanted.difference(stored(wanted, cpuDetail="{}"), with_spec=False)
        assert patch == {"metadata": {"resourceVersion": "9", "annotations": {NOTE_PREFIX + "cpuDetail": None}}}

    def test_equal_is_no_change(self) -> None:
        wanted = plan(gpu_node("n"), name=A10G_2)
        assert wanted.difference(stored(wanted), with_spec=False) == {}

    def test_drops_a_retired_note_and_keeps_what_is_foreign(self) -> None:
        wanted = plan(gpu_node("n"), name=A10G_2)
        old = stored(wanted, unitCPU="8")
        old["metadata"]["annotations"]["example.com/a"] = "b"
        old["metadata"]["labels"]["example.com/a"] = "b"
        patch = wanted.difference(old, with_spec=False)
        assert patch["metadata"]["annotations"] == {NOTE_PREFIX + "unitCPU": None}
        assert "labels" not in patch["metadata"]


WANTED = plan(cpu_node("n"), name=GENERIC_4).spec


def with_labels(**changes: Any) -> dict[str, Any]:
    labels = {**WANTED["nodeLabels"], **changes}
    return {**WANTED, "nodeLabels": {key: value for key, value in labels.items() if value is not None}}


@pytest.mark.parametrize(
    ("spec", "drift"),
    [
        (dict(WANTED), SpecDrift.NONE),
        ({**WANTED, "tolerations": None, "nodeTaints": []}, SpecDrift.NONE),
        ({**WANTED, "tolerations": [{"operator": "Exists"}]}, SpecDrift.REMAKE),
        (with_labels(**{CPU_ONLY: "true"}), SpecDrift.REMAKE),
        (with_labels(**{"kubernetes.io/arch": "arm64"}), SpecDrift.FOREIGN),
        ({**WANTED, "topologyName": "other"}, SpecDrift.FOREIGN),
        ({**WANTED, "nodeTaints": [{"key": "a"}]}, SpecDrift.FOREIGN),
        ({key: value for key, value in WANTED.items() if key != "topologyName"}, SpecDrift.UPGRADE),
        ({}, SpecDrift.UPGRADE),
        (None, SpecDrift.UPGRADE),
    ],
    ids=["equal", "nulls", "tolerates all", "mixing", "arch", "topology", "taints", "base", "empty", "null"],
)
def test_spec_drift(spec: Any, drift: SpecDrift) -> None:
    assert spec_drift({"spec": spec}, WANTED) is drift


VENDOR = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
MAINTENANCE = {"key": "example.com/maintenance", "effect": "NoSchedule"}


class TestTolerations:
    """Decision 0181: fixed when the flavor is made."""

    def keys(self, found: FlavorPlan) -> list[str]:
        return [item["key"] for item in found.spec.get("tolerations", [])]

    def test_a_new_flavor_tolerates_vendor_and_own_taints_it_meets(self) -> None:
        shown = cpu_node("n", taints=[VENDOR, {"key": "gpustack.ai/dedicated", "effect": "NoSchedule"}, MAINTENANCE])
        assert self.keys(plan(shown, name=GENERIC_4)) == ["gpustack.ai/dedicated", "nvidia.com/gpu"]

    def test_the_setting_is_listed(self) -> None:
        found = plan(gpu_node("n"), name=A10G_2, extra=("example.com/maintenance",))
        assert self.keys(found) == ["example.com/maintenance", "nvidia.com/gpu"]

    def test_more_than_kueue_takes_is_named(self) -> None:
        found = plan(gpu_node("n"), name=A10G_2, extra=tuple(f"example.com/{n}" for n in range(9)))
        assert len(self.keys(found)) == 8
        assert [("nvidia.com/gpu" in p or "example.com/8" in p) for p in found.problems] == [True, True]

    def test_a_taint_that_comes_later_changes_nothing(self) -> None:
        made = plan(cpu_node("a"), name=GENERIC_4)
        later = plan(cpu_node("a"), cpu_node("b", taints=[VENDOR]), name=GENERIC_4, stored=stored(made))
        assert later.spec == made.spec

    def test_nor_does_one_that_goes(self) -> None:
        made = plan(cpu_node("a", taints=[VENDOR]), name=GENERIC_4)
        assert plan(cpu_node("a"), name=GENERIC_4, stored=stored(made)).spec == made.spec

    def test_it_counts_when_no_node_is_usable_without_it(self) -> None:
        made = plan(cpu_node("a"), name=GENERIC_4)
        later = plan(cpu_node("a", taints=[VENDOR]), name=GENERIC_4, stored=stored(made))
        assert self.keys(later) == ["nvidia.com/gpu"]

    def test_b024_nothing_makes_a_cordon_tolerated(self) -> None:
        cordon = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
        made = plan(cpu_node("a"), name=GENERIC_4)
        later = plan(cpu_node("a", taints=cordon, unschedulable=True), name=GENERIC_4, stored=stored(made))
        assert later.spec == made.spec


def device_node(key: str, product: str) -> Object:
    return node("n", labels={**MERGED, **card_labels(key, "1", product=product)})


TYPES: dict[str, tuple[Object, str, bool, dict[str, Any]]] = {
    "author a10g": (
        gpu_node("n", count=1),
        "gpustack-nvidia-a10g-linux-amd64-1d",
        False,
        {"name": "gpustack-nvidia-a10g-linux-amd64", "displayName": "NVIDIA-A10G", "unit": ("8", "64Gi")},
    ),
    "author H100": (
        device_node("nvidia-h100-80gb-hbm3", "NVIDIA-H100-80GB-HBM3"),
        "gpustack-nvidia-h100-80gb-hbm3-linux-amd64-1d",
        False,
        {"name": "gpustack-nvidia-h100-80gb-hbm3-linux-amd64", "unit": ("12", "192Gi")},
    ),
    "author Contoso-9000": (
        device_node("nvidia-contoso-9000", "Contoso-9000"),
        "gpustack-nvidia-contoso-9000-linux-amd64-1d",
        False,
        {"name": "gpustack-nvidia-contoso-9000-linux-amd64", "unit": ("4", "16Gi")},
    ),
    "author A100 80gb": (
        device_node("nvidia-a100-sxm4-80gb", "NVIDIA-A100-SXM4-80GB"),
        "gpustack-nvidia-a100-sxm4-80gb-linux-amd64-1d",
        False,
        {"displayName": "NVIDIA-A100-SXM4-80GB", "unit": ("12", "128Gi")},
    ),
    "author CPU": (
        cpu_node("n"),
        GENERIC_4,
        False,
        {
            "name": "gpustack-generic-linux-amd64",
            "displayName": "CPU-only",
            "generalGroup": "generic",
            "acceleratorGroup": "",
            "acceleratable": False,
            "unit": ("1", "2Gi"),
        },
    ),
    "author CPU, aware": (
        cpu_node("n", "amd-epyc-7571", labels=amd_labels(), annotations=cpu_annotations(name="AMD EPYC 7571")),
        "gpustack-amd-epyc-7571-linux-amd64-4c",
        True,
        {
            "name": "gpustack-amd-epyc-7571-linux-amd64",
            "displayName": "AMD EPYC 7571",
            "generalGroup": "amd-epyc-7571",
        },
    ),
    "author device, aware": (
        gpu_node("n", labels={**amd_labels(), **cpu_pool_labels("amd-23-1", "4")}),
        "gpustack-amd-23-1--nvidia-a10g-linux-amd64-2d",
        True,
        {
            "name": "gpustack-amd-23-1--nvidia-a10g-linux-amd64",
            "generalGroup": "amd-23-1",
            "acceleratorGroup": "nvidia-a10g",
        },
    ),
}


@pytest.mark.parametrize(("shown", "name", "aware", "want"), TYPES.values(), ids=TYPES.keys())
def test_derived_type(shown: Object, name: str, aware: bool, want: dict[str, Any]) -> None:
    authored = derived_type(flavor_named(shown, name, cpu_aware=aware), presets(), cpu_aware=aware)
    spec = authored["spec"]
    unit = (spec["unitResources"]["cpu"], spec["unitResources"]["ram"])
    got = {**spec, "name": authored["metadata"]["name"], "unit": unit}
    assert {key: got[key] for key in want} == want
    assert (spec["os"], spec["arch"], spec["localStorage"]) == ("linux", "amd64", "100Gi")
    assert authored["metadata"]["labels"] == {"schedule.gpustack.ai/derived-from-node": "true"}


def test_a_long_display_name_is_cut() -> None:
    shown = node(
        "n",
        labels={**MERGED, **amd_labels(), **cpu_pool_labels("amd-x", "4")},
        annotations=cpu_annotations(name="x" * 200),
    )
    name, flavor = next(iter(flavors_of(labels_of(shown), annotations_of(shown), cpu_aware=True).items()))
    assert name.startswith("gpustack-amd-")
    assert len(derived_type(flavor, presets(), cpu_aware=True)["spec"]["displayName"]) == 64
