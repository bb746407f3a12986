"""Pool labels and selectors: spec 01 §6, spec 04 §1.2."""

from __future__ import annotations

import pytest

from nodefeature.pool import matches, pool_devices_selector, pool_flavor_selector, pool_schedule_labels

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


def test_matches() -> None:
    assert matches({"a": "1"}, {"a": "1", "b": "2"})
    assert not matches({"a": "1"}, {"a": "2"})
    assert not matches({"a": ""}, {})
