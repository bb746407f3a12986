"""The exporter's rounds and families (spec 06 §13), cases B036 and B059."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from devicemanager.answers import Failed
from devicemanager.exporter.exporter import Exporter, Identity, Sources
from devicemanager.exporter.instance_pods import instance_pods
from devicemanager.exporter.rounds import exports_pods, kubelet_usage
from devicemanager.monitor import Monitor
from devicemanager.usage import CardUsage, PartitionUsage, ProcessUsage
from kube.client import Client
from kube.errors import OperatorError, Unavailable
from tests.builders.metrics import (
    Series,
    StillMeter,
    group,
    instance_pod,
    manager_pod,
    scrape,
    summary,
    values,
)
from tests.builders.rows import case_json
from tests.builders.virtual_clock import VirtualClock

BUSY = CardUsage("GPU-0", 81559, 8192, 40, 61, 300, False, process_memory="", process_cores="")
HELD = {"id": "GPU-0", "index": 0, "mode": 1, "allocated": 1_600_000}
INSTANCE = "gpustack_instance_"
CARD = "gpustack_instance_accelerator_"
SUCCESS = "gpustack_instance_metrics_collector_success"


@dataclass
class Kubelet:
    """Stands where the API server's proxy to the kubelet is."""

    uids: list[str] = field(default_factory=list)
    fault: OperatorError | None = None
    asked: int = 0

    async def get_path(self, path: str, _query: object = ()) -> dict[str, Any]:
        assert path == "/api/v1/nodes/gpu-a/proxy/stats/summary"
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return summary(*self.uids)


class Bench:
    """One node's exporter."""

    def __init__(
        self, *cards: CardUsage, groups: list[dict[str, Any]] | None = None, root: Path = Path("/nowhere")
    ) -> None:
        self.clock = VirtualClock()
        self.kubelet = Kubelet()
        self.meter = StillMeter(*(cards or (BUSY,)))
        self.groups: Any = groups if groups is not None else [group("GPU-0")]
        self.pods: list[dict[str, Any]] = []
        self.managers = [manager_pod("me")]
        self.listing_fails = False
        sources = Sources(
            groups=lambda: self.groups,
            pods=self._listed,
            devices=lambda: {"spec": {"groups": self.groups}},
            managers=lambda: self.managers,
        )
        self.exporter = Exporter(
            cast(Client, self.kubelet),
            self.clock,
            Identity("gpu-a", "me", "gpustack-system"),
            Monitor(self.meter, self.clock),
            sources,
            root=root,
        )

    def _listed(self) -> Iterable[Mapping[str, Any]]:
        if self.listing_fails:
            raise OperatorError("pods cannot be listed")
        return self.pods

    def round(self, *pods: dict[str, Any]) -> Series:
        """Run a round with these Pods on the node, all of them known to the kubelet; return a scrape."""
        self.pods = list(pods)
        self.kubelet.uids = [pod["metadata"]["uid"] for pod in pods]
        asyncio.run(self.exporter.run_round())
        return self.scrape()

    def scrape(self) -> Series:
        return scrape(self.exporter.collector)


def held(name: str, uid: str = "", **more: Any) -> dict[str, Any]:
    """Return an Instance's Pod that holds card GPU-0."""
    return instance_pod(name, uid, allocated=[HELD | more])


def test_case_b059() -> None:
    rounds = case_json("B059-scrape")["rounds"]
    bench = Bench()
    first = bench.round(instance_pod("a"), held("b"))
    assert set(values(first, INSTANCE + "cpu_used_millicores", "instance_name")) == set(rounds[0]["expectSeriesFor"])
    second = bench.round(held("a"))
    assert not [labels for family in second.values() for labels in family if ("instance_name", "b") in labels]
    assert values(second, CARD + "memory_used_mib", "instance_name") == {"a": 8192}
    bench.kubelet.fault = Unavailable({"message": "bad gateway"}, 502)
    third = bench.round(held("a"))
    assert values(third, INSTANCE + "memory_total_mib", "instance_name") == {"a": 4096}
    assert not [family for family in third if "_used_" in family and "accelerator" not in family]
    assert values(third, SUCCESS, "source") == {"kubelet": 0, "snapshot": 1}
    assert values(third, CARD + "memory_used_mib", "instance_name") == {"a": 8192}
    bench.kubelet.fault = None
    bench.meter.answer = Failed("driver gone")
    bench.round(held("a"))
    asyncio.run(bench.clock.advance(46))
    fourth = bench.round(held("a"))
    assert not [family for family in fourth if "accelerator" in family]
    assert values(fourth, SUCCESS, "source") == {"kubelet": 1, "snapshot": 0}
    bench.meter.answer = StillMeter(BUSY).answer
    fifth = bench.round(held("a", "uid-new"))
    uids = {
        dict(labels)["instance_uid"] for family in fifth.values() for labels in family if "instance_uid" in dict(labels)
    }
    assert uids == {"uid-new"}
    sixth = bench.round()
    assert set(sixth) == {
        SUCCESS,
        "gpustack_instance_metrics_collector_duration_seconds",
        "gpustack_accelerator_process_capability",
    }


