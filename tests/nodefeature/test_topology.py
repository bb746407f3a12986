"""Topology profiles: spec 01 §7.1, spec 08, design §1."""

from __future__ import annotations

import pytest

from nodefeature.topology import DEFAULT_LEVELS, DEFAULT_PROFILE, flavor_object_name, profile_of, topology_name


@pytest.mark.parametrize(
    ("levels", "profile"),
    [
        (("kubernetes.io/hostname",), "fnv64-87bf574bea2a4f23"),
        (
            ("fabric.topograph.run/tier-1", "fabric.topograph.run/tier-0", "kubernetes.io/hostname"),
            "fnv64-e298d8d79b063a9e",
        ),
        (("feature.gpustack.ai/fabric.domain", "kubernetes.io/hostname"), "fnv64-0109f115c79ca357"),
    ],
)
def test_profile_of(levels: tuple[str, ...], profile: str) -> None:
    assert profile_of(levels) == profile
    assert topology_name(profile) == f"gpustack-{profile}"


def test_the_default_profile_adds_nothing_to_a_name() -> None:
    assert profile_of(DEFAULT_LEVELS) == DEFAULT_PROFILE
    assert flavor_object_name("gpustack-amd-25-1-linux-amd64-8c", DEFAULT_PROFILE) == "gpustack-amd-25-1-linux-amd64-8c"


def test_another_profile_is_a_suffix() -> None:
    assert flavor_object_name("gpustack-a-linux-amd64-8c", "fnv64-0109f115c79ca357") == (
        "gpustack-a-linux-amd64-8c-fnv64-0109f115c79ca357"
    )
