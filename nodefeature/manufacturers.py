"""The accelerator manufacturers this product knows, and their names in the cluster.

For: detection, resource names, capacity keys, runtime classes, admission (spec 01 §2).
In: an environment mapping with overrides (`build_manufacturers`). Out: a frozen registry.
Promises:
  - the registry is built once and handed on; nothing here reads the process environment;
  - an override the API server would refuse is reported in `problems` and the default stays;
  - looking up a manufacturer nobody knows gives the empty string, never an error;
  - everything derived from a base resource name (fixed keys, profile prefixes) follows an overridden one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from nodefeature.destinations import is_qualified_name

CREDITS_PREFIX = "credits.gpustack.ai/"
NODE_DEVICE_PREFIX = "device.gpustack.ai/"
INJECTION_STRATEGIES = ("envvar", "cdi-annotations", "auto")
# The longest thing ever written behind a base name; a base it does not fit behind is unusable.
_LONGEST_SUFFIX = ".sliced.memory-percentage"


@dataclass(frozen=True, slots=True)
class Manufacturer:
    """One manufacturer. `max_slices` is 0 without logical slicing; an empty word means "none" (decision 0460)."""

    name: str
    pci_vendor: str
    base: str
    runtime_class: str
    partition_kind: str = ""
    max_slices: int = 0
    overcommits_cores: bool = False
    injection_strategy: str = "envvar"

    @property
    def credits_resource(self) -> str:
        """Return the quota resource that counts this manufacturer's units."""
        return CREDITS_PREFIX + self.name

    @property
    def visibility_resource(self) -> str:
        """Return the node-level resource that makes cards visible without a claim."""
        return f"{NODE_DEVICE_PREFIX}{self.name}.visibility"

    @property
    def pci_vendor_id(self) -> str:
        """Return the vendor part of a PCI id that may be written `<class>_<vendor>`."""
        return self.pci_vendor.rpartition("_")[2]

    @property
    def profile_prefix(self) -> str:
        """Return what a per-profile resource name begins with; empty without a partition kind."""
        return f"{self.base}.partitioned.{self.partition_kind}-" if self.partition_kind else ""


_DEFAULTS = (
    Manufacturer("amd", "1002", "amd.com/gpu", "amd", max_slices=128, overcommits_cores=True),
    Manufacturer("ascend", "19e5", "huawei.com/npu", "ascend", max_slices=63, overcommits_cores=True),
    Manufacturer("cambricon", "cabc", "cambricon.com/mlu", "cambricon", max_slices=16),
    Manufacturer("hygon", "1d94", "hygon.com/dcu", "hygon", partition_kind="mig", max_slices=4),
    Manufacturer("iluvatar", "1e3e", "iluvatar.com/gpu", "iluvatar", max_slices=128, overcommits_cores=True),
    Manufacturer("metax", "9999", "metax-tech.com/gpu", "metax", max_slices=16),
    Manufacturer("mthreads", "1ed5", "mthreads.com/gpu", "mthreads", max_slices=16),
    Manufacturer(
        "nvidia", "10de", "nvidia.com/gpu", "nvidia", partition_kind="mig", max_slices=128, overcommits_cores=True
    ),
    Manufacturer(
        "thead", "1ded", "alibabacloud.com/ppu", "", partition_kind="mig", max_slices=128, overcommits_cores=True
    ),
)
# The names alone, sorted: for checks that need no registry.
MANUFACTURER_NAMES = tuple(manufacturer.name for manufacturer in _DEFAULTS)


