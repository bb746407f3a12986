"""On-disk markers: which container a partition belongs to (spec 06 §10).

For: `keeper`, `binder`, injection. In/Out: one JSON file a container and card, `<work>/<mfr>-mig-<card>.json`.
Promises: the field `card` and the file's name are a frozen on-disk format; a marker that cannot be read is told apart
from one that is not there, and still names its Pod and card by its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from api.ledger.placements import Placement
from devicemanager.injection.host import Host
from devicemanager.injection.markers import MarkerMalformed, fields_of, marker_text
from devicemanager.injection.request import HostFile, Partition

_INFIX = "-mig-"
_TEXTS = ("podUID", "card", "profile", "migUUID")
_NUMBERS = ("giID", "ciID", "computeSlices", "start", "length")


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker that was read."""

    path: str
    pod_uid: str
    container: str
    card_id: str
    compute_slices: int
    partition: Partition


@dataclass(frozen=True, slots=True)
class Corrupt:
    """A marker that could not be read; its place still names Pod and card."""

    path: str
    pod_uid: str
    card_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """All markers of a node."""

    markers: tuple[Marker, ...]
    corrupt: tuple[Corrupt, ...]


class Markers:
    """The markers under a folder of Pods; of one manufacturer when it is named."""

    def __init__(self, host: Host, pods_root: str, manufacturer: str = "") -> None:
        self._host = host
        self._pods_root = pods_root
        self._manufacturer = manufacturer

    def own(self, pod_uid: str, container: str, card_id: str) -> Marker | None:
        """Return a container's marker for a card; MarkerMalformed when it cannot be read."""
        folder = f"{self._pods_root}/{pod_uid}/c-{container}"
        for name in self._host.names(folder):
            if self._names(name) and _card_in(name) == card_id:
                return self._read(f"{folder}/{name}")
        return None

    def find(self) -> Found:
        """Return all markers; HostFault when a folder or file cannot be read."""
        markers: list[Marker] = []
        corrupt: list[Corrupt] = []
        for folder in self._host.work_folders(self._pods_root):
            for name in filter(self._names, self._host.names(folder)):
                path = f"{folder}/{name}"
                try:
                    marker = self._read(path)
                except MarkerMalformed as malformed:
                    pod_uid = folder.removeprefix(self._pods_root).split("/")[1]
                    corrupt.append(Corrupt(path, pod_uid, _card_in(name), str(malformed)))
                else:
                    markers += [marker] if marker is not None else []
        return Found(tuple(markers), tuple(corrupt))

    def write(self, pod_uid: str, container: str, card_id: str, *, compute_slices: int, partition: Partition) -> None:
        """Write a container's marker whole, or raise HostFault."""
        path = f"{self._pods_root}/{pod_uid}/c-{container}/{self._manufacturer}{_INFIX}{card_id}.json"
        text = marker_text(
            {
                "podUID": pod_uid,
                "container": container,
                "card": card_id,
                "profile": partition.profile,
                "giID": partition.gpu_instance,
                "ciID": partition.compute_instance,
                "migUUID": partition.uuid,
                "computeSlices": compute_slices,
                "start": partition.placement.start,
                "length": partition.placement.length,
            }
        )
        self._host.write(HostFile(path, text))

    def remove(self, path: str) -> None:
        """Remove a marker; one that is gone is done."""
        self._host.remove(path)

    def _names(self, name: str) -> bool:
        return is_marker(name) and (not self._manufacturer or name.startswith(self._manufacturer + _INFIX))

    def _read(self, path: str) -> Marker | None:
        text = self._host.read(path)
        if text is None:
            return None
        raw = fields_of(text, path, texts=_TEXTS, numbers=_NUMBERS)
        placement = Placement(raw["start"], raw["length"])
        if placement.start < 0 or placement.length <= 0:
            raise MarkerMalformed(f"{path}: the run {placement.start}:{placement.length} is impossible")
        partition = Partition(raw["migUUID"], raw["profile"], raw["giID"], raw["ciID"], placement)
        container = raw.get("container")
        return Marker(
            path,
            raw["podUID"],
            container if isinstance(container, str) else "",
            raw["card"],
            raw["computeSlices"],
            partition,
        )


def is_marker(name: str) -> bool:
    """Say whether a file's name is that of a partition's marker."""
    return _INFIX in name and name.endswith(".json") and not name.startswith(".")


def _card_in(name: str) -> str:
    return name.partition(_INFIX)[2].removesuffix(".json")
