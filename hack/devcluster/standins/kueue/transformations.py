"""Kueue's resource transformations, rendered from the product's own manufacturers (spec 07 §4)."""

from __future__ import annotations

from hack.devcluster.standins.kueue.quota import Transformation
from nodefeature.credits import CREDITS_PER_ACCELERATOR, UNITS_PER_SHARE
from nodefeature.manufacturers import Manufacturers
from nodefeature.resource_names import Family, resource_of


def transformations_of(registry: Manufacturers) -> dict[str, Transformation]:
    """Return the table by input resource: whole cards, shares, units of slices and of partitions."""
    rows = []
    for manufacturer in registry.names:
        output, base = registry.credits_resource(manufacturer), registry.base(manufacturer)
        shared = resource_of(registry, manufacturer, Family.SHARED)
        sliced = resource_of(registry, manufacturer, Family.SLICED)
        partitioned = resource_of(registry, manufacturer, Family.PARTITIONED)
        rows.append(Transformation(base, output, CREDITS_PER_ACCELERATOR))
        rows.append(Transformation(shared, output, UNITS_PER_SHARE))
        rows.append(Transformation(f"{sliced}.units", output, 1, multiply_by=sliced))
        if partitioned:
            rows.append(Transformation(f"{partitioned}.units", output, 1))
    return {row.source: row for row in rows}
