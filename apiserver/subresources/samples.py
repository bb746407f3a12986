"""What is measured of an Instance, out of what others measured (spec 05 §12).

For: `metrics`. In: the Instance, its Pod, a kubelet's summary, the metrics API's answer, an agent's snapshot.
Out: the fields of a sample. Promises: pure; conversions round up; zero means measured and idle, an absent field was not
measured; used figures are never clamped; a share that nobody measured shows no use instead of its card's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from api.ledger.modes import CARD_UNITS, Mode, mode_name
from api.ledger.transport import Record
from nodefeature.fields import as_int, as_map, as_maps, as_str, at, metadata, uid_of
from nodefeature.quantity import Quantity, QuantityInvalid, of, of_bytes, parse_quantity, quantity_or_zero

Object = Mapping[str, Any]
_NANO = 1_000_000
_STALE_PERIODS = 3
_DEVICES_OWN = {"temperature": "temperatureCelsius", "powerUsage": "powerUsageWatts"}


@dataclass(frozen=True, slots=True)
class Usage:
    """What a Pod used, as measured at `timestamp`; None was not measured."""

    timestamp: str
    cpu_milli: int | None
    memory_mib: int | None
    storage_mib: int | None = None


def totals(instance: Object, pod: Object | None) -> dict[str, int]:
    """Return the limits: those of the Pod's containers, without a Pod those the Instance asks for."""
    if pod is None:
        asked = as_map(at(instance, "spec", "resources"))
        cpu, memory, storage = (quantity_or_zero(asked.get(key)) for key in ("cpu", "ram", "localStorage"))
    else:
        cpu, memory, storage = (_limits(pod, key) for key in ("cpu", "memory", "ephemeral-storage"))
    return {
        "cpuTotalMilliCores": cpu.ceil_milli(),
        "memoryTotalMiB": _mebibytes(memory),
        "storageTotalMiB": _mebibytes(storage),
    }


def _limits(pod: Object, resource: str) -> Quantity:
    total = of(0)
    for container in as_maps(at(pod, "spec", "containers")):
        total += quantity_or_zero(as_map(at(container, "resources", "limits")).get(resource))
    return total


def has_started(pod: Object) -> bool:
    """Say whether any container of a Pod ever ran; readiness does not matter."""
    keys = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    return any(_ran(container) for key in keys for container in as_maps(at(pod, "status", key)))


def _ran(container: Object) -> bool:
    states = (as_map(container.get("state")), as_map(container.get("lastState")))
    return as_int(container.get("restartCount")) > 0 or any("running" in s or "terminated" in s for s in states)


def from_summary(summary: Object, pod: Object) -> Usage | None:
    """Return the use of a Pod in a kubelet's summary, found by its uid; None when the kubelet does not know it."""
    for entry in as_maps(summary.get("pods")):
        if at(entry, "podRef", "uid") == uid_of(pod):
            cpu, memory = at(entry, "cpu", "usageNanoCores"), at(entry, "memory", "workingSetBytes")
            storage = at(entry, "ephemeral-storage", "usedBytes")
            if not isinstance(cpu, int) and not isinstance(memory, int):
                return None
            when = as_str(at(entry, "cpu", "time")) or as_str(at(entry, "memory", "time"))
            return Usage(when, _milli(cpu), _mib(memory), _mib(storage))
    return None


def _milli(nano: object) -> int | None:
    return -(-nano // _NANO) if isinstance(nano, int) and not isinstance(nano, bool) and nano >= 0 else None


def _mib(count: object) -> int | None:
    known = isinstance(count, int) and not isinstance(count, bool) and count >= 0
    return _mebibytes(of_bytes(as_int(count))) if known else None


def _mebibytes(amount: Quantity) -> int:
    return -(-amount.ceil() // (1 << 20))


def from_metrics_api(entry: Object, pod: Object) -> Usage | None:
    """Return the use of a Pod in an answer of metrics.k8s.io; None for one measured before the Pod was."""
    when, born = _time(entry.get("timestamp")), _time(metadata(pod).get("creationTimestamp"))
    if when is None or (born is not None and when < born):
        return None
    cpu = memory = of(0)
    for container in as_maps(entry.get("containers")):
        usage = as_map(container.get("usage"))
        try:
            cpu += parse_quantity(usage.get("cpu"))
            memory += parse_quantity(usage.get("memory"))
        except QuantityInvalid:
            return None
    return Usage(as_str(entry.get("timestamp")), cpu.ceil_milli(), _mebibytes(memory))


def _time(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(as_str(value))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def is_fresh(snapshot: Object, now: datetime) -> bool:
    """Say whether an agent's snapshot is younger than three of its periods."""
    taken, period_s = _time(snapshot.get("timestamp")), as_int(snapshot.get("periodSeconds"))
    return taken is not None and period_s > 0 and now - taken <= timedelta(seconds=_STALE_PERIODS * period_s)


def accelerators(records: Iterable[Record], snapshots: Iterable[Object]) -> list[dict[str, Any]]:
    """Return an entry for each grant whose card was measured; only cards of the records are shown."""
    measured = {
        as_str(card.get("id")): card
        for snapshot in snapshots
        for group in as_maps(snapshot.get("groups"))
        for card in as_maps(group.get("accelerators"))
    }
    entries: dict[str, dict[str, Any]] = {}
    for record in records:
        card = measured.get(record.card_id)
        if card is None or record.mode is Mode.NONE:
            continue
        name = record.physical_id or record.card_id
        known, shows = entries.get(name), record.mode is Mode.VISIBILITY
        if known is None or known["mode"] == mode_name(int(Mode.VISIBILITY)):
            entries[name] = _entry(name, record, card)
        elif not shows:  # two containers hold it: the figures of neither are known
            entries[name] = _without_figures(known)
    return list(entries.values())


def _without_figures(entry: Mapping[str, Any]) -> dict[str, Any]:
    own = {"memoryTotalMiB", "memoryUsedMiB", "memoryUtilizationPercent", "coresUtilizationPercent"}
    return {key: value for key, value in entry.items() if key not in own}


def _entry(name: str, record: Record, card: Object) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": name, "mode": mode_name(int(record.mode))}
    memory = as_int(card.get("memory"))
    if record.mode is Mode.SLICED and record.allocated > 0 and memory > 0:
        entry["memoryTotalMiB"] = max(record.allocated * memory // CARD_UNITS, 1)
    elif record.mode in (Mode.EXCLUSIVE, Mode.SHARED, Mode.VISIBILITY):
        entry |= _whole(card, memory)
    for key, wanted in _DEVICES_OWN.items():
        if isinstance(card.get(key), int):
            entry[wanted] = as_int(card.get(key))
    if isinstance(card.get("unhealthy"), bool):
        entry["unhealthy"] = card["unhealthy"]
    return entry


def _whole(card: Object, memory: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"memoryTotalMiB": memory} if memory > 0 else {}
    used = card.get("memoryUsage")
    if isinstance(used, int) and used >= 0:
        entry["memoryUsedMiB"] = used
        if memory > 0:
            entry["memoryUtilizationPercent"] = used * 100 // memory
    if isinstance(card.get("coresUtilization"), int):
        entry["coresUtilizationPercent"] = as_int(card.get("coresUtilization"))
    return entry
