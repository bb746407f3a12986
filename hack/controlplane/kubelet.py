"""The part of a kubelet that kwok does not play.

For: the scheduler and topology-aware scheduling, which read `status.allocatable`, and the product, which builds on the
pools that device plugins advertise. In: a kubeconfig. Out: patches of `nodes/status`.
Promises: a node advertises the device pools of its Devices object, as its plugins would; extended resources in
`status.capacity`, also those the product patches in, are copied to `status.allocatable`; cpu, memory and pods are never
touched; what a namesake before it had is no matter of a Node. Runs as a process of its own,
`python -m hack.controlplane.kubelet <kubeconfig>`.
"""

from __future__ import annotations

import base64
import logging
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import yaml

from api.devices import is_of_node
from api.ledger.pools import device_pools, pool_names
from hack.controlplane.admin import Admin, Object
from hack.controlplane.errors import RequestError
from hack.controlplane.pki import Pair
from nodefeature.fields import as_map, as_str, at, name_of, uid_of
from nodefeature.kinds import DEVICES, NODE, Kind
from nodefeature.manufacturers import Manufacturers, build_manufacturers

log = logging.getLogger("kubelet")

_PAUSE_S = 0.5
_WRITERS = 8
_NO_CARDS: Object = {"spec": {"groups": []}}


def status_change(node: Object, devices: Object, registry: Manufacturers) -> Object:
    """Return the merge patch of a Node's status: pools into capacity, extended resources on into allocatable."""
    capacity = dict(as_map(at(node, "status", "capacity")))
    if not is_of_node(devices, node):
        devices = {}
    pools = device_pools(devices, registry)
    advertised = {
        name: str(pools.get(name, 0))
        for manufacturer in registry.names
        for name in pool_names(registry, manufacturer)
        # A plugin that finds nothing leaves a 0 behind; where none ever was, an amount is somebody else's.
        if name in pools or (devices and capacity.get(name, "0") != "0")
    }
    changed = {name: amount for name, amount in advertised.items() if capacity.get(name) != amount}
    copied = allocatable_change({"status": {**as_map(node.get("status")), "capacity": {**capacity, **changed}}})
    return {part: change for part, change in (("capacity", changed), ("allocatable", copied)) if change}


def allocatable_change(node: Object) -> dict[str, str | None]:
    """Return the merge patch of `status.allocatable`: extended resources follow capacity, vanished ones go."""
    capacity = as_map(at(node, "status", "capacity"))
    allocatable = as_map(at(node, "status", "allocatable"))
    change: dict[str, str | None] = {
        name: amount for name, amount in capacity.items() if _is_extended(name) and allocatable.get(name) != amount
    }
    return change | {name: None for name in allocatable if _is_extended(name) and name not in capacity}


class Kubelets:
    """All nodes' kubelets: what was last seen of each Node and of its Devices.

    Those who follow never write: the server ends the watch of a reader that falls behind, and all begins anew.
    """

    def __init__(self, admin: Admin, registry: Manufacturers) -> None:
        self._admin = admin
        self._registry = registry
        self._seen: dict[Kind, dict[str, Object]] = {NODE: {}, DEVICES: {}}
        self._waiting: dict[str, None] = {}
        """Nodes to look at, in the order of the changes."""
        self._at_work: set[str] = set()
        self._change = threading.Condition()

    def run(self) -> None:
        """Follow Nodes and Devices until killed; a lost server, or a kind that is not served, is waited for."""
        for _ in range(_WRITERS):
            threading.Thread(target=self._write, daemon=True).start()
        threading.Thread(target=self._follow, args=(DEVICES,), daemon=True).start()
        self._follow(NODE)

    def _follow(self, kind: Kind) -> None:
        while True:
            try:
                for change, obj in self._admin.watch(kind):  # without a version it begins with every object there is
                    if change == "ERROR":
                        break
                    self.take(kind, obj, gone=change == "DELETED")
            except (httpx.TransportError, RequestError) as error:
                log.warning("%s not followed: %s", kind, error)
            time.sleep(_PAUSE_S)

    def take(self, kind: Kind, obj: Object, *, gone: bool) -> None:
        """Remember what became of an object, and ask for its node to be looked at."""
        name = name_of(obj)
        with self._change:
            if gone and kind == DEVICES:
                self._seen[kind][name] = _NO_CARDS
            elif gone:
                self._seen[kind].pop(name, None)
            else:
                self._seen[kind][name] = obj
            self._waiting[name] = None
            self._change.notify()

    def _write(self) -> None:
        while True:
            with self._change:
                name = self._next()
                while name is None:
                    self._change.wait()
                    name = self._next()
                self._at_work.add(name)
            try:
                self.look_at(name)
            finally:
                with self._change:
                    self._at_work.discard(name)
                    self._change.notify()

    def _next(self) -> str | None:
        """Take a waiting node that nobody works on: of one node there is one writer at a time."""
        name = next((name for name in self._waiting if name not in self._at_work), None)
        if name is not None:
            del self._waiting[name]
        return name

    def look_at(self, name: str) -> None:
        """Patch a node's status where it differs from what its kubelet would say."""
        with self._change:
            node, devices = (self._seen[kind].get(name, {}) for kind in (NODE, DEVICES))
        change = status_change(node, devices, self._registry) if node else {}
        if not change:
            return
        patch = {"metadata": {"uid": uid_of(node)}, "status": change}
        try:
            answer = self._admin.patch(NODE, name, patch, subresource="status")
        except (httpx.TransportError, RequestError) as error:
            log.warning("%s: status not patched: %s", name, error)
            return
        log.info("%s: status follows: %s", name, change)
        with self._change:
            if self._seen[NODE].get(name) is node:  # what the watch told meanwhile is newer
                self._seen[NODE][name] = answer


def _is_extended(name: str) -> bool:
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _admin_of(kubeconfig: Path) -> Admin:
    document = yaml.safe_load(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    with tempfile.TemporaryDirectory() as scratch:  # the ssl module reads keys from files only
        files = {}
        for name, data in (
            ("ca", cluster["certificate-authority-data"]),
            ("crt", user["client-certificate-data"]),
            ("key", user["client-key-data"]),
        ):
            files[name] = Path(scratch) / name
            files[name].touch(mode=0o600)
            files[name].write_bytes(base64.b64decode(data))
        return Admin(as_str(cluster["server"]), authority=files["ca"], client=Pair(files["crt"], files["key"]))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    Kubelets(_admin_of(Path(sys.argv[1])), build_manufacturers({})).run()