def test_case_b036_no_memory_families() -> None:
    card = CardUsage("GPU-gb10-0", None, None, 12, 44, 20, None)
    bench = Bench(card, groups=[group("GPU-gb10-0", memory=0)])
    series = bench.round(instance_pod("a", allocated=[HELD | {"id": "GPU-gb10-0"}]))
    assert not [family for family in series if family.startswith(CARD + "memory")]
    assert values(series, CARD + "cores_utilization_percent", "id") == {"GPU-gb10-0": 12}
    assert values(series, CARD + "temperature_celsius", "id") == {"GPU-gb10-0": 44}


def test_no_request_reads_anything() -> None:
    bench = Bench()
    bench.round(held("a"))
    asked = bench.meter.asked, bench.kubelet.asked
    for _ in range(5):
        bench.scrape()
        bench.exporter.snapshot_text()
    assert (bench.meter.asked, bench.kubelet.asked) == asked == (1, 1)


def test_before_the_first_round() -> None:
    bench = Bench()
    assert values(bench.scrape(), SUCCESS, "source") == {"kubelet": 0, "snapshot": 0}
    assert bench.exporter.snapshot_text() is None


def test_a_failed_listing_leaves_the_verdict_alone() -> None:
    bench = Bench()
    bench.round(held("a"))
    bench.listing_fails = True
    series = bench.round(held("a"))
    assert {family: values(series, family, "source") for family in series} == {SUCCESS: {"kubelet": 0, "snapshot": 1}}


def test_a_node_without_cards_has_no_series() -> None:
    bench = Bench(groups=[])
    assert bench.round(instance_pod("a")) == {}
    assert bench.kubelet.asked == 0


def test_the_whole_set_of_an_exclusive_card() -> None:
    series = Bench().round(held("a"))
    labels = {
        "namespace": "default",
        "instance_name": "a",
        "instance_uid": "uid-a",
        "node": "gpu-a",
        "id": "GPU-0",
        "index": "0",
        "manufacturer": "nvidia",
        "mode": "Exclusive",
    }
    shown = {
        name: series[CARD + name][tuple(sorted(labels.items()))]
        for name in (
            "memory_total_mib",
            "memory_used_mib",
            "memory_utilization_percent",
            "cores_utilization_percent",
            "temperature_celsius",
            "power_usage_watts",
            "unhealthy",
        )
    }
    assert shown == {
        "memory_total_mib": 81920,
        "memory_used_mib": 8192,
        "memory_utilization_percent": 10,
        "cores_utilization_percent": 40,
        "temperature_celsius": 61,
        "power_usage_watts": 300,
        "unhealthy": 0,
    }
    pod = {
        name: next(iter(series[INSTANCE + name].values()))
        for name in (
            "cpu_total_millicores",
            "cpu_used_millicores",
            "memory_total_mib",
            "memory_used_mib",
            "storage_total_mib",
            "storage_used_mib",
        )
    }
    assert list(pod.values()) == [2000, 500, 4096, 1024, 10240, 3072]


def sliced(percent: int = 25) -> dict[str, Any]:
    """Return the Pod of Instance a, a quarter of GPU-0, in which process 77 runs."""
    pod = instance_pod(
        "a",
        allocated=[{"id": "GPU-0", "index": 0, "mode": 3, "allocated": 400_000}],
        limits={"nvidia.com/gpu.sliced": "1", "nvidia.com/gpu.sliced.cores-percentage": str(percent)},
    )
    pod["status"] = {"containerStatuses": [{"name": "main", "containerID": f"containerd://{'c' * 64}"}]}
    return pod


def cgroup(root: Path, pid: int, text: str) -> None:
    """Write what /proc says of a process."""
    (root / f"proc/{pid}").mkdir(parents=True)
    (root / f"proc/{pid}/cgroup").write_text(text)


V2 = f"0::/kubepods.slice/kubepods-pod8c1f7f0e_3d0b_4f0a_8c39_6a3c1f5f1e55.slice/cri-containerd-{'c' * 64}.scope\n"
V1 = f"4:memory:/kubepods/burstable/pod8c1f7f0e-3d0b-4f0a-8c39-6a3c1f5f1e55/{'c' * 64}\n"


