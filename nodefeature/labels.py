"""Label keys, annotation keys and their prefixes.

For: every layer that reads or writes a label or an annotation of ours, or one that we take as input (spec 01 §1).
In/Out: constants.
Promises: one spelling in the whole project; every prefix of ours is built on `DOMAIN`.
"""

from __future__ import annotations

from collections.abc import Mapping

DOMAIN = "gpustack.ai/"
TRUE = "true"
FALSE = "false"

MANAGED = "gpustack.ai/managed"
FINALIZER = "gpustack.ai/controlled"
LOCKED = "gpustack.ai/locked"
"""Finalizer of an Instance: it goes when the Instance's Pod has gone."""
SYSTEM_NAMESPACE = "gpustack-system"
RESERVED_NAMESPACES = frozenset({"kube-system", "kube-public", "kube-node-lease"})
"""No workload of a tenant belongs there; the operator's own namespace joins them."""

FEATURE_PREFIX = "feature.gpustack.ai/"
ACCELERATABLE = FEATURE_PREFIX + "acceleratable"
CPU_ONLY = FEATURE_PREFIX + "cpu-only"
DEVICE_PREFIX = "acceleratable.feature.gpustack.ai/"
GENERAL_PREFIX = "general.feature.gpustack.ai/"

RDMA_PREFIX = FEATURE_PREFIX + "rdma."
RDMA_CAPABLE = RDMA_PREFIX + "capable"
RDMA_NUMA = RDMA_PREFIX + "numa"
RDMA_DISTANCE = RDMA_PREFIX + "distance"
FABRIC_PREFIX = FEATURE_PREFIX + "fabric."
FABRIC_DOMAIN = FABRIC_PREFIX + "domain"
FABRIC_MEMBERS = FABRIC_PREFIX + "members"

SLICED_FIT_PREFIX = "sliced-max-free-units.fit.gpustack.ai/"
SHARED_FIT_PREFIX = "shared-free-cards.fit.gpustack.ai/"
EXCLUSIVE_FIT_PREFIX = "exclusive-free-cards.fit.gpustack.ai/"

NOTE_PREFIX = "note.gpustack.ai/"
RESOURCE_TYPE = "resource.gpustack.ai/type"
TYPE_NODES = "nodes"
TYPE_INSTANCE_TYPES = "instancetypes"
TYPE_INSTANCES = "instances"
TYPE_SETTINGS = "settings"
PART_OF = "app.kubernetes.io/part-of"
"""On an Instance's Pod: the Instance's uid."""

TOPOLOGY_PREFIX = "topology.gpustack.ai/"
TOPOLOGY_PROFILE = TOPOLOGY_PREFIX + "profile"
EMPTY_PLAN_HOLD = TOPOLOGY_PREFIX + "empty-plan-hold"

DERIVED_FROM_NODE = "schedule.gpustack.ai/derived-from-node"
CLUSTER_QUEUE_ANNOTATION = "schedule.gpustack.ai/cluster-queue"
QUEUE_ENTRANCE = "schedule.gpustack.ai/queue-entrance"
"""On an InstanceType: the name of the LocalQueues that lead to its pool."""
QUEUE_NAME = "kueue.x-k8s.io/queue-name"

OS = "kubernetes.io/os"
ARCH = "kubernetes.io/arch"
HOSTNAME = "kubernetes.io/hostname"
NFD_NODE_NAME = "nfd.node.kubernetes.io/node-name"

CPU_VENDOR = "feature.node.kubernetes.io/cpu-model.vendor_id"
CPU_FAMILY = "feature.node.kubernetes.io/cpu-model.family"
CPU_ID = "feature.node.kubernetes.io/cpu-model.id"
CPU_ANNOTATION_PREFIX = FEATURE_PREFIX + "cpu-"

# PCI classes that accelerators are found under, in the order they are tried.
PCI_CLASS_PREFIXES = ("02", "03", "0b", "12")


def pci_present(vendor: str) -> str:
    """Return the label NFD sets on a node that has a card of the PCI vendor."""
    return f"feature.node.kubernetes.io/pci-{vendor}.present"


def is_managed(labels: Mapping[str, str]) -> bool:
    """Say whether a Node's or a Devices object's labels carry exactly `gpustack.ai/managed=true`."""
    return labels.get(MANAGED) == TRUE
