"""Builds injection requests, grants and a host's file tree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from api.ledger.placements import Placement
from devicemanager.injection.host import Host, NodeFacts
from devicemanager.injection.request import Card, ContainerClaim, Partition, Request
from nodefeature.resource_names import Family

WORK = "/var/lib/gpustack/operator/pods/uid-1/c-main"
LIB = "/var/lib/gpustack/operator/lib"
BDF = "0000:0f:00.0"


def claim(family: Family = Family.EXCLUSIVE, /, **changes: Any) -> ContainerClaim:
    """Return container `main` of Pod `team/job` (uid-1)."""
    return ContainerClaim(
        **({"pod_uid": "uid-1", "namespace": "team", "pod": "job", "container": "main", "family": family} | changes)
    )


def card(index: int = 0, /, **changes: Any) -> Card:
    """Return card `GPU-<index>`."""
    fields: dict[str, Any] = {"id": f"GPU-{index}", "index": index, "bus_id": BDF} | changes
    return Card(**fields)


def sliced(cores: int = 0, percent: int = 0, mib: int = 0, **changes: Any) -> ContainerClaim:
    """Return a claim of a logical slice."""
    return claim(Family.SLICED, cores_percentage=cores, memory_percentage=percent, memory_mib=mib, **changes)


def ask(manufacturer: str, claimed: ContainerClaim, *cards: Card) -> Request:
    """Return a request."""
    return Request(manufacturer, claimed, cards)


def partition(uuid: str = "MIG-a", gi: int = 3, ci: int = 0, start: int = 0, length: int = 4) -> Partition:
    """Return a live partition."""
    return Partition(uuid, "3g.40gb", gi, ci, Placement(start, length))


class TreeHost(Host):
    """A file tree under `root` in which device nodes are those declared."""

    def __init__(self, root: Path, nodes: dict[str, int] | None = None, *, present: tuple[str, ...] = ()) -> None:
        super().__init__(root)
        self.nodes = nodes or {}
        self._present = present

    def exists(self, path: str) -> bool:
        return path.startswith(self._present) or super().exists(path) if self._present else super().exists(path)

    def node(self, path: str) -> NodeFacts | None:
        if path in self.nodes:
            return NodeFacts(character=True, minor=self.nodes[path])
        return super().node(path)


def put(root: Path, path: str, text: str) -> None:
    """Write a file of the tree."""
    place = root / path.lstrip("/")
    os.makedirs(place.parent, exist_ok=True)
    place.write_text(text, encoding="utf-8")