@dataclass(frozen=True, slots=True)
class Manufacturers:
    """The frozen registry. `problems` names every override that was not taken."""

    by_name: Mapping[str, Manufacturer]
    problems: tuple[str, ...] = ()
    by_base: Mapping[str, Manufacturer] = field(init=False)

    def __post_init__(self) -> None:
        bases = {manufacturer.base: manufacturer for manufacturer in self.by_name.values()}
        object.__setattr__(self, "by_name", MappingProxyType(dict(sorted(self.by_name.items()))))
        object.__setattr__(self, "by_base", MappingProxyType(bases))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the known names, sorted."""
        return tuple(self.by_name)

    def knows(self, name: str) -> bool:
        """Say whether a manufacturer is known."""
        return name in self.by_name

    def get(self, name: str) -> Manufacturer | None:
        """Return a manufacturer, or None when nobody knows it."""
        return self.by_name.get(name)

    def base(self, name: str) -> str:
        """Return the base resource name, e.g. `nvidia.com/gpu`."""
        known = self.by_name.get(name)
        return known.base if known else ""

    def pci_vendor(self, name: str) -> str:
        """Return the PCI vendor, possibly written `<class>_<vendor>`."""
        known = self.by_name.get(name)
        return known.pci_vendor if known else ""

    def runtime_class(self, name: str) -> str:
        """Return the RuntimeClass name."""
        known = self.by_name.get(name)
        return known.runtime_class if known else ""

    def partition_kind(self, name: str) -> str:
        """Return the word for hardware partitions, e.g. `mig`."""
        known = self.by_name.get(name)
        return known.partition_kind if known else ""

    def credits_resource(self, name: str) -> str:
        """Return the credits resource."""
        known = self.by_name.get(name)
        return known.credits_resource if known else ""

    def is_credits(self, resource: str) -> bool:
        """Say whether a resource counts the units of a known manufacturer."""
        return resource.startswith(CREDITS_PREFIX) and self.knows(resource.removeprefix(CREDITS_PREFIX))


def build_manufacturers(env: Mapping[str, str]) -> Manufacturers:
    """Return the registry with the overrides of `env` applied (spec 01 §2.1)."""
    problems: list[str] = []
    built: dict[str, Manufacturer] = {}
    bases = {manufacturer.base: manufacturer.name for manufacturer in _DEFAULTS}
    for default in _DEFAULTS:
        manufacturer = _overridden(default, env, problems)
        owner = bases.setdefault(manufacturer.base, manufacturer.name)
        if owner != manufacturer.name:
            variable = _variable(default, "ACCELERATABLE_RESOURCE_NAME")
            problems.append(f"{variable}={manufacturer.base!r} already belongs to {owner}; {default.base!r} stays")
            manufacturer = replace(manufacturer, base=default.base)
        built[manufacturer.name] = manufacturer
    return Manufacturers(built, tuple(problems))


def _variable(manufacturer: Manufacturer, suffix: str) -> str:
    return f"GPUSTACK_{manufacturer.name.upper()}_{suffix}"


def _overridden(default: Manufacturer, env: Mapping[str, str], problems: list[str]) -> Manufacturer:
    def value(suffix: str, fallback: str) -> str:
        return env.get(_variable(default, suffix), "") or fallback

    def legal(suffix: str, fallback: str, *, accepted: bool, rule: str) -> str:
        if accepted:
            return value(suffix, fallback)
        problems.append(f"{_variable(default, suffix)}={value(suffix, '')!r} must be {rule}; {fallback!r} stays")
        return fallback

    base = value("ACCELERATABLE_RESOURCE_NAME", default.base)
    kind = value("PARTITION_KIND", default.partition_kind) if default.partition_kind else ""
    strategy = value("DEVICE_INJECTION_STRATEGY", default.injection_strategy)
    return replace(
        default,
        pci_vendor=value("PCI_VENDOR_ID", default.pci_vendor),
        runtime_class=value("ACCELERATABLE_RUNTIME_NAME", default.runtime_class),
        base=legal(
            "ACCELERATABLE_RESOURCE_NAME",
            default.base,
            accepted="/" in base and is_qualified_name(base + _LONGEST_SUFFIX),
            rule="a domain-qualified resource name short enough for its suffixes",
        ),
        partition_kind=legal(
            "PARTITION_KIND",
            default.partition_kind,
            accepted=not kind or is_qualified_name(f"x/x.partitioned.{kind}-x"),
            rule="a word of letters and digits",
        )
        if default.partition_kind
        else "",
        injection_strategy=legal(
            "DEVICE_INJECTION_STRATEGY",
            default.injection_strategy,
            accepted=strategy in INJECTION_STRATEGIES,
            rule="one of " + ", ".join(INJECTION_STRATEGIES),
        ),
    )


DEFAULT_MANUFACTURERS = build_manufacturers({})
"""The registry without any override."""
