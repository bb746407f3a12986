"""What the demo looks at: one reading of the chain's objects, and whether it still moves.

For: `run.py`, `check.py`, `report.py`. In: a client. Out: a `World`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kube.client import Client
from kube.errors import ApiError, Unreachable
from nodefeature.fields import as_map, as_maps, as_str, at, labels_of, name_of, uid_of
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, INSTANCE_TYPE, LOCAL_QUEUE, NODE, RESOURCE_FLAVOR, Kind
from nodefeature.labels import MANAGED, TRUE

SERVED_TYPE = replace(INSTANCE_TYPE, version="v1")
"""InstanceTypes as people see them: through the aggregated API."""

KINDS = (NODE, DEVICES, RESOURCE_FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, INSTANCE_TYPE, SERVED_TYPE)


@dataclass(frozen=True, slots=True)
class World:
    """The objects of the chain, as read at one moment."""

    objects: Mapping[Kind, Sequence[dict[str, Any]]]

    def __getitem__(self, kind: Kind) -> Sequence[dict[str, Any]]:
        return self.objects[kind]

    def version(self) -> frozenset[tuple[str, str]]:
        """Return what changes whenever any object does."""
        return frozenset(
            (uid_of(obj), as_str(at(obj, "metadata", "resourceVersion")))
            for objects in self.objects.values()
            for obj in objects
        )

    def managed_nodes(self) -> list[dict[str, Any]]:
        """Return the nodes that the chain works with."""
        return [node for node in self[NODE] if labels_of(node).get(MANAGED) == TRUE]

    def cards(self) -> int:
        """Return how many cards the agents have published."""
        groups = (group for obj in self[DEVICES] for group in as_maps(at(obj, "spec", "groups")))
        return sum(len(as_maps(group.get("accelerators"))) for group in groups)

    def active_types(self) -> list[dict[str, Any]]:
        """Return the types that take requests."""
        return [obj for obj in self[INSTANCE_TYPE] if as_map(obj.get("status")).get("phase") == "Active"]

    def quota(self, queue: str) -> str:
        """Return a queue's quota, flavor by flavor."""
        for obj in self[CLUSTER_QUEUE]:
            if name_of(obj) == queue:
                flavors = (
                    f for group in as_maps(at(obj, "spec", "resourceGroups")) for f in as_maps(group.get("flavors"))
                )
                figures = (r for flavor in flavors for r in as_maps(flavor.get("resources")))
                return " + ".join(str(figure.get("nominalQuota")) for figure in figures)
        return ""


async def read_world(client: Client) -> World:
    """Read all kinds; one that is not served yet is empty."""
    return World(dict(zip(KINDS, await asyncio.gather(*(_listed(client, kind) for kind in KINDS)), strict=True)))


async def _listed(client: Client, kind: Kind) -> list[dict[str, Any]]:
    try:
        return await client.list(kind)
    except (ApiError, Unreachable):
        return []
