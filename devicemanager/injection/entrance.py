"""From a grant to what the container runtime is told.

For: the device plugin (`devicemanager.kubelet.grant.Injector`).
In: grants; the host's files; vendors' drivers. Out: an Injection, everything it needs being in place.
Promises:
  - a container asked for again gets the same answer: slots, masks and instances that it has are kept;
  - one manufacturer's requests are taken one at a time, in a thread: the event loop never waits for a disk or a driver;
  - a refusal leaves behind nothing that was made for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from api.ledger.placements import Placement
from api.pod_requests import Claim
from devicemanager.injection import amd, ascend, hygon, iluvatar, mthreads, thead
from devicemanager.injection.asking import request_of, slice_percentage
from devicemanager.injection.cambricon import SmluDriver
from devicemanager.injection.cu_mask import CuLayout, place_window
from devicemanager.injection.host import Host
from devicemanager.injection.metax import SgpuDriver
from devicemanager.injection.realize import check, write
from devicemanager.injection.request import InjectionRefused, Partition, Plan, Request
from devicemanager.injection.share_flag import ShareFlagDriver, ensure_shared
from devicemanager.injection.site import Site
from devicemanager.injection.slices import SgpuSlices, SmluSlices
from devicemanager.injection.surveys import capability_minors, mig_numbers, npu_infos, vdev_confs
from devicemanager.injection.visible import Visibility
from devicemanager.kubelet.grant import DeviceNode, Grant, Injection, Mount
from devicemanager.partitions.markers import Markers
from nodefeature.fields import as_str
from nodefeature.resource_names import Family

log = logging.getLogger(__name__)


Proves = Callable[[str, str, Partition], bool]
"""Says whether a recorded partition (manufacturer, card id, partition) is alive."""


@dataclass(frozen=True, slots=True)
class Drivers:
    """What vendors' drivers can do on this node; None where there is no driver to ask.

    `layouts` are the compute-unit layouts of AMD's cards by id, read when they were detected.
    """

    share_flag: ShareFlagDriver | None = None
    sgpu: SgpuDriver | None = None
    smlu: SmluDriver | None = None
    layouts: Mapping[str, CuLayout] = field(default_factory=dict)


class HostInjector:
    """Makes grants real on this node."""

    def __init__(
        self,
        site: Site,
        host: Host,
        drivers: Drivers,
        *,
        visibility: Visibility | None = None,
        proves: Proves = lambda manufacturer, card_id, partition: True,
    ) -> None:
        self._site = site
        self._host = host
        self._drivers = drivers
        self._visibility = visibility or Visibility(site, host)
        self._markers = Markers(host, site.pods_root)
        self._proves = proves
        self._sgpu = SgpuSlices(site, host, drivers.sgpu)
        self._smlu = SmluSlices(site, host, drivers.smlu)
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._plans: dict[str, Callable[[Request], Plan]] = {
            "amd": lambda request: amd.plan(request, site),
            "ascend": self._ascend,
            "cambricon": self._smlu.plan,
            "hygon": self._hygon,
            "iluvatar": lambda request: iluvatar.plan(request, site),
            "metax": self._sgpu.plan,
            "mthreads": lambda request: mthreads.plan(request, site),
            "nvidia": self._visibility.plan,
            "thead": self._thead,
        }

    async def inject(self, grant: Grant) -> Injection:
        """Return what the runtime needs; InjectionRefused when the container cannot have it."""
        return await asyncio.to_thread(self._inject, grant)

    def window(
        self, claim: Claim, group: Mapping[str, Any], card: Mapping[str, Any], occupied: Sequence[Placement]
    ) -> Placement | None:
        """Return the compute units of an AMD slice; None for every other manufacturer."""
        if claim.manufacturer != "amd" or claim.family is not Family.SLICED:
            return None
        card_id = as_str(card.get("id"))
        layout = self._drivers.layouts.get(card_id)
        if layout is None:
            raise InjectionRefused(f"accelerator {card_id}: the layout of its compute units is not known")
        return place_window(layout, slice_percentage(claim, group, card), occupied)

    def _inject(self, grant: Grant) -> Injection:
        request = request_of(grant, self._site.registry, self._markers)
        self._prove(request)
        plan = self._plans.get(request.manufacturer)
        if plan is None:
            raise InjectionRefused(f"{request.manufacturer}: accelerators of this manufacturer cannot be given away")
        with self._locks[request.manufacturer]:
            made = check(plan(request), self._host)
            write(made, self._host)
        for note in made.notes:
            log.info(
                "cards injected", extra={"object": f"{request.claim.namespace}/{request.claim.pod}", "reason": note}
            )
        return Injection(
            envs=made.env,
            mounts=tuple(Mount(m.container_path, m.host_path, m.read_only) for m in made.mounts),
            devices=tuple(DeviceNode(node.path, node.path, node.permissions) for node in made.devices),
            annotations=made.annotations,
        )

    def _prove(self, request: Request) -> None:
        for card in request.cards:
            if card.partition and not self._proves(request.manufacturer, card.id, card.partition):
                raise InjectionRefused(f"accelerator {card.id}: partition {card.partition.uuid} is not alive")

    def _ascend(self, request: Request) -> Plan:
        notes: list[str] = []
        if request.claim.family in ascend.SHARING:
            if self._drivers.share_flag is None:
                raise InjectionRefused("ascend: without its driver library no NPU can be shared between containers")
            notes = [ensure_shared(card, self._drivers.share_flag) for card in request.by_index]
        own, others = npu_infos(request, self._site, self._host)
        plan = ascend.plan(request, self._site, own, others)
        return replace(plan, notes=(*plan.notes, *filter(None, notes)))

    def _hygon(self, request: Request) -> Plan:
        own, others = vdev_confs(request, self._site, self._host)
        return hygon.plan(request, self._site, own=own, others=others, numbers=mig_numbers(request, self._host))

    def _thead(self, request: Request) -> Plan:
        return thead.plan(request, self._site, capability_minors(request, self._host))
