"""Follows Pods and Devices for the whole run and judges every single change.

For: the randomized run. In: the administrator's client. Out: faults, counts, and what every Pod is at.
Promises: no change is missed: a watch goes on from the version it had come to, and one that cannot is a fault; what
waits here is woken by changes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import httpx

from hack.controlplane.admin import Admin, Object
from nodefeature.fields import as_maps, as_str, at, name_of
from nodefeature.kinds import DEVICES, POD, Kind
from tests.e2e.admission.card_books import CardBooks, holds_of, ledger_faults
from tests.e2e.admission.card_wants import Want

_SHOWN = 10


class CardWatch:
    """What the API server has told so far."""

    def __init__(self, admin: Admin, namespace: str, wants: Iterable[Want]) -> None:
        self.books = CardBooks()
        self.pods: dict[str, Object] = {}
        self.devices: dict[str, Object] = {}
        self.events: dict[str, int] = {"Pods": 0, "Devices": 0}
        self.faults: list[str] = []
        self.refused: dict[str, str] = {}
        """Pods that a node failed, and why."""
        self._admin = admin
        self._namespace = namespace
        self._wants = {want.name: want for want in wants}
        self._change = threading.Condition()
        self._ended = threading.Event()

    def start(self) -> None:
        """Learn the fleet's cards, then follow."""
        for kind, namespace in ((DEVICES, ""), (POD, self._namespace)):
            page = self._admin.page(kind, limit=1000)
            for obj in as_maps(page.get("items")):
                self._take(kind, "ADDED", dict(obj))
            since = as_str(at(page, "metadata", "resourceVersion"))
            threading.Thread(target=self._follow, args=(kind, namespace, since), daemon=True).start()

    def end(self) -> None:
        """Stop following with the next change."""
        self._ended.set()

    def _follow(self, kind: Kind, namespace: str, since: str) -> None:
        while not self._ended.is_set():
            try:
                for change, obj in self._admin.watch(kind, namespace, since=since):
                    if self._ended.is_set():
                        return
                    self._take(kind, change, obj)
                    since = as_str(at(obj, "metadata", "resourceVersion"))
            except httpx.TransportError as error:
                self._fault(f"the watch of {kind} broke off: {error}")

    def _take(self, kind: Kind, change: str, obj: Object) -> None:
        with self._change:
            if change == "ERROR":
                self.faults.append(f"the watch of {kind} ended: {obj.get('message')}")
            elif kind == DEVICES:
                self._take_devices(obj)
            elif at(obj, "metadata", "namespace") == self._namespace:
                self._take_pod(obj, gone=change == "DELETED")
            self._change.notify_all()

    def _take_devices(self, devices: Object) -> None:
        self.events["Devices"] += 1
        self.books.take_devices(devices)
        self.devices[name_of(devices)] = devices
        self.faults += ledger_faults(devices)

    def _take_pod(self, pod: Object, *, gone: bool) -> None:
        self.events["Pods"] += 1
        name = name_of(pod)
        if gone:
            self.pods.pop(name, None)
        else:
            self.pods[name] = pod
        self.faults += self.books.take_pod(name, () if gone else holds_of(pod))
        if at(pod, "status", "phase") == "Failed" and not at(pod, "metadata", "deletionTimestamp"):
            self.refused[name] = f"{at(pod, 'status', 'reason')}: {at(pod, 'status', 'message')}"

    def _fault(self, text: str) -> None:
        with self._change:
            self.faults.append(text)
            self._change.notify_all()

    def __str__(self) -> str:
        with self._change:
            running = sum(self._runs(name) for name in self.pods)
            return (
                f"{self.events['Pods']} changes of Pods and {self.events['Devices']} of Devices judged, "
                f"{len(self.faults)} violations, {len(self.refused)} Pods refused by their node; "
                f"{running} run, {len(self.pods) - running} wait"
            )

    # What stands

    def _unsettled(self) -> list[str]:
        """Return Pods that are on their way, and Pods that wait though a node has what they want, with that node."""
        found = []
        for name in sorted(self.pods):
            want = self._wants[name]
            if self._runs(name) or name in self.refused:
                continue
            if at(self.pods[name], "metadata", "deletionTimestamp"):
                found.append(f"{name} is being deleted")
            elif not at(self.pods[name], "spec", "schedulingGates"):
                found.append(f"{name} was let in and does not run on {at(self.pods[name], 'spec', 'nodeName')!r}")
            elif want.family == "card-less" or (node := self.books.place_for(want)):
                place = "any node" if want.family == "card-less" else node
                found.append(f"{name} waits for {want.cards} x {want.units} {want.profile}, and {place} has it")
        return found

    def _runs(self, name: str) -> bool:
        pod = self.pods[name]
        recorded = self._wants[name].family == "card-less" or bool(self.books.by_pod.get(name))
        return at(pod, "status", "phase") == "Running" and recorded and not at(pod, "metadata", "deletionTimestamp")

    def until(self, holds: Callable[[], bool], what: Callable[[], object], timeout_s: float) -> float:
        """Wait for something about Pods and Devices; return the seconds it took."""
        began = time.monotonic()
        with self._change:
            while not holds():
                left = began + timeout_s - time.monotonic()
                assert left > 0, f"not within {timeout_s:.0f} s: {what()}"
                self._change.wait(left)
        return time.monotonic() - began

    def until_settled(self, timeout_s: float, quiet_s: float) -> float:
        """Wait until nobody waits whom a node has room for, and that stays so; return the seconds it took."""
        began = time.monotonic()
        while True:
            self.until(lambda: not self._unsettled(), self._shown, began + timeout_s - time.monotonic())
            settled = time.monotonic()
            with self._change:
                while not self._unsettled() and (left := settled + quiet_s - time.monotonic()) > 0:
                    self._change.wait(left)
                if not self._unsettled():
                    return settled - began

    def _shown(self) -> str:
        left = self._unsettled()
        return f"{len(left)} Pods are settled: " + "; ".join(left[:_SHOWN])
