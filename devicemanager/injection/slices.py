"""Slices that a driver makes: MetaX subdevices, Cambricon instances (spec 06 §8.5, §8.6).

In: a request, markers on disk, the driver. Out: a plan whose slice is alive.
Promises: what the driver made for a request that is refused afterwards is unmade; a corrupt marker of the container
itself is an error, one of another container is logged and holds nothing up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from devicemanager.injection import cambricon, metax
from devicemanager.injection.driver_faults import ApiMissing, DriverFault
from devicemanager.injection.host import Host
from devicemanager.injection.markers import MarkerMalformed
from devicemanager.injection.realize import check
from devicemanager.injection.request import Card, HostFile, InjectionRefused, Plan, Request
from devicemanager.injection.site import Site, only_card, physical_index
from nodefeature.resource_names import Family

log = logging.getLogger(__name__)
T = TypeVar("T")


class SgpuSlices:
    """MetaX."""

    def __init__(self, site: Site, host: Host, driver: metax.SgpuDriver | None) -> None:
        self._site = site
        self._host = host
        self._driver = driver

    def plan(self, request: Request) -> Plan:
        """Return what a container gets; its subdevice exists."""
        if request.claim.family is not Family.SLICED:
            return metax.plan(request)
        driver = _driver(self._driver, "metax", "sGPU")
        path = self._site.work(request.claim, metax.MARKER)
        own = _own(self._host, path, metax.parse_marker)
        want = metax.wanted(request, self._site)
        others = [
            sgpu
            for sgpu in _others(self._host, self._site, metax.MARKER, path, metax.parse_marker)
            if sgpu.bus_id == want.bus_id
        ]
        live = _asked(lambda: driver.subdevices(want.bus_id))
        decision = metax.decide(want, own, others, live, request)
        plan = check(metax.plan(request, decision.sgpu), self._host)
        if decision.create:
            self._create(driver, decision)
        if decision.is_new:
            text = metax.dump_marker(decision.sgpu)
            _mark(self._host, HostFile(path, text), lambda: self._undo(driver, decision))
        return plan

    def _create(self, driver: metax.SgpuDriver, decision: metax.Decision) -> None:
        sgpu = decision.sgpu
        if decision.enable:
            _asked(lambda: driver.enable(sgpu.bus_id))
        _asked(lambda: driver.create(sgpu.bus_id, sgpu.index, sgpu.mib, sgpu.alias))

    def _undo(self, driver: metax.SgpuDriver, decision: metax.Decision) -> None:
        if decision.create:
            driver.destroy(decision.sgpu.bus_id, decision.sgpu.index)


class SmluSlices:
    """Cambricon."""

    def __init__(self, site: Site, host: Host, driver: cambricon.SmluDriver | None) -> None:
        self._site = site
        self._host = host
        self._driver = driver

    def plan(self, request: Request) -> Plan:
        """Return what a container gets; its instance exists."""
        if request.claim.family is not Family.SLICED:
            return cambricon.plan(request)
        driver = _driver(self._driver, "cambricon", "sMLU")
        card = only_card(request, "sMLU slicing is single-card")
        index = physical_index(card, 0, "carries no cnDev device index")
        path = self._site.work(request.claim, cambricon.MARKER)
        own = _own(self._host, path, cambricon.parse_marker)
        want = cambricon.wanted(request, self._site)
        if own is not None:
            live = _asked(lambda: driver.instances(index))
            return check(cambricon.plan(request, cambricon.held(want, own, live, request)), self._host)
        _ensure_mode(driver, card, index)
        profile, is_new = self._profile(driver, index, want)
        return self._create(driver, request, index, want, profile=profile, is_new=is_new, path=path)

    def _profile(self, driver: cambricon.SmluDriver, index: int, want: cambricon.Smlu) -> tuple[int, bool]:
        for profile in _asked(lambda: driver.profiles(index)):
            if (profile.cores, profile.mib) == (want.cores, want.mib):
                return profile.profile_id, False
        return _asked(lambda: driver.create_profile(index, want.cores, want.mib)).profile_id, True

    def _create(
        self,
        driver: cambricon.SmluDriver,
        request: Request,
        index: int,
        want: cambricon.Smlu,
        *,
        profile: int,
        is_new: bool,
        path: str,
    ) -> Plan:
        def drop_profile() -> None:
            if is_new:
                driver.destroy_profile(index, profile)

        def undo() -> None:
            driver.destroy(index, want.instance)
            drop_profile()

        try:
            made = _asked(lambda: driver.create(index, profile, want.instance))
        except InjectionRefused:
            _quietly(drop_profile)
            raise
        marker = cambricon.Smlu(want.pod_uid, want.container, want.card, want.instance, profile, want.cores, want.mib)
        try:
            plan = check(cambricon.plan(request, made), self._host)
        except InjectionRefused:
            _quietly(undo)
            raise
        _mark(self._host, HostFile(path, cambricon.dump_marker(marker), 0o600), undo)
        return plan


def _ensure_mode(driver: cambricon.SmluDriver, card: Card, index: int) -> None:
    try:
        if driver.is_enabled(index):
            return
    except ApiMissing as error:
        raise InjectionRefused(f"accelerator {card.id}: its driver has no sMLU: {error}") from error
    except DriverFault as error:
        raise InjectionRefused(f"accelerator {card.id}: its sMLU mode cannot be read: {error}") from error
    try:
        driver.enable(index)
    except DriverFault as error:
        raise InjectionRefused(
            f"accelerator {card.id} at {card.bus_id}, device index {index}: sMLU mode cannot be turned on: {error}; "
            f"on the node: cnmon set -c {index} -smlu on"
        ) from error


def _driver(driver: T | None, manufacturer: str, what: str) -> T:
    if driver is None:
        raise InjectionRefused(
            f"{manufacturer}: no driver interface for {what} slices is configured on this node; "
            "`device-manager preflight` says what is missing"
        )
    return driver


def _own(host: Host, path: str, parse: Callable[[str, str], T]) -> T | None:
    text = host.read(path)
    return parse(text, path) if text is not None else None


def _others(host: Host, site: Site, name: str, mine: str, parse: Callable[[str, str], T]) -> list[T]:
    found: list[T] = []
    for folder in host.work_folders(site.pods_root):
        path = f"{folder}/{name}"
        text = host.read(path) if path != mine else None
        if text is None:
            continue
        try:
            found.append(parse(text, path))
        except MarkerMalformed as malformed:
            log.warning("marker left aside", extra={"reason": str(malformed)})
    return found


def _asked(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except DriverFault as error:
        raise InjectionRefused(str(error)) from error


def _mark(host: Host, file: HostFile, undo: Callable[[], None]) -> None:
    try:
        host.write(file)
    except InjectionRefused:
        _quietly(undo)
        raise


def _quietly(undo: Callable[[], None]) -> None:
    """Undo what can be undone: the refusal under way says more than a failed clean-up; reclaiming finds the rest."""
    try:
        undo()
    except DriverFault as error:
        log.warning("what a refused request had made could not be unmade", extra={"reason": str(error)})
