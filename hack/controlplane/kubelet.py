"""The part of a kubelet that kwok does not play.

For: the scheduler and topology-aware scheduling, which read `status.allocatable`. The product patches counting keys
into `status.capacity`; a kubelet copies extended resources from there to `status.allocatable` with its next status.
In: a kubeconfig. Out: patches of `nodes/status`. Promises: touches extended resources only, never cpu, memory or pods.
Runs as a process of its own, `python -m hack.controlplane.kubelet <kubeconfig>`, so that it outlives the command.
"""

from __future__ import annotations

import base64
import logging
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from hack.controlplane.admin import Admin, Object
from hack.controlplane.errors import RequestError
from hack.controlplane.pki import Pair
from nodefeature.fields import as_map, as_str, at, name_of
from nodefeature.kinds import NODE

log = logging.getLogger("kubelet")

_PAUSE_S = 0.5


def allocatable_change(node: Object) -> dict[str, str | None]:
    """Return the merge patch of `status.allocatable`: extended resources follow capacity, vanished ones go."""
    capacity = as_map(at(node, "status", "capacity"))
    allocatable = as_map(at(node, "status", "allocatable"))
    change: dict[str, str | None] = {
        name: amount for name, amount in capacity.items() if _is_extended(name) and allocatable.get(name) != amount
    }
    return change | {name: None for name in allocatable if _is_extended(name) and name not in capacity}


def run(admin: Admin) -> None:
    """Follow all nodes until killed; a lost server is waited for."""
    while True:
        try:
            _follow(admin)
        except (httpx.TransportError, RequestError) as error:
            log.warning("nodes not followed: %s", error)
        time.sleep(_PAUSE_S)


def _follow(admin: Admin) -> None:
    for change, node in admin.watch(NODE):  # without a version the watch begins with every node there is
        if change in {"ADDED", "MODIFIED"}:
            _copy(admin, node)
        elif change == "ERROR":
            return


def _copy(admin: Admin, node: Object) -> None:
    change = allocatable_change(node)
    if not change:
        return
    patch: Mapping[str, Any] = {"status": {"allocatable": change}}
    try:
        admin.patch(NODE, name_of(node), patch, subresource="status")
    except RequestError as error:
        log.warning("%s: allocatable not patched: %s", name_of(node), error)
    else:
        log.info("%s: allocatable follows capacity: %s", name_of(node), change)


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
    run(_admin_of(Path(sys.argv[1])))
