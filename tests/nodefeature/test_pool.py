"""Pool labels and selectors: spec 01 §6, spec 04 §1.2."""

from __future__ import annotations

import pytest

from nodefeature.pool import kept_out_by, matches, pool_devices_selector, pool_flavor_selector, pool_schedule_labels

ACCELERATABLE = "feature.gpustack.ai/acceleratable"
H100 = "acceleratable.feature.gpustack.ai/nvidia-h100"
AMD = "general.feature.gpustack.ai/amd-25-1"
PLATFORM = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


@pytest.mark.parametrize(
    ("acceleratable", "aware", "general", "accelerator", "want"),
    [
        (True, True, "amd-25-1", "nvidia-h100", {ACCELERATABLE: "true", H100: "true", AMD: "true"}),
        (False, False, "generic", "", {ACCELERATABLE: "false"}),
        (True, False, "amd-25-1", "nvidia-h100", {ACCELERATABLE: "true", H100: "true"}),
        (False, True, "amd-25-1", "", {ACCELERATABLE: "false", AMD: "true"}),
        (False, True, "generic", "", {ACCELERATABLE: "false"}),
        (False, False, "generic", "nvidia-h100", {ACCELERATABLE: "false"}),
    ],
)
def test_pool_schedule_labels(
    acceleratable: bool, aware: bool, general: str, accelerator: str, want: dict[str, str]
) -> None:
    labels = pool_schedule_labels(
        acceleratable=acceleratable,
        cpu_aware=aware,
        general_group=general,
        accelerator_group=accelerator,
        os="linux",
        arch="amd64",
    )
    assert labels == want | PLATFORM
    assert pool_flavor_selector(labels) == labels


def test_a_pool_without_os_and_arch_has_no_such_labels() -> None:
    labels = pool_schedule_labels(
        acceleratable=False, cpu_aware=False, general_group="", accelerator_group="", os="", arch=""
    )
    assert labels == {ACCELERATABLE: "false"}


SIBLINGS = {
    f"{H100}.count": "8",
    f"{H100}.capacity": "16",
    f"{H100}.product": "NVIDIA-H100",
    "feature.gpustack.ai/rdma.capable": "true",
    "topology.gpustack.ai/profile": "fnv64-87bf574bea2a4f23",
    "gpustack.ai/managed": "true",
    "other": "true",
}


@pytest.mark.parametrize(
    ("labels", "flavors", "devices"),
    [
        (PLATFORM, None, None),
        ({}, None, None),
        (PLATFORM | SIBLINGS, None, None),
        (PLATFORM | {ACCELERATABLE: "false"}, PLATFORM | {ACCELERATABLE: "false"}, None),
        (PLATFORM | SIBLINGS | {H100: "true"}, PLATFORM | {H100: "true"}, PLATFORM | {H100: "true"}),
        (PLATFORM | {H100: "false", AMD: "true"}, PLATFORM | {AMD: "true"}, PLATFORM | {AMD: "true"}),
        ({H100: "true"}, {H100: "true"}, {H100: "true"}),
    ],
    ids=[
        "platform alone",
        "nothing",
        "siblings alone",
        "collapsed CPU queue",
        "device pool",
        "aware CPU",
        "no platform",
    ],
)
def test_selectors(labels: dict[str, str], flavors: dict[str, str] | None, devices: dict[str, str] | None) -> None:
    assert pool_flavor_selector(labels) == flavors
    assert pool_devices_selector(labels) == (devices and devices | {"gpustack.ai/managed": "true"})


POOL = PLATFORM | {ACCELERATABLE: "true", H100: "true"}
NODE = PLATFORM | {H100: "true", f"{H100}.count": "8", "gpustack.ai/managed": "true"}


@pytest.mark.parametrize(
    ("node", "pool", "want"),
    [
        (NODE, POOL, []),
        (NODE, POOL | {"other": "true"}, []),
        (NODE, PLATFORM | {ACCELERATABLE: "false"}, []),
        (NODE | {AMD: "true"}, POOL | {AMD: "true"}, []),
        (NODE, {}, []),
        ({}, PLATFORM, []),
        (NODE | {"gpustack.ai/managed": "false"}, POOL, ["label gpustack.ai/managed is not true"]),
        (NODE | {"kubernetes.io/arch": "arm64"}, POOL, ["label kubernetes.io/arch is not amd64"]),
        (NODE | {f"{H100}.count": "0"}, POOL, ["it has no card nvidia-h100"]),
        (NODE, POOL | {AMD: "true"}, ["it has no CPU amd-25-1"]),
        (PLATFORM, POOL, ["label gpustack.ai/managed is not true", "it has no card nvidia-h100"]),
    ],
    ids=[
        "a node of the pool",
        "labels that are no features",
        "CPU pool",
        "aware pool",
        "no pool",
        "a queue of somebody else",
        "not managed",
        "another architecture",
        "cards taken out",
        "another CPU",
        "a plain node",
    ],
)
def test_what_keeps_a_node_out_of_a_pool(node: dict[str, str], pool: dict[str, str], want: list[str]) -> None:
    assert kept_out_by(node, pool) == want


def test_a_node_s_spelling_of_a_key_is_cleaned_as_everywhere() -> None:
    spelled = "acceleratable.feature.gpustack.ai/hygon-k100_ai"
    node = PLATFORM | {spelled: "true", f"{spelled}.count": "8", "gpustack.ai/managed": "true"}
    pool = PLATFORM | {ACCELERATABLE: "true", "acceleratable.feature.gpustack.ai/hygon-k100-ai": "true"}
    assert kept_out_by(node, pool) == []


def test_matches() -> None:
    assert matches({"a": "1"}, {"a": "1", "b": "2"})
    assert not matches({"a": "1"}, {"a": "2"})
    assert not matches({"a": ""}, {})
