"""Node flavors: spec 01 §7, design §8.1-8.3, cases B001, B002, B025."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodefeature.destinations import is_label_value, is_object_name, is_qualified_name
from nodefeature.device_labels import DeviceGroup, acceleratable_labels
from nodefeature.flavor import extract_node_flavors
from nodefeature.keys import device_group_id
from nodefeature.worker_labels import worker_labels
from tests.builders.node_labels import card_labels, cpu_annotations, cpu_labels, cpu_pool_labels, platform
from tests.builders.rows import case_json, case_yaml, recorded

G = "general.feature.gpustack.ai/"
P = "acceleratable.feature.gpustack.ai/"
BASE = {"gpustack.ai/managed": "true", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
EPYC = "AMD EPYC 7763 64-Core Processor"
T4 = card_labels("nvidia-tesla-t4", "2", product="Tesla-T4", family="Turing", memory="15Gi", cores="0")


def test_a_cpu_node() -> None:
    labels = platform() | cpu_labels("AMD", "25", "1") | cpu_pool_labels("amd-25-1", "8")
    (flavor,) = extract_node_flavors(labels, {}).flavors
    assert flavor.name == "gpustack-amd-25-1-linux-amd64-8c"
    assert flavor.node_labels == BASE | {G + "amd-25-1": "true", G + "amd-25-1.count": "8"}
    assert (flavor.general_key, flavor.accelerator_key, flavor.own_key) == ("amd-25-1", "", "amd-25-1")
    assert (flavor.count, flavor.manufacturer, flavor.product, flavor.family) == (8, "amd", "", "")
    assert (flavor.memory, flavor.cores, flavor.acceleratable) == ("", "", False)
    assert flavor.queue_name(cpu_aware=False) == "gpustack-generic-linux-amd64"
    assert flavor.queue_name(cpu_aware=True) == "gpustack-amd-25-1-linux-amd64"
    assert flavor.catalogue_name(cpu_aware=False) == "gpustack-generic"


@pytest.mark.parametrize("aware", [False, True])
def test_a_node_with_cards(aware: bool) -> None:
    labels = platform() | cpu_labels("AMD", "25", "1") | cpu_pool_labels("amd-epyc-7763", "8") | T4
    annotations = cpu_annotations(name=EPYC, family="25")
    cpu, card = extract_node_flavors(labels, annotations, cpu_aware=aware).flavors
    assert (cpu.name, cpu.product, cpu.family) == ("gpustack-amd-epyc-7763-linux-amd64-8c", EPYC, "25")
    prefix = "gpustack-amd-epyc-7763--nvidia-tesla-t4" if aware else "gpustack-nvidia-tesla-t4"
    assert card.name == f"{prefix}-linux-amd64-2d"
    assert card.queue_name(cpu_aware=aware) == f"{prefix}-linux-amd64"
    assert card.catalogue_name(cpu_aware=aware) == prefix
    assert (card.product, card.family, card.memory, card.cores) == ("Tesla-T4", "Turing", "15Gi", "0")
    assert (card.general_key, card.manufacturer) == ("amd-epyc-7763" if aware else "generic", "nvidia")
    own = {P + "nvidia-tesla-t4": "true", P + "nvidia-tesla-t4.count": "2"}
    assert card.node_labels == BASE | own | ({G + "amd-epyc-7763": "true"} if aware else {})


def test_no_labels_no_flavors() -> None:
    assert extract_node_flavors({}, {}).flavors == ()
    assert extract_node_flavors({}, {}).problems == ()


def test_without_a_count_there_is_no_cpu_flavor() -> None:
    labels = platform() | cpu_labels("AMD", "25", "1") | {G + "amd-25-1": "true"}
    assert extract_node_flavors(labels, {}) == extract_node_flavors({}, {})


@pytest.mark.parametrize("count", ["eight", "-1", "1e3", "9" * 19])
def test_a_bad_count_is_named_and_its_neighbours_go_on(count: str) -> None:
    labels = (
        platform()
        | cpu_pool_labels("generic", count)
        | card_labels("nvidia-t4", count)
        | card_labels("amd-mi300x", "8")
    )
    found = extract_node_flavors(labels, {})
    assert found.names == ("gpustack-amd-mi300x-linux-amd64-8d",)
    assert len(found.problems) == 2
    assert all(repr(count) in problem for problem in found.problems)


@pytest.mark.parametrize(
    ("labels", "fragment"),
    [
        ({"kubernetes.io/arch": "amd64"}, "kubernetes.io/os is missing"),
        ({"kubernetes.io/os": "linux"}, "kubernetes.io/arch is missing"),
        (platform(os="Linux_X"), "DNS-1123"),
    ],
)
def test_a_node_that_no_name_fits_is_named(labels: dict[str, str], fragment: str) -> None:
    found = extract_node_flavors(labels | cpu_pool_labels("generic", "8"), {})
    assert found.flavors == ()
    assert found.problems[0].startswith("flavor of generic: ")
    assert fragment in found.problems[0]


def _machines(name: str) -> list[dict[str, str]]:
    """Return each node's labels with those of its NodeFeature merged in, as NFD does."""
    documents = case_yaml(name)
    nodes = {obj["metadata"]["name"]: dict(obj["metadata"]["labels"]) for obj in documents if obj["kind"] == "Node"}
    for obj in documents:
        if obj["kind"] == "NodeFeature":
            nodes[obj["metadata"]["labels"]["nfd.node.kubernetes.io/node-name"]] |= obj["spec"]["labels"]
    return [labels | dict(worker_labels(labels, {}, cpu_capacity="16").labels) for labels in nodes.values()]


