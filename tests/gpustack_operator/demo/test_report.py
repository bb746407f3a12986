"""What the demo prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack_operator.demo import report
from gpustack_operator.demo.world import KINDS, SERVED_TYPE, World
from nodefeature.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR
from tests.builders.queues import cluster_queue, group

SUMMARY = {"unit": "8/64Gi/100Gi", "accelerator": "1/1 1/10 100/100 0/0", "cpu": "0/0"}
LABELS = {"acceleratable.feature.gpustack.ai/a.count": "4", "acceleratable.feature.gpustack.ai/a.capacity": "8"}
WORLD = World(
    {
        **{kind: [] for kind in KINDS},
        SERVED_TYPE: [
            {"metadata": {"name": "b"}, "status": {"entrance": "e", "summary": SUMMARY, "phase": "Active"}},
            {"metadata": {"name": "a"}, "status": None},
        ],
        RESOURCE_FLAVOR: [{"metadata": {"name": "f", "labels": LABELS}}],
        CLUSTER_QUEUE: [cluster_queue("q", groups=[group("r", {"f": "1600k", "g": "800k"})])],
        LOCAL_QUEUE: [{"spec": {"clusterQueue": "q"}}, {"spec": {"clusterQueue": "other"}}],
    }
)


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in text.splitlines()]


def test_pools() -> None:
    header, a, b = cells(report.pools(WORLD))
    assert header[:4] == ["NAME", "ENTRANCE", "UNIT(CPU/RAM)/STORAGE", "ACCELERATOR(EX/SH/SL/PT)"]
    assert (a, b) == (["a"], ["b", "e", "8/64Gi/100Gi", "1/1 1/10 100/100 0/0", "0/0", "Active"])


def test_flavors() -> None:
    assert cells(report.flavors(WORLD))[1] == ["f", "4", "8"]


def test_queues() -> None:
    assert cells(report.queues(WORLD))[1] == ["q", "1600k + 800k", "None", "1"]


def test_an_empty_world_has_tables_too() -> None:
    empty = World({kind: [] for kind in KINDS})
    for text in (report.pools(empty), report.flavors(empty), report.queues(empty)):
        assert text.endswith("(none)")


def test_further() -> None:
    lines = report.further(Path("/x/kubeconfig"), Path("/x/logs"))
    assert "export KUBECONFIG=/x/kubeconfig" in lines
    assert "/x/logs/controllers.log" in lines
    assert "export PATH" not in lines
    assert "--dry-run=client -o yaml | kubectl create -f -" in lines, "kubectl creates built-in kinds in protobuf"


def test_further_begins_with_the_path_and_ends_with_what_does_not_return() -> None:
    first, *lines = report.further(Path("/x/kubeconfig"), Path("/x/logs"), Path("/x/bin")).splitlines()[1:]
    assert first.startswith('  export PATH="$PATH:/x/bin"')
    watch, empty, fill, logs, proxy = lines[-5:]
    assert "get instancetypes -w" in watch
    assert "in a second shell" in watch
    assert "gpustack.ai/managed=false --overwrite" in empty
    assert "gpustack.ai/managed=true --overwrite" in fill
    assert "tail -f" in logs
    assert "kubectl proxy" in proxy


def test_verdict() -> None:
    assert report.verdict(WORLD).startswith("checked: 0 nodes, 0 cards, 2 pools as recorded; four Instances ready")


@pytest.mark.parametrize("word", ["EX ", "SH ", "SL ", "PT ", "largest single request / remaining", "CPU", "12800k"])
def test_the_legend_explains(word: str) -> None:
    assert word in report.LEGEND


def test_the_banner_says_what_is_real_and_what_stands_in() -> None:
    for word in (
        "real",
        "stands in",
        "controllers",
        "agents",
        "aggregated API",
        "webhooks",
        "device\n            plugins",
        "kube-apiserver",
        "NFD",
        "Kueue",
        "scheduler",
        "kubelet",
    ):
        assert word in report.BANNER
