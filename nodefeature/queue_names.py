"""Names of queues, of their card check, and of types.

For: ClusterQueues and InstanceTypes (one string), catalogue flavors, LocalQueues (spec 01 §8, design §8.3).
In: keys, os, arch. Out: names.
Promises: single dashes; a doubled dash stands between two keys only, as keys hold single ones.
"""

from __future__ import annotations

from nodefeature.hashing import fnv64
from nodefeature.keys import GENERIC

PREFIX = "gpustack-"
LOCAL_QUEUE_PREFIX = f"{PREFIX}fnv64-"
NODE_DEVICES_CHECK = f"{PREFIX}node-devices"
"""The AdmissionCheck of gate 3: one node has the cards."""


def pool_key(general_group: str, accelerator_group: str) -> str:
    """Return the part of a name that tells pools apart.

    `general_group` is empty where CPUs are not told apart; a pool of cards then has one key, one of CPUs `generic`.
    """
    if not accelerator_group:
        return general_group or GENERIC
    return f"{general_group}--{accelerator_group}" if general_group else accelerator_group


def queue_name(*, general_group: str, accelerator_group: str, os: str, arch: str) -> str:
    """Return the name shared by a ClusterQueue and its InstanceType."""
    return f"{PREFIX}{pool_key(general_group, accelerator_group)}-{os}-{arch}"


def catalogue_flavor_name(*, general_group: str, accelerator_group: str) -> str:
    """Return the name of an InstanceTypeFlavor: a pool without os and arch."""
    return PREFIX + pool_key(general_group, accelerator_group)


def local_queue_name(cluster_queue: str) -> str:
    """Return the name of the LocalQueues that lead to a ClusterQueue: 31 characters, as a label value must be short."""
    return f"{LOCAL_QUEUE_PREFIX}{fnv64(cluster_queue)}"
