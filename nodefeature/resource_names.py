"""Extended resource names by allocation mode, and back.

For: the device plugin, capacity keys, Pod rules, gate 3 (spec 01 §2.2-2.3, §5.5).
In: a registry and a manufacturer, or a resource name. Out: a name (empty when there is none), a family, a base.
Promises: a name is recognised only behind a base the registry knows; suffixes nobody declared are `Family.NONE`.
"""

from __future__ import annotations

from enum import StrEnum

from nodefeature.manufacturers import NODE_DEVICE_PREFIX, Manufacturers

SLICED_UNITS = ".sliced.units"
SLICED_CORES_PERCENTAGE = ".sliced.cores-percentage"
SLICED_MEMORY_PERCENTAGE = ".sliced.memory-percentage"
SLICED_MEMORY_MIB = ".sliced.memory-mib"
PARTITIONED_UNITS = ".partitioned.units"
SLICED_COUNTING_SUFFIXES = (SLICED_UNITS, SLICED_CORES_PERCENTAGE, SLICED_MEMORY_PERCENTAGE, SLICED_MEMORY_MIB)

RDMA = NODE_DEVICE_PREFIX + "rdma"


class Family(StrEnum):
    """How a claim uses an accelerator."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    SLICED = "sliced"
    PARTITIONED = "partitioned"
    VISIBILITY = "visibility"
    NONE = "none"


_CLAIMS = frozenset({Family.EXCLUSIVE, Family.SHARED, Family.SLICED, Family.PARTITIONED})
# Longest first: `.sliced.units` must not be read as a base that ends in `.sliced`.
_FIXED_SUFFIXES = (
    (SLICED_MEMORY_PERCENTAGE, Family.SLICED),
    (SLICED_CORES_PERCENTAGE, Family.SLICED),
    (SLICED_MEMORY_MIB, Family.SLICED),
    (PARTITIONED_UNITS, Family.PARTITIONED),
    (SLICED_UNITS, Family.SLICED),
    (".partitioned", Family.PARTITIONED),
    (".sliced", Family.SLICED),
    (".shared", Family.SHARED),
)


def resource_of(registry: Manufacturers, manufacturer: str, family: Family) -> str:
    """Return the resource that a claim of `family` asks for; empty when the manufacturer has none."""
    known = registry.get(manufacturer)
    if known is None:
        return ""
    if family is Family.SHARED:
        return known.base + ".shared"
    if family is Family.SLICED:
        return known.base + ".sliced"
    if family is Family.PARTITIONED:
        return known.base + ".partitioned" if known.partition_kind else ""
    if family is Family.VISIBILITY:
        return known.visibility_resource
    return known.base


def counting_resource(registry: Manufacturers, manufacturer: str, suffix: str) -> str:
    """Return `<base><suffix>` for one of the counting suffixes; empty when the manufacturer has none."""
    known = registry.get(manufacturer)
    if known is None or (suffix == PARTITIONED_UNITS and not known.partition_kind):
        return ""
    return known.base + suffix


def rdma_resource(family: Family) -> str:
    """Return the network resource of a family; empty for visibility and none."""
    if family not in _CLAIMS:
        return ""
    return RDMA if family is Family.EXCLUSIVE else f"{RDMA}.{family}"


def family_of(registry: Manufacturers, resource: str) -> Family:
    """Return the family a resource name belongs to (spec 01 §2.3)."""
    if resource.startswith(NODE_DEVICE_PREFIX):
        maker = resource.removeprefix(NODE_DEVICE_PREFIX)
        visible = maker.endswith(".visibility") and registry.knows(maker.removesuffix(".visibility"))
        return Family.VISIBILITY if visible else Family.NONE
    if resource in registry.by_base:
        return Family.EXCLUSIVE
    if "." not in resource:
        return Family.NONE
    if is_profile_resource(registry, resource):
        return Family.PARTITIONED
    for suffix, family in _FIXED_SUFFIXES:
        if resource.endswith(suffix) and resource.removesuffix(suffix) in registry.by_base:
            return family
    return Family.NONE


def is_claim(registry: Manufacturers, resource: str) -> bool:
    """Say whether a resource claims an accelerator: exclusive, shared, sliced or partitioned."""
    return family_of(registry, resource) in _CLAIMS


def base_of(registry: Manufacturers, resource: str) -> str:
    """Return the base name in front of a claim's resource; empty when it is no claim."""
    family = family_of(registry, resource)
    if family not in _CLAIMS:
        return ""
    return resource if family is Family.EXCLUSIVE else resource.partition(f".{family}")[0]


def manufacturer_of_resource(registry: Manufacturers, resource: str) -> str:
    """Return the manufacturer whose accelerators a resource claims; empty when it is no claim."""
    known = registry.by_base.get(base_of(registry, resource))
    return known.name if known else ""


def is_profile_resource(registry: Manufacturers, resource: str) -> bool:
    """Say whether a resource is `<base>.partitioned.<kind>-<profile>` of a manufacturer with partitions."""
    known = registry.by_base.get(resource.partition(".partitioned.")[0])
    prefix = known.profile_prefix if known else ""
    return bool(prefix) and resource.startswith(prefix) and len(resource) > len(prefix)
