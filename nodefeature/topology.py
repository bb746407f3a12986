"""Topology profiles: the ordered label keys a node's place is described by.

For: flavors, Kueue Topologies, the worker's NodeFeature (spec 01 §7.1, design §1).
In: level keys, coarsest first. Out: a profile name and the names built on it.
Promises: equal levels give equal profiles everywhere; the default profile adds nothing to a flavor's name.
"""

from __future__ import annotations

from collections.abc import Sequence

from nodefeature.hashing import fnv64
from nodefeature.labels import HOSTNAME

DEFAULT_LEVELS = (HOSTNAME,)
DEFAULT_PROFILE = "fnv64-87bf574bea2a4f23"


def profile_of(levels: Sequence[str]) -> str:
    """Return the profile of ordered levels; `kubernetes.io/hostname` belongs last."""
    return "fnv64-" + fnv64("\0".join(levels))


def topology_name(profile: str) -> str:
    """Return the name of the Kueue Topology of a profile."""
    return f"gpustack-{profile}"


def flavor_object_name(flavor: str, profile: str) -> str:
    """Return the name of the ResourceFlavor that a flavor has under a profile."""
    return flavor if profile == DEFAULT_PROFILE else f"{flavor}-{profile}"
