"""What an Instance or a Pod asks for, in the units that each gate counts.

For: the gates' modules. In: evidence. Out: demands on cards of one node, amounts of quota, words.
Promises: pure; a Pod's own requests win over what its Instance would become; credits are counted as Kueue's
transformations do (whole cards, shares, units of slices times their number, units of partitions).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.explain.evidence import Evidence, Object, counted
from api.ledger.fit import pool_sliceable
from api.pod_requests import Claim, Demand, claims_of, clamp32, containers_of, pod_set_demands, whole
from nodefeature.credits import CREDITS_PER_ACCELERATOR, UNITS_PER_PERCENT, UNITS_PER_SHARE
from nodefeature.fields import as_int, as_map, as_maps, as_str, at
from nodefeature.manufacturers import CREDITS_PREFIX
from nodefeature.quantity import quantity_or_zero
from nodefeature.resource_names import Family

CPU = "cpu"


def demands(evidence: Evidence) -> tuple[Demand, ...]:
    """Return what one Pod asks of the cards of its node; nothing for one that asks for no card."""
    if evidence.pod is not None:
        template = {"count": 1, "template": {"spec": as_map(evidence.pod.get("spec"))}}
        return pod_set_demands(template, evidence.registry)
    return _instance_demands(evidence)


def _instance_demands(evidence: Evidence) -> tuple[Demand, ...]:
    """Return what an Instance's Pod would ask for (spec 05 §8.2)."""
    asked = as_map(at(evidence.instance, "spec", "resources"))
    cards = clamp32(quantity_or_zero(asked.get("accelerator")).ceil())
    if cards == 0 or at(evidence.instance_type, "spec", "acceleratable") is False:
        return ()
    profile = as_str(asked.get("acceleratorPartitionedProfile"))
    if profile:
        return (Demand(Family.PARTITIONED, 1, profile=profile),)
    percent = as_int(asked.get("acceleratorSlicedMemoryPercentage"))
    if percent > 0 and pool_sliceable(as_map(at(evidence.instance_type, "status", "detail"))):
        return (Demand(Family.SLICED, cards, units_per_card=min(percent, 100) * UNITS_PER_PERCENT),)
    return (Demand(Family.EXCLUSIVE, cards),)


def described(demand: Demand) -> str:
    """Return a demand in words: `2 whole cards`, `1 slice of 50 %`."""
    if demand.family is Family.SHARED:
        return counted(demand.cards, "share of a card", "shares of cards")
    if demand.family is Family.SLICED:
        return counted(demand.cards, "slice") + f" of {percent_of(demand)} %"
    if demand.family is Family.PARTITIONED:
        return counted(demand.cards, "partition") + (f" {demand.profile}" if demand.profile else "")
    return counted(demand.cards, "whole card")


def unit_of(demand: Demand) -> str:
    """Return what a demand counts."""
    if demand.family is Family.SHARED:
        return "cards with a free share"
    if demand.family is Family.SLICED:
        return f"cards with {percent_of(demand)} % free"
    if demand.family is Family.PARTITIONED:
        return f"partitions {demand.profile}".rstrip()
    return "cards"


def percent_of(demand: Demand) -> int:
    """Return how much of a card one slice is, rounded up."""
    return -(-demand.units_per_card // UNITS_PER_PERCENT)


def unfolded(evidence: Evidence) -> list[Claim]:
    """Return the slices and partitions that carry no units: the webhook writes them, a Pod's author may not."""
    claims = claims_of(as_map(at(evidence.pod, "spec")), evidence.registry)
    needing = (claim for claim in claims if claim.family in (Family.SLICED, Family.PARTITIONED))
    return [claim for claim in needing if whole(claim.cards) > 0 and whole(claim.units) == 0]


def quota_asked(evidence: Evidence) -> dict[str, int]:
    """Return what is asked of the queue, by resource, in thousandths: Kueue's own figures where it has written them."""
    shown = _by_kueue(evidence.workload)
    if shown:
        return shown
    spec = as_map(at(evidence.pod, "spec"))
    asked = {CPU: sum(_milli(container.quantities.get(CPU)) for container in _running(spec))}
    for claim in claims_of(spec, evidence.registry):
        resource = CREDITS_PREFIX + claim.manufacturer
        asked[resource] = asked.get(resource, 0) + credits_of(claim) * 1000
    if evidence.pod is None:
        asked |= _instance_quota(evidence)
    return {resource: amount for resource, amount in asked.items() if amount > 0}


def credits_of(claim: Claim) -> int:
    """Return the credits that one claim costs."""
    if claim.family is Family.EXCLUSIVE:
        return whole(claim.cards) * CREDITS_PER_ACCELERATOR
    if claim.family is Family.SHARED:
        return whole(claim.cards) * UNITS_PER_SHARE
    return whole(claim.units) * (whole(claim.cards) if claim.family is Family.SLICED else 1)


def _by_kueue(workload: Object | None) -> dict[str, int]:
    total: dict[str, int] = {}
    held = as_maps(at(workload, "status", "admission", "podSetAssignments"))
    rows = [row.get("resourceUsage") for row in held] or [
        row.get("resources") for row in as_maps(at(workload, "status", "resourceRequests"))
    ]
    for row in rows:
        for resource, amount in as_map(row).items():
            total[resource] = total.get(resource, 0) + max(quantity_or_zero(amount).ceil_milli(), 0)
    return {resource: amount for resource, amount in total.items() if amount > 0}


def _instance_quota(evidence: Evidence) -> dict[str, int]:
    """Return what its Pod will cost; nothing for a partition, whose units the webhook alone knows."""
    maker = as_str(at(evidence.instance_type, "status", "detail", "manufacturer"))
    wanted, cost = _instance_demands(evidence), 0
    for demand in wanted:
        if demand.family is Family.SLICED:
            cost += demand.cards * demand.units_per_card
        elif demand.family is Family.EXCLUSIVE:
            cost += demand.cards * CREDITS_PER_ACCELERATOR
    if maker and cost:
        return {CREDITS_PREFIX + maker: cost * 1000}
    if wanted:
        return {}
    cpu = _milli(quantity_or_zero(at(evidence.instance, "spec", "resources", "cpu")))
    return {CPU: cpu} if cpu else {}


def _running(spec: Mapping[str, Any]) -> list[Any]:
    return [container for container in containers_of(spec) if container.list_name == "containers"]


def _milli(quantity: Any) -> int:
    return max(quantity.ceil_milli(), 0) if quantity is not None else 0
