"""Prometheus families of the Instances and cards of this node (spec 06 §13.1).

In: the last round, the last snapshot. Out: metric families.
Promises: pure: a scrape reads no hardware, no file and no API; what was not measured has no series, and a series goes
with its subject.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from api.ledger.modes import Mode
from devicemanager.exporter.attribution import Owner
from devicemanager.exporter.instance_pods import Grant, InstancePod
from devicemanager.exporter.rounds import NO_ROUND, PodUsage, Round
from devicemanager.monitor import CardSample, Monitor, Snapshot, percent

POD_LABELS = ("namespace", "instance_name", "instance_uid", "node")
CARD_LABELS = (*POD_LABELS, "id", "index", "manufacturer", "mode")
_POD_FAMILIES = {
    "cpu_total_millicores": "CPU an Instance may use.",
    "cpu_used_millicores": "CPU an Instance uses.",
    "memory_total_mib": "Memory an Instance may use.",
    "memory_used_mib": "Memory an Instance uses.",
    "storage_total_mib": "Local storage an Instance may use.",
    "storage_used_mib": "Local storage an Instance uses.",
}
_CARD_FAMILIES = {
    "memory_total_mib": "Accelerator memory granted to an Instance.",
    "memory_used_mib": "Accelerator memory an Instance uses.",
    "memory_utilization_percent": "Part of the granted accelerator memory in use.",
    "cores_utilization_percent": "Part of the granted compute in use; may exceed 100 where compute is overcommitted.",
    "temperature_celsius": "Temperature of the whole accelerator.",
    "power_usage_watts": "Power drawn by the whole accelerator.",
    "unhealthy": "1 when the accelerator is unhealthy.",
}
Labels = tuple[str, ...]


@dataclass(slots=True)
class Families:
    """Series under way: family -> labels -> value."""

    series: dict[str, dict[Labels, float]] = field(default_factory=dict)

    def add(self, family: str, labels: Labels, value: float | None) -> None:
        """Add a series; a value of None adds none."""
        if value is not None:
            self.series.setdefault(family, {})[labels] = value


class InstanceCollector(Collector):
    """What `/metrics` shows; the exporter puts a new `round` here."""

    def __init__(self, node: str, monitor: Monitor) -> None:
        self.round: Round = NO_ROUND
        self.has_cards = True
        self._node = node
        self._monitor = monitor

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families as of now."""
        if self.has_cards:
            yield from families(self.round, self._monitor.fresh(), self._node)


def families(shown: Round, snapshot: Snapshot | None, node: str) -> Iterator[GaugeMetricFamily]:
    """Yield every family that has a series. `snapshot` is None when there is none or it is stale."""
    pods, cards = Families(), Families()
    for pod in shown.pods:
        labels = (pod.namespace, pod.instance, pod.instance_uid, node)
        if shown.exports_pods:
            _add_pod(pods, labels, pod, (shown.kubelet or {}).get(pod.pod_uid))
        if snapshot is not None:
            _add_cards(cards, labels, pod, snapshot, shown)
    yield from _gauges("gpustack_instance_", _POD_FAMILIES, POD_LABELS, pods)
    yield from _gauges("gpustack_instance_accelerator_", _CARD_FAMILIES, CARD_LABELS, cards)
    yield from _capabilities(shown, snapshot, node)
    yield from _verdicts(shown, snapshot)


def _add_pod(into: Families, labels: Labels, pod: InstancePod, used: PodUsage | None) -> None:
    for name, total in (
        ("cpu_total_millicores", pod.cpu_milli),
        ("memory_total_mib", pod.memory_mib),
        ("storage_total_mib", pod.storage_mib),
    ):
        into.add(name, labels, total)
    if used is not None:
        into.add("cpu_used_millicores", labels, used.cpu_milli)
        into.add("memory_used_mib", labels, used.memory_mib)
        into.add("storage_used_mib", labels, used.storage_mib)


def _add_cards(into: Families, labels: Labels, pod: InstancePod, snapshot: Snapshot, shown: Round) -> None:
    by_series: dict[Labels, list[Grant]] = {}
    for grant in pod.grants:
        series = (*labels, grant.shown_id, str(grant.index), grant.manufacturer, grant.mode_name)
        by_series.setdefault(series, []).append(grant)
    for series, grants in by_series.items():
        card = snapshot.card(grants[0].card_id)
        if card is None:
            continue
        totals = [grant.memory_mib for grant in grants if grant.memory_mib is not None]
        into.add("memory_total_mib", series, sum(totals) if totals else None)
        if len(grants) == 1:
            # Several containers of one Instance on one card: their figures cannot stand under one name.
            used, cores = _usage(grants[0], pod, card, shown)
            into.add("memory_used_mib", series, used)
            into.add("memory_utilization_percent", series, percent(used, grants[0].memory_mib))
            into.add("cores_utilization_percent", series, cores)
        into.add("temperature_celsius", series, card.usage.temperature)
        into.add("power_usage_watts", series, card.usage.power_w)
        into.add("unhealthy", series, int(card.unhealthy))


def _usage(grant: Grant, pod: InstancePod, card: CardSample, shown: Round) -> tuple[int | None, int | None]:
    """Return (MiB, percent of the grant's compute); a share that was not measured is never the card's figure."""
    if grant.mode is Mode.SLICED:
        share = shown.shares.of(Owner(pod.pod_uid, grant.container), grant.card_id)
        if share is None:
            return None, None
        restated = -(-share.cores * 100 // grant.cap) if share.cores is not None and grant.cap else None
        return (share.memory_mib if card.memory_mib else None), restated
    if grant.mode is Mode.PARTITIONED:
        own = next((one for one in card.usage.partitions if one.uuid == grant.shown_id), None)
        return (own.memory_used_mib, own.cores) if own else (None, None)
    return card.memory_used_mib, card.usage.cores


def _capabilities(shown: Round, snapshot: Snapshot | None, node: str) -> Iterator[GaugeMetricFamily]:
    if snapshot is None or not shown.shares.capabilities:
        return
    gauge = GaugeMetricFamily(
        "gpustack_accelerator_process_capability",
        "1 when processes on an accelerator can be told apart; else 0 and the reason.",
        labels=("node", "manufacturer", "id", "entry_point", "reason"),
    )
    for able in shown.shares.capabilities:
        for entry_point, reason in (("memory", able.memory), ("cores", able.cores)):
            gauge.add_metric((node, able.manufacturer, able.card_id, entry_point, reason), 0 if reason else 1)
    yield gauge


def _verdicts(shown: Round, snapshot: Snapshot | None) -> Iterator[GaugeMetricFamily]:
    success = GaugeMetricFamily(
        "gpustack_instance_metrics_collector_success", "1 when a source could be read.", labels=("source",)
    )
    if shown.exports_pods or not shown.is_listed:
        success.add_metric(("kubelet",), int(shown.is_listed and shown.kubelet is not None))
    success.add_metric(("snapshot",), int(snapshot is not None))
    yield success
    if shown.kubelet_seconds is not None:
        lasted = GaugeMetricFamily(
            "gpustack_instance_metrics_collector_duration_seconds", "Length of the last reading.", labels=("source",)
        )
        lasted.add_metric(("kubelet",), shown.kubelet_seconds)
        yield lasted


def _gauges(
    prefix: str, known: Mapping[str, str], labels: Sequence[str], found: Families
) -> Iterable[GaugeMetricFamily]:
    for name, about in known.items():
        series = found.series.get(name)
        if not series:
            continue
        gauge = GaugeMetricFamily(prefix + name, about, labels=labels)
        for values, value in series.items():
            gauge.add_metric(values, value)
        yield gauge
