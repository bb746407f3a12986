"""Builds raw cards, detectors with given answers, and the objects they are published with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from devicemanager.answers import Answer, Bus, Empty, Found, RawCard, RawProfile
from devicemanager.detection import NOTHING_YET, Detection, DetectionOptions, Look, next_detection

NVIDIA_ONLY = DetectionOptions(manufacturers=("nvidia",))

T4 = RawCard(
    "nvidia",
    0,
    product="Tesla T4",
    uuid="GPU-1",
    memory_mib=15360,
    cores=2560,
    compute_capability="7.5",
    driver_version="580.126.09",
    runtime_version="13.0",
    ecc_uncorrected=0,
    health="healthy",
)
ONE_SLICE = RawProfile("MIG 1g.10gb", 7, 9856, 1, 1, (0, 1, 2, 3, 4, 5, 6))


def cards(count: int, base: RawCard = T4, **changes: Any) -> tuple[RawCard, ...]:
    """Return cards `GPU-0`, `GPU-1` ... of one model."""
    return tuple(replace(base, index=n, uuid=f"GPU-{n}", **changes) for n in range(count))


def seen(found: Mapping[str, tuple[RawCard, ...]]) -> Look:
    """Return what a pass hears in which every named manufacturer lists its cards; none is an empty answer."""
    answers: dict[str, Answer] = {
        maker: Found(listed) if listed else Empty("no card") for maker, listed in found.items()
    }
    return Look(answers, Bus())


def detected(**found: tuple[RawCard, ...]) -> Detection:
    """Return the belief after one good pass."""
    return next_detection(NOTHING_YET, seen(found), DetectionOptions(manufacturers=tuple(found)))


class ScriptedDetector:
    """Gives the answers of a script, one a pass; the last one for ever."""

    def __init__(self, *passes: Answer | Mapping[str, Answer], manufacturer: str = "nvidia") -> None:
        self._passes = [dict(p) if isinstance(p, Mapping) else {manufacturer: p} for p in passes]
        self._asked: Counter[str] = Counter()

    async def bus(self) -> Bus:
        return Bus()

    async def detect(self, manufacturer: str, bus: Bus) -> Answer:
        at = min(self._asked[manufacturer], len(self._passes) - 1)
        self._asked[manufacturer] += 1
        return self._passes[at].get(manufacturer, Empty("not in the script"))


def node(name: str = "gpu-a", uid: str = "uid-1", **metadata: Any) -> dict[str, Any]:
    """Return a Node."""
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}
    return {"metadata": {"name": name, "uid": uid, "labels": labels, **metadata}}