@pytest.mark.parametrize("text", [V2, V1], ids=["v2", "v1"])
def test_a_slice_shows_its_own_share(tmp_path: Path, text: str) -> None:
    cgroup(tmp_path, 77, text)
    card = replace(BUSY, processes=(ProcessUsage(77, 2048, 11),))
    series = Bench(card, root=tmp_path).round(sliced())
    assert values(series, CARD + "memory_total_mib", "mode") == {"Sliced": 20480}
    assert values(series, CARD + "memory_used_mib", "mode") == {"Sliced": 2048}
    assert values(series, CARD + "memory_utilization_percent", "mode") == {"Sliced": 10}
    assert values(series, CARD + "cores_utilization_percent", "mode") == {"Sliced": 44}


@pytest.mark.parametrize(
    ("processes", "text", "reason"),
    [
        ((ProcessUsage(77, 1, 1), ProcessUsage(78, 1, 1)), V2, "exited"),
        ((ProcessUsage(77, 1, 1),), "0::/system.slice/x.service\n", "no_pod_component"),
        ((ProcessUsage(77, 1, 1),), V2.replace("cccc", "dddd"), "unknown_pod"),
    ],
)
def test_one_row_that_cannot_be_placed_blanks_the_card(
    tmp_path: Path, processes: tuple[ProcessUsage, ...], text: str, reason: str
) -> None:
    cgroup(tmp_path, 77, text)
    series = Bench(replace(BUSY, processes=processes), root=tmp_path).round(sliced())
    assert CARD + "memory_used_mib" not in series
    assert values(series, CARD + "memory_total_mib", "mode") == {"Sliced": 20480}
    assert values(series, "gpustack_accelerator_process_capability", "reason") == {reason: 0}


def test_a_library_that_lists_no_processes_measures_no_share() -> None:
    series = Bench(replace(BUSY, process_memory="unsupported", process_cores="unsupported")).round(sliced())
    assert CARD + "memory_used_mib" not in series
    assert values(series, CARD + "temperature_celsius", "mode") == {"Sliced": 61}


def test_an_idle_slice_uses_nothing() -> None:
    series = Bench().round(sliced())
    assert values(series, CARD + "memory_used_mib", "mode") == {"Sliced": 0}
    assert values(series, "gpustack_accelerator_process_capability", "entry_point") == {"memory": 1, "cores": 1}


def test_a_partition_is_its_own_subject() -> None:
    status = {"physicalSliced": {"count": 7, "profiles": [{"name": "1g.10gb", "memoryMib": 9856}]}}
    groups = [group("GPU-0") | {"accelerators": [{"id": "GPU-0", "index": 0, "status": status}]}]
    row = {
        "id": "GPU-0",
        "index": 0,
        "mode": 4,
        "allocated": 193352,
        "allocatedPhysicalProfile": "1g.10gb",
        "allocatedPhysicalPlacements": [{"start": 0, "length": 1}],
        "allocatedPhysicalID": "MIG-a",
    }
    card = replace(BUSY, partitions=(PartitionUsage("MIG-a", 9856, 100), PartitionUsage("MIG-b", 9856, 5000)))
    series = Bench(card, groups=groups).round(instance_pod("a", allocated=[row]))
    assert values(series, CARD + "memory_total_mib", "id") == {"MIG-a": 9856}
    assert values(series, CARD + "memory_used_mib", "id") == {"MIG-a": 100}
    assert CARD + "cores_utilization_percent" not in series


def test_two_grants_of_one_card_are_one_series_without_figures() -> None:
    shared = {"id": "GPU-0", "index": 0, "mode": 2, "allocated": 160_000}
    series = Bench().round(instance_pod("a", allocated=[shared, shared]))
    assert values(series, CARD + "memory_total_mib", "mode") == {"Shared": 163840}
    assert CARD + "memory_used_mib" not in series
    assert values(series, CARD + "unhealthy", "mode") == {"Shared": 0}


def test_a_watcher_holds_nothing() -> None:
    series = Bench().round(instance_pod("a", allocated=[{"id": "GPU-0", "index": 0, "mode": 5}]))
    assert not [family for family in series if family.startswith(CARD)]


def test_a_card_of_another_manager_is_left_to_it() -> None:
    series = Bench().round(instance_pod("a", allocated=[HELD | {"id": "GPU-9"}]))
    assert not [family for family in series if family.startswith(CARD)]


