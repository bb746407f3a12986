"""The fit pin: a Workload waits for nodes that have room on a card (spec 05 §4.2, spec 01 §5.7, design §8.10).

For: `route`. In: a Workload that has no quota yet, the pool its queue leads to. Out: node affinity of its PodSets.
Promises: it never refuses; a missing link, a failed read or a foreign queue changes nothing; only
`/spec/podSets/<i>/template/spec/affinity` is touched. Kueue reserves the same node again after a Retry unless the node
itself says that it has no room: so every family that the labels describe is pinned.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from api.pod_requests import FitDemand, fit_demand
from apiserver.webhooks.node_affinity import Expression, above, with_expressions
from apiserver.webhooks.patches import Draft
from apiserver.webhooks.review import ALLOWED, UPDATE, Answer, Request
from apiserver.webhooks.world import World
from kube.errors import OperatorError
from nodefeature.destinations import is_qualified_name
from nodefeature.fields import as_list, as_str, at, has_condition
from nodefeature.kinds import WORKLOAD
from nodefeature.labels import EXCLUSIVE_FIT_PREFIX, SHARED_FIT_PREFIX, SLICED_FIT_PREFIX
from nodefeature.queue_names import LOCAL_QUEUE_PREFIX

_NO_DEMAND = FitDemand()

log = logging.getLogger(__name__)


async def mutate(request: Request, world: World) -> Answer:
    """Pin what asks for slices, shares or whole cards."""
    workload = request.object
    queue = as_str(at(workload, "spec", "queueName"))
    if request.subresource or not queue.startswith(LOCAL_QUEUE_PREFIX) or not world.settings().workload_fit_affinity:
        return ALLOWED
    if request.operation == UPDATE and _has_quota(request.old):
        return ALLOWED
    demands = {
        index: demand
        for index, pod_set in enumerate(as_list(at(workload, "spec", "podSets")))
        if isinstance(pod_set, Mapping) and (demand := fit_demand(pod_set, world.registry)) != _NO_DEMAND
    }
    group = await _group_of(request.namespace, queue, world) if demands else ""
    if not group:
        return ALLOWED
    draft = Draft(workload)
    for index, demand in demands.items():
        place = ("spec", "podSets", index, "template", "spec", "affinity")
        affinity = with_expressions(draft.get(*place), expressions(demand, group))
        if affinity is not None:
            draft.set(affinity, *place)
    return Answer(draft.patch)


def expressions(demand: FitDemand, group: str) -> list[Expression]:
    """Return what a node's fit labels must say; nothing for a group that makes no label."""
    asked = (
        (SLICED_FIT_PREFIX, demand.sliced_units),
        (SHARED_FIT_PREFIX, demand.shared_cards),
        (EXCLUSIVE_FIT_PREFIX, demand.exclusive_cards),
    )
    return [above(prefix + group, least - 1) for prefix, least in asked if least and is_qualified_name(prefix + group)]


async def _group_of(namespace: str, queue: str, world: World) -> str:
    try:
        pool = await world.pool_of(namespace, queue)
    except OperatorError as error:
        extra = {"kind": WORKLOAD.kind, "object": f"{namespace}/{queue}", "reason": str(error)}
        log.warning("pool not read, workload not pinned", extra=extra)
        return ""
    return as_str(at(pool, "spec", "acceleratorGroup"))


def _has_quota(workload: Mapping[str, Any]) -> bool:
    return has_condition(workload, "QuotaReserved") or bool(at(workload, "status", "admission"))
