"""Gives back the driver-made slices of Pods that are gone (spec 06 §10, last paragraph).

For: the pass that also reclaims partitions. In: the live Pods; markers; drivers. Out: instances destroyed.
Promises: three passes in a row must miss the Pod; only what carries our name for a dead Pod is touched; a subdevice
without an alias, and names of others, stay; profiles that nobody uses go with the last instance that we destroyed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from devicemanager.injection import cambricon, metax
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.injection.host import Host
from devicemanager.injection.request import InjectionRefused
from devicemanager.injection.site import Site

log = logging.getLogger(__name__)

MISSES = 3
_ALIAS_PREFIX = metax.alias_of("")


class Absences:
    """Counts how many passes in a row missed somebody."""

    def __init__(self) -> None:
        self._missed: Counter[str] = Counter()

    def due(self, absent: Iterable[str]) -> set[str]:
        """Count one pass; return those who were missed often enough."""
        self._missed = Counter({key: self._missed[key] + 1 for key in absent})
        return {key for key, count in self._missed.items() if count >= MISSES}


class SgpuReclaimer:
    """MetaX: destroys subdevices whose alias names a dead Pod. `cards` gives the bus addresses of the node's cards."""

    def __init__(self, site: Site, host: Host, driver: metax.SgpuDriver, cards: Callable[[], Iterable[str]]) -> None:
        self._site = site
        self._host = host
        self._driver = driver
        self._cards = cards
        self._absences = Absences()

    def __call__(self, live_pods: frozenset[str]) -> None:
        """Run one pass."""
        dead: dict[str, tuple[str, int]] = {}
        for bus_id in self._cards():
            try:
                live = self._driver.subdevices(bus_id)
            except DriverFault as error:
                log.warning("slices not reclaimed", extra={"card": bus_id, "reason": str(error)})
                continue
            for one in live:
                pod = one.alias.removeprefix(_ALIAS_PREFIX)
                if one.alias.startswith(_ALIAS_PREFIX) and pod not in live_pods:
                    dead[f"{bus_id}#{one.index}/{pod}"] = (bus_id, one.index)
        markers = _dead_markers(self._host, self._site, metax.MARKER, live_pods)
        due = self._absences.due([*dead, *markers])
        kept = [key for key, one in dead.items() if key in due and not _done(partial(self._driver.destroy, *one), key)]
        _drop(self._host, (path for path in markers if path in due and not kept))


class SmluReclaimer:
    """Cambricon: destroys instances whose name holds a dead Pod's uid. `cards` gives the driver's device indexes."""

    def __init__(
        self, site: Site, host: Host, driver: cambricon.SmluDriver, cards: Callable[[], Iterable[int]]
    ) -> None:
        self._site = site
        self._host = host
        self._driver = driver
        self._cards = cards
        self._absences = Absences()

    def __call__(self, live_pods: frozenset[str]) -> None:
        """Run one pass."""
        dead: dict[str, tuple[int, str, int]] = {}
        for index in self._cards():
            try:
                live = self._driver.instances(index)
            except DriverFault as error:
                log.warning("slices not reclaimed", extra={"card": index, "reason": str(error)})
                continue
            for one in live:
                if _pod_of(one.name) and _pod_of(one.name) not in live_pods:
                    dead[f"{index}/{one.name}"] = (index, one.name, one.profile_id)
        markers = _dead_markers(self._host, self._site, cambricon.MARKER, live_pods)
        due = self._absences.due([*dead, *markers])
        kept = [key for key, one in dead.items() if key in due and not _done(partial(self._destroy, *one), key)]
        _drop(self._host, (path for path in markers if path in due and not kept))

    def _destroy(self, index: int, name: str, profile: int) -> None:
        self._driver.destroy(index, name)
        if all(one.profile_id != profile for one in self._driver.instances(index)):
            self._driver.destroy_profile(index, profile)


def _pod_of(name: str) -> str:
    """Return the Pod's uid in an instance's name; empty for names of others."""
    if not name.startswith(cambricon.NAME_PREFIX):
        return ""
    uid, colon, digest = name.removeprefix(cambricon.NAME_PREFIX).rpartition(":")
    return uid if colon and len(digest) == 12 else ""


def _dead_markers(host: Host, site: Site, name: str, live_pods: frozenset[str]) -> list[str]:
    try:
        folders = list(host.work_folders(site.pods_root))
    except InjectionRefused as error:
        log.warning("slices not reclaimed", extra={"reason": str(error)})
        return []
    dead = (folder for folder in folders if folder.removeprefix(site.pods_root).split("/")[1] not in live_pods)
    return [path for folder in dead if host.exists(path := f"{folder}/{name}")]


def _done(work: Callable[[], None], what: str) -> bool:
    try:
        work()
    except DriverFault as error:
        log.warning("slice not reclaimed", extra={"reason": f"{what}: {error}"})
        return False
    log.info("slice of a dead Pod destroyed", extra={"reason": what})
    return True


def _drop(host: Host, paths: Iterable[str]) -> None:
    for path in paths:
        try:
            host.remove(path)
        except InjectionRefused as error:
            log.warning("slice marker not removed", extra={"reason": str(error)})
