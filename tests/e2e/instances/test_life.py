"""The life of Instances on a real control plane: kubectl asks, Kueue admits, kwok runs, the status says so."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from hack.controlplane.admin import Object
from hack.controlplane.replicas import Replicas
from nodefeature.fields import as_maps, at
from nodefeature.kinds import EVENT, INSTANCE, POD, SERVICE
from tests.e2e.chain.cluster import Cluster
from tests.e2e.instances.conftest import A100, CPU, H100, TEAM

pytestmark = pytest.mark.timeout(420)
PATIENCE_S = 30.0
"""A loaded machine is no reason to fail; `make bench-admission` takes the time on an idle one."""
FAMILIES: dict[str, tuple[str, dict[str, Any], int | None]] = {
    "exclusive": (H100, {"accelerator": "2"}, 1),
    "sliced": (H100, {"accelerator": "1", "acceleratorSlicedMemoryPercentage": 20}, 3),
    "partitioned": (A100, {"accelerator": "1", "acceleratorPartitionedProfile": "1g.10gb"}, 4),
    "card-less": (CPU, {"cpu": "1"}, None),
}
WAY = ("PodCreated", "Admitted", "Scheduled", "Ready")


def box(name: str, pool: str, resources: dict[str, Any], **spec: Any) -> str:
    """Return the manifest that a person writes."""
    body = {
        "apiVersion": "worker.gpustack.ai/v1",
        "kind": "Instance",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {
            "type": pool,
            "image": "registry.example/app:1",
            "resources": resources,
            "volume": {"ephemeral": {"capacity": "1Gi"}},
            "ports": [{"port": 22}, {"port": 8080}],
            **spec,
        },
    }
    return json.dumps(body)


def events_of(boxes: Cluster, name: str) -> list[str]:
    """Return the reasons of an Instance's Events."""
    found = [e for e in boxes.admin.list(EVENT, TEAM) if at(e, "involvedObject", "kind") == "Instance"]
    return [str(e["reason"]) for e in found if at(e, "involvedObject", "name") == name]


def wait_phase(boxes: Cluster, name: str, phase: str) -> Object:
    return boxes.wait(
        INSTANCE, name, TEAM, until=lambda obj: at(obj, "status", "phase") == phase, what=phase, timeout_s=60
    )


def wait_ready(api: Replicas, name: str, *, status: str = "true") -> None:
    api.kubectl("wait", "-n", TEAM, f"--for=condition=Ready={status}", f"instances/{name}", "--timeout=60s")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_life_of_each_family(boxes: Cluster, api: Replicas, family: str) -> None:
    pool, resources, mode = FAMILIES[family]
    name = f"life-{family}"
    api.kubectl("create", "-f", "-", stdin=box(name, pool, resources))
    wait_ready(api, name)
    ready = boxes.wait(
        INSTANCE,
        name,
        TEAM,
        until=lambda obj: at(obj, "status", "ports") and (mode is None or at(obj, "status", "allocations")),
        what="ports and allocations shown",
    )
    assert ready["status"]["phase"] == "Ready"
    assert [c["status"] for c in ready["status"]["conditions"]] == ["True"] * 3
    assert {c["observedGeneration"] for c in ready["status"]["conditions"]} == {ready["metadata"]["generation"]}
    assert all(port["nodePort"] >= 30000 for port in ready["status"]["ports"])
    assert ready["status"]["accessAddresses"]
    modes = {c["mode"] for g in as_maps(ready["status"].get("allocations")) for c in as_maps(g["accelerators"])}
    assert modes == ({mode} if mode is not None else set())
    assert set(WAY) <= set(events_of(boxes, name))

    api.kubectl("patch", "instances", name, "-n", TEAM, "--type=merge", "-p", '{"spec":{"stop":true}}')
    stopped = wait_phase(boxes, name, "Stopped")
    assert set(stopped["status"]) == {"phase", "conditions"}
    assert boxes.admin.get(POD, name, TEAM) is None
    boxes.wait_gone(SERVICE, name, TEAM)

    api.kubectl("patch", "instances", name, "-n", TEAM, "--type=merge", "-p", '{"spec":{"stop":false}}')
    wait_ready(api, name)
    api.kubectl("delete", "instances", name, "-n", TEAM, "--timeout=60s")
    assert boxes.admin.get(INSTANCE, name, TEAM) is None
    assert boxes.admin.get(POD, name, TEAM) is None


def test_what_does_not_fit_waits_and_says_why(boxes: Cluster, api: Replicas) -> None:
    for name in ("first", "second"):
        api.kubectl("create", "-f", "-", stdin=box(name, H100, {"accelerator": "8"}))
    wait_ready(api, "first")
    waiting = wait_phase(boxes, "second", "Pending")
    assert waiting["status"]["conditions"][0]["reason"] in ("Queued", "ChecksPending")
    assert waiting["status"]["phaseMessage"]
    api.kubectl("delete", "instances", "first", "-n", TEAM, "--timeout=60s")
    wait_ready(api, "second")
    api.kubectl("delete", "instances", "second", "-n", TEAM, "--timeout=60s")


def test_settled_instances_cost_no_write(boxes: Cluster, api: Replicas) -> None:
    api.kubectl("create", "-f", "-", stdin=box("still", H100, {"accelerator": "1"}))
    wait_ready(api, "still")
    boxes.hold(8)
    before = [at(boxes.get(kind, "still", TEAM), "metadata", "resourceVersion") for kind in (INSTANCE, POD, SERVICE)]
    boxes.hold(15)
    after = [at(boxes.get(kind, "still", TEAM), "metadata", "resourceVersion") for kind in (INSTANCE, POD, SERVICE)]
    assert before == after
    api.kubectl("delete", "instances", "still", "-n", TEAM, "--timeout=60s")


def test_one_after_the_other(boxes: Cluster, api: Replicas) -> None:
    took = []
    for number in range(5):
        name = f"quick-{number}"
        began = time.monotonic()
        boxes.admin.create(json.loads(box(name, H100, {"accelerator": "8"})))
        boxes.wait(
            INSTANCE,
            name,
            TEAM,
            until=lambda obj: at(obj, "status", "phase") == "Ready",
            what="Ready",
            timeout_s=PATIENCE_S,
        )
        took.append(time.monotonic() - began)
        api.kubectl("delete", "instances", name, "-n", TEAM, "--timeout=60s")
    print(f"an Instance is Ready after {min(took):.2f} s at best, {sorted(took)[2]:.2f} s in the middle of five")
