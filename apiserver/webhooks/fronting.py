"""The InstanceType in front of the queue that a Pod names (spec 05 §3.1).

For: the Pod webhook. In: the queue label, the world. Out: the type, or what is wrong, or why to ask again.
Trusts: labels of InstanceTypes, which this server writes; never the LocalQueue, which tenants may write: a type is
found by its entrance label alone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from api.problems import Problem, problem
from apiserver.webhooks.world import World
from kube.errors import OperatorError
from nodefeature.fields import as_map, as_str, at, name_of
from nodefeature.keys import manufacturer_of
from nodefeature.labels import QUEUE_NAME

log = logging.getLogger(__name__)
_PATH = f"metadata.labels[{QUEUE_NAME}]"


@dataclass(frozen=True, slots=True)
class Fronting:
    """At most one of the three says something."""

    type: dict[str, Any] = field(default_factory=dict)
    problem: Problem | None = None
    retry: str = ""

    @property
    def name(self) -> str:
        """Return the type's name."""
        return name_of(self.type)

    @property
    def detail(self) -> dict[str, Any]:
        """Return what the pool's hardware is."""
        return dict(as_map(at(self.type, "status", "detail")))

    @property
    def group(self) -> str:
        """Return the pool's accelerator group, `<manufacturer>-<model>`; empty for a pool of CPUs."""
        return as_str(at(self.type, "spec", "acceleratorGroup"))

    @property
    def manufacturer(self) -> str:
        """Return whose cards the pool has, also before its detail is known; empty for a pool of CPUs."""
        return (as_str(self.detail.get("manufacturer")) or manufacturer_of(self.group)) if self.group else ""


async def fronting_type(queue: str, world: World) -> Fronting:
    """Return the one InstanceType behind a queue's name."""
    if not queue:
        return Fronting(problem=problem(_PATH, queue, f'pod has no "{QUEUE_NAME}" label'))
    try:
        found = await world.types_behind(queue)
    except OperatorError as error:
        log.warning("instance types not read", extra={"object": queue, "reason": str(error)})
        return Fronting(retry=f"the instance type that fronts local queue {queue} cannot be read now; retry")
    if not found:
        return Fronting(problem=problem(_PATH, queue, f"no instance type fronts local queue {queue}"))
    if len(found) > 1:
        names = ", ".join(sorted(map(name_of, found)))
        text = (
            f"more than one instance type fronts local queue {queue}: {names}; an administrator must delete all but one"
        )
        return Fronting(retry=text)
    return Fronting(found[0])


def known_type(queue: str, world: World) -> Fronting | None:
    """Return the type behind a queue if memory knows exactly one; asks nobody."""
    found = world.types_known(queue) if queue else ()
    return Fronting(found[0]) if len(found) == 1 else None