@pytest.mark.parametrize(
    ("managers", "exporting"),
    [
        ([manager_pod("a", "amd"), manager_pod("n", "nvidia")], {"a"}),
        ([manager_pod("a", "amd", ready=False), manager_pod("n", "nvidia")], {"n"}),
        ([manager_pod("a", ""), manager_pod("n", "nvidia")], {"n"}),
        ([manager_pod("other", "nvidia")], set()),
        ([manager_pod("a", "amd", deletionTimestamp="2026-01-01T00:00:00Z"), manager_pod("n", "nvidia")], {"n"}),
    ],
    ids=["amd, nvidia", "amd (NotReady), nvidia", "unlabelled, nvidia", "self not in list", "terminating"],
)
def test_election(managers: list[dict[str, Any]], exporting: set[str]) -> None:
    assert {name for name in ("a", "n") if exports_pods(name, "gpustack-system", managers)} == exporting


def test_who_is_not_elected_publishes_its_cards_alone() -> None:
    bench = Bench()
    bench.managers = [manager_pod("me"), manager_pod("other", "amd")]
    series = bench.round(held("a"))
    assert INSTANCE + "cpu_total_millicores" not in series
    assert values(series, CARD + "memory_used_mib", "id") == {"GPU-0": 8192}
    assert (bench.kubelet.asked, values(series, SUCCESS, "source")) == (0, {"snapshot": 1})


def test_a_manager_without_a_name_exports_its_cards_alone(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.exporter._identity = Identity("gpu-a", "", "")
    series = bench.round(held("a"))
    assert INSTANCE + "cpu_total_millicores" not in series
    assert CARD + "memory_used_mib" in series
    assert "KUBERNETES_POD_NAME" in str([record.__dict__.get("reason") for record in caplog.records])


@pytest.mark.parametrize(
    "changes",
    [
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"labels": {"app.kubernetes.io/part-of": "forged"}},
        {"labels": {}},
        {"ownerReferences": []},
        {
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "Instance", "name": "a", "uid": "uid-a", "controller": True}
            ]
        },
    ],
    ids=["terminating", "label-of-another", "no-label", "no-owner", "another-group"],
)
def test_who_is_no_instances_pod(changes: dict[str, Any]) -> None:
    assert instance_pods([instance_pod("a", **changes)], {}) == ()


def test_the_newest_pod_of_an_instance() -> None:
    old, new = instance_pod("a", "old"), instance_pod("a", "new", creationTimestamp="2026-01-02T00:00:00Z")
    twin = instance_pod("a", "twin", name="z")
    assert [one.instance_uid for one in instance_pods([new, old], {})] == ["new"]
    assert [one.instance_uid for one in instance_pods([twin, old], {})] == ["twin"]


def test_kubelet_figures_are_rounded_up_and_nonsense_is_not_measured() -> None:
    body = {"pods": [{"podRef": {"uid": "u"}, "cpu": {"usageNanoCores": 1}, "memory": {"workingSetBytes": "x"}}]}
    usage = kubelet_usage(body)["u"]
    assert (usage.cpu_milli, usage.memory_mib, usage.storage_mib) == (1, None, None)


def test_a_defect_ends_one_round_alone(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()

    async def scenario() -> None:
        task = asyncio.ensure_future(bench.exporter.run())
        bench.kubelet.fault = cast(OperatorError, ZeroDivisionError())
        bench.pods = [held("a")]
        await bench.clock.advance(0)
        assert values(bench.scrape(), SUCCESS, "source") == {"kubelet": 0, "snapshot": 1}
        bench.kubelet.fault = None
        await bench.clock.advance(15)
        assert values(bench.scrape(), SUCCESS, "source") == {"kubelet": 1, "snapshot": 1}
        task.cancel()

    asyncio.run(scenario())
    assert "metrics round failed" in caplog.text


def test_the_snapshot_page(tmp_path: Path) -> None:
    cgroup(tmp_path, 77, V2)
    bench = Bench(replace(BUSY, processes=(ProcessUsage(77, 2048, 11),)), root=tmp_path)
    bench.round(sliced())
    body = bench.exporter.snapshot_text()
    assert body is not None
    assert body["periodSeconds"] == 15
    assert body["groups"][0]["accelerators"] == [
        {
            "id": "GPU-0",
            "index": 0,
            "memory": 81920,
            "memoryUsage": 8192,
            "memoryUtilization": 10,
            "coresUtilization": 40,
            "temperature": 61,
            "powerUsage": 300,
            "unhealthy": False,
        }
    ]
    assert body["slices"] == {
        "schemaVersion": 1,
        "records": [
            {"podUID": "pod-uid-a", "container": "main", "id": "GPU-0", "memoryUsage": 2048, "coresUtilization": 11}
        ],
    }
    assert "77" not in str(body["slices"])
