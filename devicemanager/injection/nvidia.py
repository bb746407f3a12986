"""NVIDIA: visible devices by variable or CDI, slices by libvgpu, partitions by their own uuid (spec 06 §8, §9).

Promises: exactly one channel makes devices visible; a partition is always named by variable, and never its card.
"""

from __future__ import annotations

from dataclasses import replace

from devicemanager.injection.cdi import Channel
from devicemanager.injection.request import Plan, Request
from devicemanager.injection.shown import partition_uuids, shows_partitions
from devicemanager.injection.site import Site, granted, runtime_major, unless_declared
from devicemanager.injection.vgpu import Shim, limits
from nodefeature.resource_names import Family

_DEFAULT_CUDA = 12
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def plan(request: Request, site: Site, channel: Channel) -> Plan:
    """Return what the container gets; `channel` says how devices become visible."""
    if shows_partitions(request.claim):
        return Plan(env={VISIBLE: ",".join(partition_uuids(request))})
    shown = _visible(request, channel)
    return replace(_limited(request, site, shown), notes=channel.notes)


def library(site: Site, major: int) -> str:
    """Return where the slicing library for a CUDA major version is expected."""
    return site.library("nvidia", f"cuda-{major}", "libvgpu.so")


def _visible(request: Request, channel: Channel) -> Plan:
    if channel.annotation:
        key, value = channel.annotation
        return Plan(annotations={key: value})
    return Plan(env={VISIBLE: ",".join(card.id for card in granted(request))})


def _limited(request: Request, site: Site, shown: Plan) -> Plan:
    if request.claim.family is not Family.SLICED:
        return shown
    cards = granted(request)
    shim = Shim(site.library("nvidia", "ld.so.preload"), library(site, runtime_major(cards, _DEFAULT_CUDA)))
    sliced = limits(request, cards, site, shim)
    quiet = unless_declared(request.claim, LIBCUDA_LOG_LEVEL="0", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    return replace(sliced, env={**shown.env, **sliced.env, **quiet}, annotations=shown.annotations)
