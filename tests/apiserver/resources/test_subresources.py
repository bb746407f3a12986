"""What is known of an Instance's Pod: log, events, metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from api.ledger.modes import Mode
from api.ledger.transport import Record
from api.models.answers import InstanceEvents, InstanceMetrics, InstancePersistentVolumeEvents
from apiserver.rest.status import Refusal
from apiserver.subresources import samples
from apiserver.subresources.log import log_options
from apiserver.subresources.samples import Usage
from tests.apiserver.resources.cluster import SYSTEM, V1, Server, assert_described, instance, run

ONES = f"{V1}/namespaces/team/instances"
PODS = "/api/v1/namespaces/team/pods"
EVENTS = "/api/v1/namespaces/team/events"

LOG_ROWS: dict[str, tuple[dict[str, str], dict[str, str] | None, list[str]]] = {
    "nothing": ({}, {}, []),
    "tailLines=0": ({"tailLines": "0"}, {"tailLines": "0"}, []),
    "tailLines=-1": ({"tailLines": "-1"}, None, ["tailLines"]),
    "limitBytes=0": ({"limitBytes": "0"}, None, ["limitBytes"]),
    "sinceSeconds=0": ({"sinceSeconds": "0"}, None, ["sinceSeconds"]),
    "both since": ({"sinceSeconds": "5", "sinceTime": "2026-01-01T00:00:00Z"}, None, ["sinceTime"]),
    "all at once": (
        {"tailLines": "-1", "limitBytes": "0", "sinceSeconds": "x", "sinceTime": "now"},
        None,
        ["sinceSeconds", "limitBytes", "tailLines", "sinceTime", "sinceTime"],
    ),
    "flags": (
        {"follow": "true", "timestamps": "", "previous": "false"},
        {"follow": "true", "timestamps": "true"},
        [],
    ),
    "time": ({"sinceTime": "2026-01-01T00:00:00Z"}, {"sinceTime": "2026-01-01T00:00:00Z"}, []),
    "huge": ({"tailLines": "9" * 40}, None, ["tailLines"]),
}


@pytest.mark.parametrize("row", LOG_ROWS.values(), ids=LOG_ROWS)
def test_log_options(row: tuple[dict[str, str], dict[str, str] | None, list[str]]) -> None:
    query, wanted, fields = row
    if wanted is not None:
        assert log_options(query) == {"container": "main", **wanted}
        return
    with pytest.raises(Refusal) as refused:
        log_options(query)
    assert (refused.value.code, refused.value.details["kind"]) == (422, "InstanceLogOptions")
    assert [cause["field"] for cause in refused.value.details["causes"]] == fields


async def with_pod(server: Server, **status: Any) -> Any:
    created = await server.ok("POST", ONES, instance())
    resources = {"limits": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "labels": {"app.kubernetes.io/part-of": created["metadata"]["uid"]}},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "main", "image": "i", "resources": resources}, {"name": "sshd", "image": "i"}],
        },
    }
    made = await server.put_below(PODS, pod)
    if status:
        patch = {"status": status}
        answer = await server.below("PATCH", f"{PODS}/a/status", patch, content_type="application/merge-patch+json")
        assert answer.code == 200
    return made


class Slow(httpx.AsyncByteStream):
    """A log that goes on until it is released."""

    def __init__(self) -> None:
        self.more = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b'"one"\n'
        await self.more.wait()
        yield b'"two"\n'


def test_a_log_streams_from_the_pod() -> None:
    async def test(server: Server) -> None:
        await with_pod(server)
        log, seen = Slow(), list[httpx.URL]()

        def answer(request: httpx.Request) -> httpx.Response | None:
            if not request.url.path.endswith("/log"):
                return None
            seen.append(request.url)
            return httpx.Response(200, stream=log)

        server.wire.faults.append(answer)
        async with server.watch(f"{ONES}/a/log?follow=true&tailLines=5&container=other") as watch:
            assert await watch.next() == "one"
            assert len(server.context.open_streams) == 1
            log.more.set()
            assert await watch.next() == "two"
            assert await watch.next() is None
        assert seen[0].path == f"{PODS}/a/log"
        assert dict(seen[0].params) == {"container": "main", "follow": "true", "tailLines": "5"}
        log.more.clear()
        async with server.watch(f"{ONES}/a/log?follow=true") as watch:
            assert await watch.next() == "one"
            server.context.open_streams.close_all()
            assert await watch.next() is None

    run(test)


def test_a_log_needs_a_pod_of_this_instance() -> None:
    async def test(server: Server) -> None:
        refused = await server.refused(404, "GET", f"{ONES}/a/log")
        assert refused["message"] == 'instances.worker.gpustack.ai "a" not found'
        await server.ok("POST", ONES, instance())
        refused = await server.refused(404, "GET", f"{ONES}/a/log")
        assert refused["message"] == 'pods "a" not found'
        assert refused["details"] == {"name": "a", "group": "worker.gpustack.ai", "kind": "instances"}
        foreign = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
        foreign["spec"] = {"containers": [{"name": "main", "image": "i"}]}
        await server.put_below(PODS, foreign)
        for part in ("log", "events"):
            await server.refused(404, "GET", f"{ONES}/a/{part}")
        await server.refused(422, "GET", f"{ONES}/a/log?tailLines=-1")
        await server.refused(400, "GET", f"{ONES}/a/log?follow=perhaps")
        await server.refused(405, "POST", f"{ONES}/a/log", {})

    run(test)


def test_what_the_pods_server_refuses_is_told() -> None:
    async def test(server: Server) -> None:
        await with_pod(server)
        refusal = {"kind": "Status", "code": 400, "reason": "BadRequest", "message": "container is waiting to start"}

        def answer(request: httpx.Request) -> httpx.Response | None:
            return httpx.Response(400, json=refusal) if request.url.path.endswith("/log") else None

        server.wire.faults.append(answer)
        refused = await server.refused(400, "GET", f"{ONES}/a/log")
        assert refused["message"] == "container is waiting to start"

    run(test)


def _event(name: str, obj: Any, when: str, **about: str) -> dict[str, Any]:
    involved = {"kind": obj["kind"], "name": "a", "namespace": "team", "uid": obj["metadata"]["uid"], **about}
    meta = {"name": name, "namespace": "team"}
    fields = {"involvedObject": involved, "reason": "Pulled", "lastTimestamp": when}
    return {"apiVersion": "v1", "kind": "Event", "metadata": meta, **fields}


def test_events_of_the_pod_and_of_a_claim() -> None:
    async def test(server: Server) -> None:
        pod = await with_pod(server)
        await server.put_below(EVENTS, _event("late", pod, "2026-01-02T00:00:00Z"))
        await server.put_below(EVENTS, _event("early", pod, "2026-01-01T00:00:00Z"))
        await server.put_below(EVENTS, _event("earlier-pod", pod, "2026-01-01T00:00:00Z", uid="x"))
        found = await server.ok("GET", f"{ONES}/a/events")
        assert (found["kind"], found["apiVersion"]) == ("InstanceEvents", "worker.gpustack.ai/v1")
        assert_described(found, InstanceEvents)
        assert found["metadata"]["uid"] == pod["metadata"]["uid"]
        assert [item["metadata"]["name"] for item in found["items"]] == ["early", "late"]
        marked = {"name": "a", "labels": {"resource.gpustack.ai/type": "instancepersistentvolumes"}}
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": marked, "spec": {}}
        claim = await server.put_below("/api/v1/namespaces/team/persistentvolumeclaims", body)
        await server.put_below(EVENTS, _event("bound", claim, "2026-01-01T00:00:00Z"))
        volume = f"{V1}/namespaces/team/instancepersistentvolumes"
        found = await server.ok("GET", f"{volume}/a/events")
        assert (found["kind"], len(found["items"])) == ("InstancePersistentVolumeEvents", 1)
        assert_described(found, InstancePersistentVolumeEvents)
        await server.refused(404, "GET", f"{volume}/none/events")

    run(test)


RUNNING = {"containerStatuses": [{"name": "main", "restartCount": 0, "state": {"running": {}}}]}


def summary(uid: str) -> dict[str, Any]:
    other = {"podRef": {"uid": "stale"}, "cpu": {"usageNanoCores": 9}, "memory": {"workingSetBytes": 9}}
    ours = {
        "podRef": {"uid": uid},
        "cpu": {"time": "2026-01-01T00:00:05Z", "usageNanoCores": 500_000_000},
        "memory": {"workingSetBytes": 1 << 30},
        "ephemeral-storage": {"usedBytes": 3 << 30},
        "containers": [{"name": "main", "rootfs": {"usedBytes": 2 << 30}}],
    }
    return {"pods": [other, ours]}


def test_metrics_from_the_kubelet_are_read_once_for_all() -> None:
    async def test(server: Server) -> None:
        pod = await with_pod(server, **RUNNING)
        asked: list[str] = []

        def answer(request: httpx.Request) -> httpx.Response | None:
            if "/proxy/" not in request.url.path:
                return None
            asked.append(request.url.path)
            return httpx.Response(200, json=summary(pod["metadata"]["uid"]))

        server.wire.faults.append(answer)
        first, second = await asyncio.gather(*(server.ok("GET", f"{ONES}/a/metrics") for _ in range(2)))
        assert first == second
        assert asked == ["/api/v1/nodes/n1/proxy/stats/summary"]
        assert (first["kind"], first["metadata"]["name"]) == ("InstanceMetrics", "a")
        assert_described(first, InstanceMetrics)
        assert first["sample"] == {
            "timestamp": "2026-01-01T00:00:05Z",
            "cpuTotalMilliCores": 2000,
            "memoryTotalMiB": 4096,
            "storageTotalMiB": 10240,
            "cpuUsedMilliCores": 500,
            "memoryUsedMiB": 1024,
            "storageUsedMiB": 3072,
        }
        await server.clock.advance(16)
        await server.ok("GET", f"{ONES}/a/metrics")
        assert len(asked) == 2

    run(test)


@pytest.mark.parametrize("metrics_api", [200, 404])
def test_metrics_fall_back_to_the_metrics_api(metrics_api: int) -> None:
    async def test(server: Server) -> None:
        await with_pod(server, **RUNNING)
        containers = [{"usage": {"cpu": "250m", "memory": "512Mi"}}]
        found = {"timestamp": "2026-01-01T00:00:05Z", "containers": containers}

        def answer(request: httpx.Request) -> httpx.Response | None:
            if "/proxy/" in request.url.path:
                return httpx.Response(502, text="bad gateway")
            return httpx.Response(metrics_api, json=found) if "metrics.k8s.io" in request.url.path else None

        server.wire.faults.append(answer)
        got = await server.ask("GET", f"{ONES}/a/metrics")
        if metrics_api == 200:
            sample = got.json["sample"]
            assert (sample["cpuUsedMilliCores"], sample["memoryUsedMiB"]) == (250, 512)
            assert "storageUsedMiB" not in sample
        else:
            assert (got.code, got.json["reason"]) == (503, "ServiceUnavailable")
            assert "metrics.k8s.io API is not served" in got.json["message"]
            assert "kubelet" in got.json["message"]

    run(test)


def test_an_instance_that_never_ran_measures_zero() -> None:
    async def test(server: Server) -> None:
        resources = {"cpu": "4", "ram": "16Gi", "localStorage": "32Gi"}
        obj = instance("b")
        obj["spec"]["resources"] = resources
        await server.ok("POST", ONES, obj)
        sample = (await server.ok("GET", f"{ONES}/b/metrics"))["sample"]
        assert {key: value for key, value in sample.items() if key != "timestamp"} == {
            "cpuTotalMilliCores": 4000,
            "memoryTotalMiB": 16384,
            "storageTotalMiB": 32768,
            "cpuUsedMilliCores": 0,
            "memoryUsedMiB": 0,
            "storageUsedMiB": 0,
        }
        await with_pod(server)
        assert (await server.ok("GET", f"{ONES}/a/metrics"))["sample"]["cpuUsedMilliCores"] == 0
        await server.refused(404, "GET", f"{ONES}/none/metrics")

    run(test)


CARD = {"id": "gpu-1", "index": 0, "mode": 1, "allocated": 1600000}


def test_cards_of_the_pod_are_shown_and_no_others() -> None:
    async def test(server: Server) -> None:
        pod = await with_pod(server, **RUNNING)
        group = {"id": "nvidia-a10g", "manufacturer": "nvidia", "accelerators": [CARD]}
        text = json.dumps({"main": {"devices": {"groups": [group]}}})
        patch = {"metadata": {"annotations": {"device.gpustack.ai/accelerator.allocated": text}}}
        await server.below("PATCH", f"{PODS}/a", patch, content_type="application/merge-patch+json")
        agent = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "agent", "labels": {"app.kubernetes.io/component": "device-manager"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "i"}]},
        }
        await server.put_below(f"/api/v1/namespaces/{SYSTEM}/pods", agent)
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        target = f"/api/v1/namespaces/{SYSTEM}/pods/agent/status"
        await server.below("PATCH", target, ready, content_type="application/merge-patch+json")
        cards = [{"id": name, "memory": 81920, "memoryUsage": 40960, "coresUtilization": 7} for name in ("gpu-1", "x")]
        snapshot = {"timestamp": "2026-01-01T00:00:00Z", "periodSeconds": 15, "groups": [{"accelerators": cards}]}

        def answer(request: httpx.Request) -> httpx.Response | None:
            if "/pods/https:agent:32443/proxy/" in request.url.path:
                return httpx.Response(200, json=snapshot)
            is_summary = request.url.path.endswith("/stats/summary")
            return httpx.Response(200, json=summary(pod["metadata"]["uid"])) if is_summary else None

        server.wire.faults.append(answer)
        found = await server.ok("GET", f"{ONES}/a/metrics")
        assert_described(found, InstanceMetrics)
        (entry,) = found["sample"]["accelerators"]
        assert (entry["id"], entry["mode"], entry["memoryTotalMiB"]) == ("gpu-1", "Exclusive", 81920)
        assert (entry["memoryUtilizationPercent"], entry["coresUtilizationPercent"]) == (50, 7)
        snapshot["timestamp"] = "2025-12-31T00:00:00Z"
        assert "accelerators" not in (await server.ok("GET", f"{ONES}/a/metrics"))["sample"]

    run(test)


def record(container: str, mode: Mode, units: int = 1_600_000, **more: str) -> Record:
    return Record(container, "g", "nvidia", "gpu-1", 0, mode, units, **more)  # type: ignore[arg-type]  # text fields


CARDS = {"groups": [{"accelerators": [{"id": "gpu-1", "memory": 81920, "memoryUsage": 100, "unhealthy": False}]}]}
GRANTS: dict[str, tuple[list[Record], list[dict[str, Any]]]] = {
    "slice": (
        [record("main", Mode.SLICED, 320_000)],
        [{"id": "gpu-1", "mode": "Sliced", "memoryTotalMiB": 16384, "unhealthy": False}],
    ),
    "partition": (
        [record("main", Mode.PARTITIONED, physical_id="mig-1")],
        [{"id": "mig-1", "mode": "Partitioned", "unhealthy": False}],
    ),
    "two containers": (
        [record("a", Mode.SLICED, 320_000), record("b", Mode.SLICED, 320_000)],
        [{"id": "gpu-1", "mode": "Sliced", "unhealthy": False}],
    ),
    "beside a side container": (
        [record("main", Mode.SLICED, 320_000), record("sshd", Mode.VISIBILITY, 0)],
        [{"id": "gpu-1", "mode": "Sliced", "memoryTotalMiB": 16384, "unhealthy": False}],
    ),
    "after a side container": (
        [record("init", Mode.VISIBILITY, 0), record("main", Mode.SLICED, 320_000)],
        [{"id": "gpu-1", "mode": "Sliced", "memoryTotalMiB": 16384, "unhealthy": False}],
    ),
}


@pytest.mark.parametrize("row", GRANTS.values(), ids=GRANTS)
def test_accelerators(row: tuple[list[Record], list[dict[str, Any]]]) -> None:
    records, wanted = row
    assert samples.accelerators(records, [CARDS]) == wanted


def test_samples_round_up_and_refuse_what_is_older_than_the_pod() -> None:
    pod = {"metadata": {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    usage = {"podRef": {"uid": "u"}, "cpu": {"usageNanoCores": 1}, "memory": {"workingSetBytes": 1}}
    assert samples.from_summary({"pods": [usage]}, pod) == Usage("", 1, 1, None)
    assert samples.from_summary({"pods": [{"podRef": {"uid": "u"}}]}, pod) is None
    old = {"timestamp": "2025-12-31T00:00:00Z", "containers": []}
    assert samples.from_metrics_api(old, pod) is None
    containers = [{"usage": {"cpu": "250m", "memory": "512Mi"}}, {"usage": {"cpu": "2500000n", "memory": "65536Ki"}}]
    now = {"timestamp": "2026-01-01T00:00:01Z", "containers": containers}
    assert samples.from_metrics_api(now, pod) == Usage("2026-01-01T00:00:01Z", 253, 576)
    assert samples.from_metrics_api({**now, "containers": [{"usage": {"cpu": "x"}}]}, pod) is None
