"""T-Head: an NVML clone with its own MIG (spec 06 §2.6, §2.7).

The partition profiles are spelled without a dot (`4g48gb`); the inventory keeps the driver's spelling, resource keys
get the public one (spec 01 §2.4).
"""

from __future__ import annotations

from devicemanager.manufacturers.rules import Rules, slices_of, uncorrected_errors, unless_partitioned

RULES = Rules(
    manufacturer="thead",
    slices=unless_partitioned(slices_of("thead")),
    unhealthy=uncorrected_errors,
)
