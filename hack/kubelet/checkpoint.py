"""The device manager's memory across restarts: who was given which devices.

For: `device_manager`. In/Out: the file `kubelet_internal_checkpoint` in the folder of the sockets, as JSON.
Promises: written whole (temporary file, rename); an unreadable file is an empty one, as after a node was wiped.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

FILE = "kubelet_internal_checkpoint"


class Given(NamedTuple):
    """Devices of one container."""

    pod_uid: str
    container: str
    resource: str
    ids: tuple[str, ...]


class Checkpoint(NamedTuple):
    """Everything that is kept."""

    given: tuple[Given, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = {}


def write_checkpoint(folder: Path, given: Iterable[Given], registered: Mapping[str, Iterable[str]]) -> None:
    """Write the file."""
    data = {
        "PodDeviceEntries": [
            {"PodUID": g.pod_uid, "ContainerName": g.container, "ResourceName": g.resource, "DeviceIDs": list(g.ids)}
            for g in sorted(given)
        ],
        "RegisteredDevices": {resource: sorted(ids) for resource, ids in sorted(registered.items())},
    }
    text = json.dumps(data)
    temporary = folder / f".{FILE}.tmp"
    temporary.write_text(json.dumps({"Data": data, "Checksum": zlib.crc32(text.encode())}))
    temporary.rename(folder / FILE)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the file."""
    try:
        document = json.loads((folder / FILE).read_text())
        data = document["Data"]
        if zlib.crc32(json.dumps(data).encode()) != document["Checksum"]:
            return Checkpoint()
        given = tuple(
            Given(e["PodUID"], e["ContainerName"], e["ResourceName"], tuple(e["DeviceIDs"]))
            for e in data["PodDeviceEntries"]
        )
        return Checkpoint(given, {name: tuple(ids) for name, ids in data["RegisteredDevices"].items()})
    except (OSError, ValueError, KeyError, TypeError):
        return Checkpoint()
