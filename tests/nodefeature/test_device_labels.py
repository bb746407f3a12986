"""Device labels: spec 01 §5.1-5.2, cases B001, B002, B036, and labels that do not parse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodefeature.destinations import is_label_value, is_qualified_name
from nodefeature.device_labels import (
    DeviceGroup,
    acceleratable_labels,
    device_group,
    device_keys,
    device_label_problems,
    device_models,
    is_accelerated,
)
from nodefeature.keys import device_group_id
from nodefeature.manufacturers import MANUFACTURER_NAMES
from tests.builders.node_labels import card_labels
from tests.builders.rows import case_json, case_yaml

P = "acceleratable.feature.gpustack.ai/"
UMBRELLA = "feature.gpustack.ai/acceleratable"
T4 = DeviceGroup(
    "nvidia", "tesla-t4", "Tesla T4", 15360, 2560, 4, "580.126.09", "13.0", compute_capability="7.5", family="Turing"
)


def test_a_full_group() -> None:
    assert acceleratable_labels([T4]).labels == {
        UMBRELLA: "true",
        P + "nvidia": "true",
        P + "nvidia.driver-version": "580.126.09",
        P + "nvidia.runtime-version": "13.0",
        P + "nvidia-tesla-t4": "true",
        P + "nvidia-tesla-t4.product": "Tesla-T4",
        P + "nvidia-tesla-t4.memory": "15Gi",
        P + "nvidia-tesla-t4.cores": "2560",
        P + "nvidia-tesla-t4.count": "4",
        P + "nvidia-tesla-t4.family": "Turing",
        P + "nvidia-tesla-t4.comcap": "7.5",
    }


def test_a_group_with_nothing_optional() -> None:
    assert acceleratable_labels([DeviceGroup("nvidia", "h100", "H100", 81920, count=1)]).labels == {
        UMBRELLA: "true",
        P + "nvidia": "true",
        P + "nvidia-h100": "true",
        P + "nvidia-h100.product": "H100",
        P + "nvidia-h100.memory": "80Gi",
        P + "nvidia-h100.cores": "0",
        P + "nvidia-h100.count": "1",
    }


def test_groups_merge_and_an_empty_one_adds_nothing() -> None:
    groups = [
        DeviceGroup("nvidia", "t4", "Tesla T4", 15360, count=1),
        DeviceGroup("nvidia", "a10", "A10", 23028, count=0),
        DeviceGroup("amd", "mi300x", "MI300X", 196608, count=2),
    ]
    labels = acceleratable_labels(groups).labels
    assert labels[P + "amd-mi300x.memory"] == "192Gi"
    assert labels[P + "amd-mi300x.count"] == "2"
    assert device_keys(labels) == ("amd-mi300x", "nvidia-t4")
    assert not any("a10" in label for label in labels)


def test_no_groups_no_labels() -> None:
    assert acceleratable_labels([]).labels == {}
    assert acceleratable_labels([DeviceGroup("nvidia", "a10", "A10")]).labels == {}


def test_groups_that_meet_in_one_key_are_counted_together_and_reported() -> None:
    groups = [
        DeviceGroup("nvidia", "a100", "NVIDIA A100", 81920, count=4),
        DeviceGroup("nvidia", "a100", "NVIDIA A100", 40960, count=2),
    ]
    found = acceleratable_labels(groups)
    assert found.labels[P + "nvidia-a100.count"] == "6"
    assert found.labels[P + "nvidia-a100.memory"] == "40Gi"
    (problem,) = found.problems
    assert "GPUSTACK_DEVICES_GROUP_ID_WITH_MEMORY" in problem
    assert "'nvidia-a100'" in problem


def test_case_b036_a_card_without_memory_figures() -> None:
    case = case_json("B036-unified-memory")
    card = case["card"]
    group = DeviceGroup("nvidia", device_group_id("nvidia", card["name"]), card["name"], 0, count=1)
    assert group.id == case["expect"]["groupId"]
    labels = acceleratable_labels([group]).labels
    assert {label: labels[label] for label in case["expect"]["labels"]} == case["expect"]["labels"]


def test_device_group_reads_a_record_of_any_shape() -> None:
    raw = {
        "id": "t4",
        "manufacturer": "nvidia",
        "name": "Tesla T4",
        "memory": 15360,
        "cores": None,
        "driverVersion": 7,
        "accelerators": [{"id": "a"}, {"id": "b"}],
    }
    assert device_group(raw) == DeviceGroup("nvidia", "t4", "Tesla T4", 15360, count=2)
    shapeless: list[object] = [None, [], {}, {"accelerators": None, "memory": "15360"}]
    for nothing in shapeless:
        assert device_group(nothing) == DeviceGroup("", "", "")


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ({P + "nvidia-h100": "true"}, ("nvidia-h100",)),
        ({P + "nvidia-h100": "True"}, ()),
        ({P + "nvidia-h100": "false"}, ()),
        ({P + "nvidia": "true"}, ()),
        ({P + "nvidia-h100": "true", P + "nvidia-h100.product": "true"}, ("nvidia-h100",)),
        ({P + "nvidia-h100.product": "true"}, ("nvidia-h100.product",)),
        ({P + "acme-x": "true"}, ()),
        ({P + "nvidia-kx-2.7": "true", P + "nvidia-kx-2.7.count": "1"}, ("nvidia-kx-2.7",)),
        ({"feature.gpustack.ai/nvidia-h100": "true"}, ()),
        ({P + "nvidia-b": "true", P + "amd-a": "true"}, ("amd-a", "nvidia-b")),
        ({}, ()),
    ],
)
def test_device_keys(labels: dict[str, str], want: tuple[str, ...]) -> None:
    assert device_keys(labels) == want
    assert is_accelerated(labels) == bool(want)


def _case_labels(name: str) -> list[dict[str, str]]:
    return [obj["spec"]["labels"] for obj in case_yaml(name) if obj["kind"] == "NodeFeature"]


@pytest.mark.parametrize(
    ("labels", "key"),
    list(zip(_case_labels("B001-underscore-names"), ["hygon-k100-ai", "ascend-910-9391"], strict=True)),
    ids=["B001 hygon", "B001 ascend"],
)
def test_case_b001_another_spelling_is_read_under_its_clean_key(labels: dict[str, str], key: str) -> None:
    (model,) = device_models(labels)
    assert model.key == key
    assert model.label == key.replace("-ai", "_ai").replace("-9391", "_9391")
    assert (model.count, model.memory) == (int(labels[f"{P}{model.label}.count"]), "64Gi")


def test_case_b002_a_key_one_character_too_long_is_read_under_its_cut_form() -> None:
    (labels,) = _case_labels("B002-long-product")
    (model,) = device_models(labels)
    assert model.key == "nvidia-rtx-pro-6000-blackwell-max-q-workstati-64c95541"
    assert model.count == 2


def test_two_spellings_of_one_key_are_reported_and_the_clean_one_counts() -> None:
    labels = card_labels("hygon-k100_ai", "8") | card_labels("hygon-k100-ai", "4")
    (model,) = device_models(labels)
    assert (model.label, model.count) == ("hygon-k100-ai", 4)
    (problem,) = device_label_problems(labels)
    assert "'hygon-k100_ai'" in problem


@pytest.mark.parametrize(
    "count", ["eight", "-1", "1e3", "9" * 19, "1000000000000000000", "08", "+8", "8.0", " 8", "", "٨"]
)
def test_a_count_that_is_no_plain_number_is_named(count: str) -> None:
    labels = card_labels("nvidia-t4", count)
    (model,) = device_models(labels)
    assert model.count == 0
    (problem,) = device_label_problems(labels)
    assert f"nvidia-t4.count={count!r}" in problem


def test_a_count_of_zero_or_none_is_silent() -> None:
    for labels in (card_labels("nvidia-t4", "0"), {P + "nvidia-t4": "true"}):
        assert device_models(labels)[0].count == 0
        assert device_label_problems(labels) == ()


@given(st.sampled_from(MANUFACTURER_NAMES), st.text(max_size=200), st.text(max_size=80), st.integers(0, 2**40))
def test_whatever_a_driver_prints_every_label_is_legal(manufacturer: str, product: str, text: str, mib: int) -> None:
    for with_memory in (None, mib):
        group = DeviceGroup(
            manufacturer, device_group_id(manufacturer, product, memory_mib=with_memory), product, mib, 1, 8, text, text
        )
        found = acceleratable_labels([group])
        assert found.problems == ()
        assert all(is_qualified_name(label) and is_label_value(value) for label, value in found.labels.items())
        (model,) = device_models(found.labels)
        assert (model.key, model.label, model.count) == (group.key, group.key, 8)
