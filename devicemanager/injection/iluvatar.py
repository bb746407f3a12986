"""Iluvatar: visible devices by variable, slices by libvgpu (spec 06 §8)."""

from __future__ import annotations

from dataclasses import replace

from devicemanager.injection.request import Plan, Request
from devicemanager.injection.site import Site, granted, unless_declared
from devicemanager.injection.vgpu import Shim, limits
from nodefeature.resource_names import Family


def plan(request: Request, site: Site) -> Plan:
    """Return what the container gets."""
    cards = granted(request)
    visible = {"IX_VISIBLE_DEVICES": ",".join(card.id for card in cards)}
    if request.claim.family is not Family.SLICED:
        return Plan(env=visible)
    shim = Shim(site.library("iluvatar", "ld.so.preload"), site.library("iluvatar", "libvgpu.so"))
    sliced = limits(request, cards, site, shim)
    return replace(sliced, env=visible | dict(sliced.env) | unless_declared(request.claim, LIBCUDA_LOG_LEVEL="0"))
