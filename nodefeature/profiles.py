"""Names of hardware partition profiles: the driver's, the public one, the resource key.

For: detection, the plugin, capacity keys and Pod rules (spec 01 §2.4, case B037).
In: a driver's spelling or a resource name. Out: a name, empty when it cannot be advertised.
Promises: characters are never rewritten, so the driver's word wins over any arithmetic; a profile whose key the API
server would refuse gives an empty key, and the caller leaves it out by name.
"""

from __future__ import annotations

import re

from nodefeature.destinations import is_qualified_name
from nodefeature.manufacturers import Manufacturers
from nodefeature.resource_names import is_profile_resource

# Drivers of these manufacturers join compute and memory without a dot: 4g48gb for what is published as 4g.48gb.
_WITHOUT_SEPARATOR = frozenset({"thead"})
_JOINED = re.compile(r"([0-9]+g)([0-9]+gb)")
_SEPARATED = re.compile(r"([0-9]+g)\.([0-9]+gb)")


def normalize_profile(driver_name: str) -> str:
    """Return a driver-reported name in lower case, its last word only: `MIG 1g.10gb` -> `1g.10gb`."""
    words = driver_name.lower().split()
    return words[-1] if words else ""


def public_profile(manufacturer: str, profile: str) -> str:
    """Return the public spelling of a profile."""
    match = _JOINED.fullmatch(profile) if manufacturer in _WITHOUT_SEPARATOR else None
    return f"{match[1]}.{match[2]}" if match else profile


def vendor_profile(manufacturer: str, profile: str) -> str:
    """Return the driver's spelling of a profile."""
    match = _SEPARATED.fullmatch(profile) if manufacturer in _WITHOUT_SEPARATOR else None
    return f"{match[1]}{match[2]}" if match else profile


def profile_resource(registry: Manufacturers, manufacturer: str, profile: str) -> str:
    """Return `<base>.partitioned.<kind>-<profile>`; empty when it cannot be advertised."""
    known = registry.get(manufacturer)
    if known is None or not known.partition_kind or not profile:
        return ""
    resource = known.profile_prefix + public_profile(manufacturer, profile)
    return resource if is_qualified_name(resource) else ""


def profile_of_resource(registry: Manufacturers, resource: str) -> str:
    """Return the public profile a resource names; empty when it names none."""
    if not is_profile_resource(registry, resource):
        return ""
    known = registry.by_base[resource.partition(".partitioned.")[0]]
    return public_profile(known.name, resource.removeprefix(known.profile_prefix))


def vendor_profile_of_resource(registry: Manufacturers, resource: str) -> str:
    """Return the driver's spelling of the profile a resource names; empty when it names none."""
    profile = profile_of_resource(registry, resource)
    known = registry.by_base.get(resource.partition(".partitioned.")[0])
    return vendor_profile(known.name, profile) if known and profile else ""
