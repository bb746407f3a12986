"""The registry: spec 01 §2, §2.1."""

from __future__ import annotations

import pytest

from nodefeature.manufacturers import MANUFACTURER_NAMES, build_manufacturers
from nodefeature.resource_names import Family, family_of, is_profile_resource, resource_of

TABLE = {
    "amd": ("1002", "amd.com/gpu", "amd", "", 128, True),
    "ascend": ("19e5", "huawei.com/npu", "ascend", "", 63, True),
    "cambricon": ("cabc", "cambricon.com/mlu", "cambricon", "", 16, False),
    "hygon": ("1d94", "hygon.com/dcu", "hygon", "mig", 4, False),
    "iluvatar": ("1e3e", "iluvatar.com/gpu", "iluvatar", "", 128, True),
    "metax": ("9999", "metax-tech.com/gpu", "metax", "", 16, False),
    "mthreads": ("1ed5", "mthreads.com/gpu", "mthreads", "", 16, False),
    "nvidia": ("10de", "nvidia.com/gpu", "nvidia", "mig", 128, True),
    "thead": ("1ded", "alibabacloud.com/ppu", "", "mig", 128, True),
}


@pytest.mark.parametrize("name", TABLE)
def test_table(name: str) -> None:
    known = build_manufacturers({}).get(name)
    assert known is not None
    assert TABLE[name] == (
        known.pci_vendor,
        known.base,
        known.runtime_class,
        known.partition_kind,
        known.max_slices,
        known.overcommits_cores,
    )
    assert known.credits_resource == f"credits.gpustack.ai/{name}"
    assert known.visibility_resource == f"device.gpustack.ai/{name}.visibility"
    assert known.injection_strategy == "envvar"


def test_exactly_nine_sorted() -> None:
    assert build_manufacturers({}).names == MANUFACTURER_NAMES == tuple(sorted(TABLE))
    assert build_manufacturers({}).problems == ()


def test_an_unknown_manufacturer_is_the_empty_string() -> None:
    registry = build_manufacturers({})
    for lookup in (
        registry.base,
        registry.pci_vendor,
        registry.runtime_class,
        registry.partition_kind,
        registry.credits_resource,
    ):
        assert lookup("acme") == ""
    assert not registry.knows("acme")
    assert registry.get("acme") is None


@pytest.mark.parametrize(
    ("resource", "want"),
    [
        ("credits.gpustack.ai/nvidia", True),
        ("credits.gpustack.ai/acme", False),
        ("credits.gpustack.ai/", False),
        ("credits", False),
        ("nvidia.com/gpu", False),
        ("cpu", False),
    ],
)
def test_credits_predicate(resource: str, want: bool) -> None:
    assert build_manufacturers({}).is_credits(resource) is want


def test_overrides() -> None:
    registry = build_manufacturers(
        {
            "GPUSTACK_NVIDIA_PCI_VENDOR_ID": "0302_10de",
            "GPUSTACK_NVIDIA_ACCELERATABLE_RESOURCE_NAME": "example.com/gpu",
            "GPUSTACK_THEAD_ACCELERATABLE_RUNTIME_NAME": "ppu",
            "GPUSTACK_NVIDIA_PARTITION_KIND": "part",
            "GPUSTACK_NVIDIA_DEVICE_INJECTION_STRATEGY": "auto",
            "GPUSTACK_AMD_PARTITION_KIND": "mig",
            "GPUSTACK_METAX_PCI_VENDOR_ID": "",
        }
    )
    nvidia = registry.by_name["nvidia"]
    assert (nvidia.pci_vendor, nvidia.pci_vendor_id) == ("0302_10de", "10de")
    assert nvidia.injection_strategy == "auto"
    assert registry.runtime_class("thead") == "ppu"
    assert registry.partition_kind("amd") == ""
    assert registry.pci_vendor("metax") == "9999"
    assert registry.problems == ()
    # What is derived from a base follows the override everywhere.
    assert family_of(registry, "example.com/gpu.sliced") is Family.SLICED
    assert family_of(registry, "nvidia.com/gpu") is Family.NONE
    assert is_profile_resource(registry, "example.com/gpu.partitioned.part-1g.10gb")
    assert resource_of(registry, "nvidia", Family.SHARED) == "example.com/gpu.shared"


@pytest.mark.parametrize(
    ("variable", "value", "fragment"),
    [
        ("GPUSTACK_NVIDIA_DEVICE_INJECTION_STRATEGY", "magic", "must be one of envvar, cdi-annotations, auto"),
        ("GPUSTACK_NVIDIA_ACCELERATABLE_RESOURCE_NAME", "gpu", "must be a domain-qualified resource name"),
        ("GPUSTACK_NVIDIA_ACCELERATABLE_RESOURCE_NAME", "example.com/" + "g" * 40, "short enough"),
        ("GPUSTACK_NVIDIA_ACCELERATABLE_RESOURCE_NAME", "amd.com/gpu", "already belongs to amd"),
        ("GPUSTACK_NVIDIA_PARTITION_KIND", "m g", "must be a word"),
    ],
)
def test_a_bad_override_is_reported_and_the_default_stays(variable: str, value: str, fragment: str) -> None:
    registry = build_manufacturers({variable: value})
    assert registry.by_name == build_manufacturers({}).by_name
    (problem,) = registry.problems
    assert problem.startswith(f"{variable}={value!r}")
    assert fragment in problem
