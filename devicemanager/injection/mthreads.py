"""Moore Threads: visible devices by variable; slices are a memory limit and a weight, not a cap (spec 06 §8)."""

from __future__ import annotations

from devicemanager.injection.request import Plan, Request
from devicemanager.injection.site import Site, cores_percentage, granted, memory_mib
from nodefeature.resource_names import Family


def plan(request: Request, site: Site) -> Plan:
    """Return what the container gets; a slice's limit is reckoned on its first card."""
    cards = granted(request)
    env = {"MTHREADS_VISIBLE_DEVICES": ",".join(card.id for card in cards)}
    if request.claim.family is Family.SLICED:
        env["MTHREADS_QOS_MEMORY_LIMIT"] = str(memory_mib(request, cards[0], site) << 20)
        env["MTHREADS_QOS_COMPUTING_POWER_WEIGHT"] = str(cores_percentage(request.claim, cards[0]))
    return Plan(env=env)