def test_case_b001_three_machines_have_flavors_under_legal_names() -> None:
    dcu, npu, z = (extract_node_flavors(labels, {}).flavors for labels in _machines("B001-underscore-names"))
    assert dcu[1].name == "gpustack-hygon-k100-ai-linux-amd64-8d"
    assert dcu[1].own_label == P + "hygon-k100-ai"
    # The node is selected by what it carries.
    assert P + "hygon-k100_ai" in dcu[1].node_labels
    assert npu[1].name == "gpustack-ascend-910-9391-linux-arm64-16d"
    assert [flavor.name for flavor in z] == ["gpustack-ibm-s390-0dbbf8-8561-linux-s390x-16c"]
    for flavor in (*dcu, *npu, *z):
        assert is_object_name(flavor.name)
        assert is_object_name(flavor.queue_name(cpu_aware=True))


def test_case_b002_a_long_name_has_a_flavor() -> None:
    (labels,) = _machines("B002-long-product")
    flavor = extract_node_flavors(labels, {}).flavors[1]
    assert flavor.name == "gpustack-nvidia-rtx-pro-6000-blackwell-max-q-workstati-64c95541-linux-amd64-2d"
    assert is_qualified_name(f"{flavor.own_label}.capacity")


def test_case_b025_every_count_is_a_flavor_of_one_queue() -> None:
    case: dict[str, Any] = case_json("B025-many-counts")
    flavors = [
        extract_node_flavors(platform() | card_labels(case["key"], str(count)), {}).flavors[0]
        for count in case["runs"][1]["counts"]
    ]
    assert len({flavor.name for flavor in flavors}) == 17
    assert {flavor.queue_name(cpu_aware=False) for flavor in flavors} == {"gpustack-nvidia-tesla-t4-linux-amd64"}


def test_kueue_takes_eight_node_labels() -> None:
    labels = platform() | cpu_labels("AMD", "25", "1") | cpu_pool_labels("amd-25-1", "8") | T4
    cpu, card = extract_node_flavors(labels, {}, cpu_aware=True).flavors
    # The profile joins both, the CPU-only marker the first; `rdma.capable` still has room beside the second.
    assert len(cpu.node_labels) + len(("profile", "cpu-only")) == 7
    assert len(card.node_labels) + len(("profile",)) == 7


@given(st.text(max_size=200), st.text(max_size=200), st.sampled_from(["nvidia", "hygon", "ascend"]), st.booleans())
def test_whatever_the_hardware_is_called_it_has_legal_flavors(
    cpu_name: str, product: str, manufacturer: str, aware: bool
) -> None:
    group = DeviceGroup(manufacturer, device_group_id(manufacturer, product), product, 81559, 1, 8)
    annotations = cpu_annotations(name=cpu_name)
    labels = platform() | dict(acceleratable_labels([group]).labels)
    labels |= worker_labels(labels, annotations, cpu_capacity="16").labels
    found = extract_node_flavors(labels, annotations, cpu_aware=aware)
    assert found.problems == ()
    assert len(found.flavors) == 2
    for flavor in found.flavors:
        assert is_object_name(flavor.name)
        assert not re.search(r"-\.|\.-|\.\.|---", flavor.name)
        assert ("--" in flavor.name) == (aware and flavor.acceleratable)
        assert all(is_qualified_name(k) and is_label_value(v) for k, v in flavor.node_labels.items())
        assert all(labels.get(k) == v for k, v in flavor.node_labels.items())


def test_recorded_machines_have_flavors() -> None:
    machine = recorded("hygon-k100ai")
    cards = machine["accelerators"]
    group = DeviceGroup("hygon", device_group_id("hygon", "K100_AI"), "K100_AI", 65520, 120, len(cards))
    annotations = cpu_annotations(name=machine["node"]["cpu"]["name"])
    labels = platform() | machine["nfd_labels"] | dict(acceleratable_labels([group]).labels)
    labels |= worker_labels(labels, annotations, cpu_capacity=str(machine["node"]["cpu"]["logical"])).labels
    assert [name for name in extract_node_flavors(labels, annotations).names if name.endswith("d")] == [
        "gpustack-hygon-k100-ai-linux-amd64-8d"
    ]
