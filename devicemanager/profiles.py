"""Hardware partition profiles: which of the driver's list may be published (spec 06 §2.7, spec 01 §2.4).

Promises: the driver's word is kept, never computed from sizes; a profile left out lowers no other's count; the
inventory keeps the vendor's spelling.
"""

from __future__ import annotations

from dataclasses import dataclass

from api.devices import PhysicalSliced, Profile
from devicemanager.answers import RawCard, RawProfile
from nodefeature.manufacturers import Manufacturers
from nodefeature.profiles import normalize_profile, profile_resource


@dataclass(frozen=True, slots=True)
class Physical:
    """A partitioned card's offer, and one sentence for each profile left out."""

    sliced: PhysicalSliced
    notes: tuple[str, ...] = ()


NO_PARTITIONS = Physical({})


def physical_sliced(card: RawCard, registry: Manufacturers) -> Physical:
    """Return the profiles a partitioned card offers, in the driver's order, with the largest count among them."""
    kept: dict[str, Profile] = {}
    notes: list[str] = []
    for raw in card.profiles:
        name = normalize_profile(raw.name)
        reason = _refusal(registry, card.manufacturer, name, raw)
        if not reason and name in kept:
            reason = "a second profile of that name"
        if reason:
            notes.append(f"partition profile {raw.name!r} left out: {reason}")
        else:
            kept[name] = _profile(name, raw)
    if not kept:
        return Physical({}, tuple(notes))
    profiles = list(kept.values())
    return Physical({"profiles": profiles, "count": max(p["count"] for p in profiles)}, tuple(notes))


def _refusal(registry: Manufacturers, manufacturer: str, name: str, raw: RawProfile) -> str:
    if not profile_resource(registry, manufacturer, name):
        return "its name cannot be part of a resource name"
    if not raw.starts or min(raw.starts) < 0 or raw.memory_slices <= 0:
        return "it has no legal placement"
    if raw.count <= 0 or raw.compute_slices <= 0:
        return "the driver says that none can be made"
    if raw.memory_mib is None or not 0 < raw.memory_mib < 2**31:
        return "its memory is unknown, so it could not be charged"
    return ""


def _profile(name: str, raw: RawProfile) -> Profile:
    return {
        "name": name,
        "memoryMib": raw.memory_mib or 0,
        "computeSlices": raw.compute_slices,
        "memorySlices": raw.memory_slices,
        "count": raw.count,
        "placements": [{"start": start, "length": raw.memory_slices} for start in sorted(set(raw.starts))],
    }
