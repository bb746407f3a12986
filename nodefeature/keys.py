"""Keys: the short names of a device model or a CPU model that labels, tokens and object names share.

For: the agent (group ids), the worker (general keys), flavors, queues and types (spec 01 §3.3, §4; design §8.1-8.2).
In: what drivers, NFD and people wrote. Out: a key of `a-z 0-9 - .`, at most 54 characters.
Promises:
  - a key fits every place it is used in: as part of an object name, and as a label name with `.capacity` behind it;
  - a key cleans to itself; a longer text keeps its first 45 characters, `-` and 8 hex digits of its FNV-64a;
  - nothing left is `unknown`; products that meet in one key are found by `key_collisions`, never merged unseen.
Trust: labels and annotations of Nodes are written by NFD, our agents and cluster administrators, not by tenants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache

from nodefeature import labels as keys
from nodefeature.hashing import fnv64
from nodefeature.product_names import normalize_product
from nodefeature.quantity import memory_label

MAX_KEY = 63 - len(".capacity")
GENERIC = "generic"
UNKNOWN = "unknown"
_KEPT = 45
# A cluster has few models and many nodes: the walk over a name's characters is done once a name.
_MEMO = 4096
_HASH_DIGITS = 8
_NO_VENDOR = frozenset({"", "vendorunknown"})


@dataclass(frozen=True, slots=True)
class KeyCollision:
    """Different products that clean to one key."""

    key: str
    products: tuple[str, ...]

    def __str__(self) -> str:
        named = ", ".join(repr(product) for product in self.products)
        return f"key {self.key!r} stands for several products: {named}; give them different names"


@lru_cache(maxsize=_MEMO)
def clean_key(text: str) -> str:
    """Return `text` in the key alphabet, cut to 54 characters; `unknown` when nothing is left."""
    return _cut(normalize_product(text)) or UNKNOWN


def _cut(key: str) -> str:
    if len(key) <= MAX_KEY:
        return key
    # The cut may fall behind a separator; a second one beside it would be an empty segment of a name.
    return f"{key[:_KEPT].rstrip('-.')}-{fnv64(key)[:_HASH_DIGITS]}"


def group_memory_suffix(mib: int) -> str:
    """Return the memory part of a group id (spec 01 §3.3): 0 -> `0g`, below 1 GiB -> `1g`, 43693 -> `43g`."""
    if mib <= 0:
        return "0g"
    return "1g" if mib < 1024 else memory_label(mib).lower().replace("i", "")


def device_key(manufacturer: str, product: str, *, memory_mib: int | None = None) -> str:
    """Return the key of a device model: `<manufacturer>-<group id>`.

    `memory_mib` is given when `GPUSTACK_DEVICES_GROUP_ID_WITH_MEMORY` is on.
    """
    maker = normalize_product(manufacturer) or UNKNOWN
    model = normalize_product(product, maker=maker) or UNKNOWN
    suffix = "" if memory_mib is None else "-" + group_memory_suffix(memory_mib)
    return clean_key(f"{maker}-{model}{suffix}")


def device_group_id(manufacturer: str, product: str, *, memory_mib: int | None = None) -> str:
    """Return the id of a device group: its key without `<manufacturer>-`."""
    maker = normalize_product(manufacturer) or UNKNOWN
    return device_key(manufacturer, product, memory_mib=memory_mib).removeprefix(f"{maker}-")


def manufacturer_of(key: str) -> str:
    """Return the text before a key's first `-`."""
    return key.partition("-")[0]


def cpu_annotation(annotations: Mapping[str, str], attribute: str) -> str:
    """Return annotation `feature.gpustack.ai/cpu-<attribute>`; empty for an unresolved template (`@...`)."""
    value = annotations.get(keys.CPU_ANNOTATION_PREFIX + attribute, "")
    return "" if value.startswith("@") else value


def cpu_manufacturer(labels: Mapping[str, str]) -> str:
    """Return the CPU vendor NFD reports, in the key alphabet; `generic` when there is none."""
    return _vendor_key(labels.get(keys.CPU_VENDOR, ""))


def _vendor_key(vendor: str) -> str:
    return GENERIC if vendor.lower() in _NO_VENDOR else normalize_product(vendor) or UNKNOWN


def general_key(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the key of a node's CPU model (spec 01 §4.2). Never empty; os and arch are no part of it."""
    return _general_key(
        labels.get(keys.CPU_VENDOR, ""),
        cpu_annotation(annotations, "name"),
        labels.get(keys.CPU_FAMILY, ""),
        labels.get(keys.CPU_ID, ""),
    )


@lru_cache(maxsize=_MEMO)
def _general_key(vendor: str, name: str, family: str, model: str) -> str:
    maker = _vendor_key(vendor)
    if name:
        part = normalize_product(name, maker=maker, strip_cruft=True)
    else:
        part = f"{family}-{model}" if family and model else ""
    return clean_key(f"{maker}-{part}")


def key_collisions(products: Iterable[tuple[str, str]]) -> tuple[KeyCollision, ...]:
    """Return the keys that more than one product stands behind, from pairs of key and product."""
    seen: dict[str, set[str]] = {}
    for key, product in products:
        seen.setdefault(key, set()).add(product)
    return tuple(KeyCollision(key, tuple(sorted(seen[key]))) for key in sorted(seen) if len(seen[key]) > 1)


@dataclass(frozen=True, slots=True)
class CpuCache:
    """Sizes of a CPU's caches, as reported."""

    l1i: str = ""
    l1d: str = ""
    l2: str = ""
    l3: str = ""


@dataclass(frozen=True, slots=True)
class CpuDetail:
    """What the node's annotations say about its CPU; unreported fields are empty (spec 01 §4.3)."""

    manufacturer: str
    product: str
    family: str
    physical_cores: str
    threads_per_physical_core: str
    logical_cores: str
    stepping: str
    clock_speed: str
    max_clock_speed: str
    cache_line: str
    cache: CpuCache

    def note(self, *, with_identity: bool) -> dict[str, object]:
        """Return the content of the `cpuDetail` note; `with_identity` adds manufacturer, product and family."""
        identity = {"manufacturer": self.manufacturer, "product": self.product, "family": self.family}
        return (identity if with_identity else {}) | {
            "physicalCores": self.physical_cores,
            "threadsPerPhysicalCore": self.threads_per_physical_core,
            "logicalCores": self.logical_cores,
            "stepping": self.stepping,
            "clockSpeed": self.clock_speed,
            "maxClockSpeed": self.max_clock_speed,
            "cacheLine": self.cache_line,
            "cache": asdict(self.cache),
        }


def cpu_detail(labels: Mapping[str, str], annotations: Mapping[str, str]) -> CpuDetail:
    """Return the CPU attributes a node's NFD labels and annotations report."""

    def read(attribute: str) -> str:
        return cpu_annotation(annotations, attribute)

    return CpuDetail(
        manufacturer=cpu_manufacturer(labels),
        product=read("name"),
        family=read("family"),
        physical_cores=read("physical-cores"),
        threads_per_physical_core=read("threads-per-core"),
        logical_cores=read("logical-cores"),
        stepping=read("stepping"),
        clock_speed=read("hz"),
        max_clock_speed=read("boost-freq"),
        cache_line=read("cache-line"),
        cache=CpuCache(l1i=read("cache-l1i"), l1d=read("cache-l1d"), l2=read("cache-l2"), l3=read("cache-l3")),
    )
