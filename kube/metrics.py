"""Counters of a runtime.

For: `kube.runtime` and `kube.controller`, which count; `kube.serving`, which shows. Each runtime has a registry of its
own, so that two of them can live in one process.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0)


class RuntimeMetrics:
    """What reconcilers did, by controller; what caches hold, by kind."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.runs = Counter(
            "gpustack_reconcile", "Finished runs of a controller.", ("controller", "outcome"), registry=self.registry
        )
        self.seconds = Histogram(
            "gpustack_reconcile_seconds",
            "Length of a controller's runs.",
            ("controller",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.waiting = Gauge(
            "gpustack_queue_waiting", "Keys that wait for a worker.", ("controller",), registry=self.registry
        )
        self.changes = Counter(
            "gpustack_cache_changes", "Changes of cached objects.", ("kind",), registry=self.registry
        )
        self.objects = Gauge("gpustack_cache_objects", "Cached objects.", ("kind",), registry=self.registry)
