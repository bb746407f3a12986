"""`instances/explain` over a cluster: what is read, what is told, and what is told when something cannot be read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from api.models.answers import InstanceExplanation
from apiserver.subresources import explain, explain_lists, explain_reading
from gpustack_operator.commands.explain import rendered
from tests.apiserver.resources.cluster import TABLE, V1, Server, assert_described, instance, run
from tests.builders import waiting
from tests.builders.waiting import ENTRANCE, FLAVOR, POOL

ONE = f"{V1}/namespaces/team/instances/a/explain"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
OURS = "/apis/worker.gpustack.ai/v1alpha1"
MERGE = "application/merge-patch+json"
SECRET_NAME = "somebody-elses-job"
COLLECTIONS = {
    "ClusterQueue": f"{KUEUE}/clusterqueues",
    "ResourceFlavor": f"{KUEUE}/resourceflavors",
    "InstanceType": f"{OURS}/instancetypes",
    "Devices": f"{OURS}/devices",
    "Node": "/api/v1/nodes",
}
VERSIONS = {"ClusterQueue": "kueue.x-k8s.io/v1beta2", "ResourceFlavor": "kueue.x-k8s.io/v1beta2", "Node": "v1"}


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine is no reason to leave a list out."""
    monkeypatch.setattr(explain_reading, "LIST_S", 600.0)
    monkeypatch.setattr(explain, "BUDGET_S", 600.0)


async def put(server: Server, kind: str, obj: Mapping[str, Any]) -> None:
    """Store a cluster-scoped object and its status."""
    version = VERSIONS.get(kind, "worker.gpustack.ai/v1alpha1")
    await store(server, COLLECTIONS[kind], {"apiVersion": version, "kind": kind, **obj})


async def store(server: Server, collection: str, obj: Mapping[str, Any]) -> Any:
    made = await server.put_below(collection, {key: value for key, value in obj.items() if key != "status"})
    name = made["metadata"]["name"]
    if obj.get("status"):
        status = json.loads(json.dumps(obj["status"]))
        for each in (*status.get("conditions", ()), *status.get("admissionChecks", ())):
            each["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        patch = {"status": status}
        answer = await server.below("PATCH", f"{collection}/{name}/status", patch, content_type=MERGE)
        assert answer.code == 200, answer.body
    return made


async def workload(server: Server, obj: dict[str, Any], namespace: str, owner: str = "") -> None:
    made = json.loads(json.dumps(obj))
    made |= {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
    made["metadata"] = {"name": made["metadata"]["name"]}
    if owner:
        made["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": owner}]
    template = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
    made["spec"]["podSets"] = [{"name": "main", "count": 1, "template": template}]
    await store(server, f"{KUEUE}/namespaces/{namespace}/workloads", made)


def full_type() -> dict[str, Any]:
    made = waiting.instance_type()
    made["spec"] |= {"os": "linux", "arch": "amd64", "unitResources": {"cpu": "1", "ram": "1Gi"}, "localStorage": "1Gi"}
    view = {"onceMaxRequest": "0", "remaining": "0", "capacity": "0"}
    for name in ("acceleratorShared", "acceleratorSliced", "acceleratorPartitioned", "cpu"):
        made["status"][name] = dict(view)
    return made


async def waiting_instance(server: Server, cards: str = "8") -> str:
    """Store an Instance whose Pod waits for eight cards of which six are free; return the Pod's uid."""
    created = await server.ok("POST", f"{V1}/namespaces/team/instances", {**instance(), "spec": spec()})
    await put(server, "InstanceType", full_type())
    await put(server, "ClusterQueue", waiting.queue(pending=3))
    await put(server, "ResourceFlavor", waiting.flavor())
    for name, free in (("gpu-01", (100, 0)), ("gpu-02", (100, 100))):
        await put(server, "Devices", waiting.ledger(name, *free, mode=1))
    local = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", **waiting.local_queue()}
    await store(server, f"{KUEUE}/namespaces/team/localqueues", local)
    made = waiting.pod({"nvidia.com/gpu": cards})
    made["metadata"]["labels"]["app.kubernetes.io/part-of"] = created["metadata"]["uid"]
    made["metadata"].pop("uid")
    made["spec"]["containers"][0]["image"] = "i"
    stored = await store(server, "/api/v1/namespaces/team/pods", {"apiVersion": "v1", "kind": "Pod", **made})
    uid = str(stored["metadata"]["uid"])
    pending = waiting.condition("QuotaReserved", "False", "Pending", "insufficient quota")
    await workload(server, waiting.workload(pending), "team", uid)
    await server.put_below(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "else"}}
    )
    await workload(server, waiting.waiting(SECRET_NAME, priority=5), "else")
    return uid


def spec() -> dict[str, Any]:
    made: dict[str, Any] = {**instance()["spec"], "type": POOL, "resources": {"accelerator": "8"}}
    return made


def gates(found: Mapping[str, Any]) -> dict[str, str]:
    return {gate["name"]: gate["state"] for gate in found["gates"]}


def test_the_page_shows_what_is_answered() -> None:
    page = (Path(__file__).parents[3] / "docs" / "explain.md").read_text()

    async def test(server: Server) -> None:
        await waiting_instance(server)
        found = await server.ok("GET", ONE)
        assert f"$ gpustack-operator explain team/a\n{rendered(found, 'table')}```" in page
        picked = "\n".join(json.dumps(each, indent=2) for each in (found["waitingAt"], found["gates"][1]))
        assert f"{ONE} | jq '.waitingAt, .gates[1]'\n{picked}\n```" in page

    run(test)


def test_a_waiting_instance_is_explained() -> None:
    async def test(server: Server) -> None:
        await waiting_instance(server)
        found = await server.ok("GET", ONE)
        assert (found["kind"], found["apiVersion"]) == ("InstanceExplanation", "worker.gpustack.ai/v1")
        assert_described(found, InstanceExplanation)
        assert (found["metadata"]["name"], found["waitingAt"]) == ("a", "Quota")
        quota = found["gates"][1]
        assert quota["reason"] == (
            f"8 cards asked, 6 cards free in ClusterQueue {POOL}; 1 of 3 waiting Workloads come first"
        )
        assert (quota["numbers"]["queueAhead"], quota["numbers"]["queuePending"]) == (1, 3)
        cards = found["gates"][2]["numbers"]
        assert cards == {"unit": "cards", "asked": 8, "free": 3, "largest": 2, "largestAt": "gpu-02"}
        assert gates(found) == {
            "Webhook": "Passed",
            "Quota": "Waiting",
            "CardCheck": "Waiting",
            "Scheduler": "Waiting",
            "DevicePlugin": "Waiting",
        }
        answer = await server.ask("GET", ONE, accept="application/yaml")
        assert yaml.safe_load(answer.body)["summary"] == found["summary"]
        assert SECRET_NAME not in json.dumps(found), "of others only numbers are told"
        assert "else" not in json.dumps(found)

    run(test)


@pytest.mark.parametrize("include", ["", "None", "Metadata", "Object"])
def test_it_is_a_table_for_who_asks_for_one(include: str) -> None:
    async def test(server: Server) -> None:
        await waiting_instance(server)
        asked = f"{ONE}?includeObject={include}" if include else ONE
        found = (await server.ask("GET", asked, accept=f"{TABLE},application/json")).json
        assert (found["kind"], found["apiVersion"]) == ("Table", "meta.k8s.io/v1")
        assert [row["cells"][:2] for row in found["rows"]][:2] == [["Webhook", "Passed"], ["Quota", "Waiting"]]
        assert len(found["columnDefinitions"]) == len(found["rows"][0]["cells"])
        behind = found["rows"][0].get("object", {}).get("kind", "")
        expected = {"None": "", "Object": "InstanceExplanation"}
        assert behind == expected.get(include, "PartialObjectMetadata")

    run(test)


def test_what_is_not_there_is_404_and_what_nobody_may_is_405() -> None:
    async def test(server: Server) -> None:
        refused = await server.refused(404, "GET", ONE)
        assert refused["message"] == 'instances.worker.gpustack.ai "a" not found'
        await waiting_instance(server)
        for method in ("POST", "PUT", "DELETE"):
            await server.refused(405, method, ONE, {})
        asked: list[str] = []
        server.wire.faults.append(lambda request: asked.append(request.url.path))
        await server.refused(406, "GET", ONE, accept="application/vnd.kubernetes.protobuf")
        await server.refused(400, "GET", f"{ONE}?includeObject=All", accept=TABLE)
        assert not [path for path in asked if "/instances/" in path], "what is refused reads nothing"

    run(test)


def test_a_workload_beyond_the_first_page_is_not_said_to_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Server) -> None:
        await waiting_instance(server)
        await workload(server, waiting.waiting("aaa"), "team")
        monkeypatch.setattr(explain_reading, "_OWN_PAGE", 1)
        found = await server.ok("GET", ONE)
        assert found["gates"][1]["state"] == "Unknown"
        assert found["gates"][1]["reason"].endswith("only the first 1 of the namespace were looked at")

    run(test)


def test_somebody_elses_pod_is_not_its_own() -> None:
    async def test(server: Server) -> None:
        await waiting_instance(server)
        patch = {"metadata": {"labels": {"app.kubernetes.io/part-of": "another"}}}
        await server.below("PATCH", "/api/v1/namespaces/team/pods/a", patch, content_type=MERGE)
        found = await server.ok("GET", ONE)
        assert found["waitingAt"] == "Webhook"
        assert found["gates"][0]["reason"] == "There is no Pod yet"

    run(test)


@pytest.mark.parametrize("wanted", ["../../api/v1/secrets/x", "%2e%2e", "a b", "x" * 200])
def test_a_name_of_a_tenant_leads_nowhere_else(wanted: str) -> None:
    async def test(server: Server) -> None:
        await server.ok("POST", f"{V1}/namespaces/team/instances", {**instance(), "spec": spec() | {"type": wanted}})
        asked: list[str] = []
        server.wire.faults.append(lambda request: asked.append(request.url.raw_path.decode()))
        found = await server.ok("GET", ONE)
        assert found["gates"][0]["state"] == "Refused"
        assert not any("secrets" in path or ".." in path for path in asked)

    run(test)


FAULTS = {
    "pods forbidden": ("/pods/", 403, "Webhook"),
    "workloads forbidden": ("/workloads", 403, "Quota"),
    "clusterqueues broken": ("/clusterqueues/", 500, "Quota"),
    "localqueues forbidden": ("/localqueues/", 403, "Quota"),
    "devices forbidden": ("/devices", 403, "Quota"),
    "types forbidden": ("/instancetypes/", 403, "Quota"),
    "everything else forbidden": ("/", 403, "Webhook"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_read_is_named(fault: tuple[str, int, str]) -> None:
    part, code, where = fault

    async def test(server: Server) -> None:
        await waiting_instance(server)

        def refuse(request: httpx.Request) -> httpx.Response | None:
            if part not in request.url.path or "/instances/" in request.url.path:
                return None
            body = {"kind": "Status", "status": "Failure", "code": code, "reason": "x", "message": f"no {part}"}
            return httpx.Response(code, json=body)

        server.wire.faults.append(refuse)
        found = await server.ok("GET", ONE)
        assert found["waitingAt"] == where
        assert len(found["gates"]) == 5

    run(test)


def test_many_who_ask_share_the_lists() -> None:
    async def test(server: Server) -> None:
        await waiting_instance(server)
        lists: list[str] = []

        def count(request: httpx.Request) -> None:
            if request.url.path in (f"{KUEUE}/workloads", f"{OURS}/devices"):
                lists.append(f"{request.url.path}?{request.url.params.get('fieldSelector', '')}")

        server.wire.faults.append(count)
        answers = await asyncio.gather(*(server.ok("GET", ONE) for _ in range(20)))
        assert {answer["waitingAt"] for answer in answers} == {"Quota"}
        assert len(lists) <= 3, "one of Devices; one of Workloads, asked again where no selector is known"
        lists.clear()
        await server.clock.advance(explain_lists.FRESH_S)
        await server.ok("GET", ONE)
        assert lists

    run(test)


def test_an_admitted_one_costs_no_list() -> None:
    async def test(server: Server) -> None:
        uid = await waiting_instance(server, cards="1")
        held = waiting.reserved(admitted=True, checks=[waiting.check("Ready", "enough")])
        for each in (*held["status"]["conditions"], *held["status"]["admissionChecks"]):
            each["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        name = f"{KUEUE}/namespaces/team/workloads/pod-a/status"
        answer = await server.below("PATCH", name, {"status": held["status"]}, content_type=MERGE)
        assert answer.code == 200, answer.body
        asked: list[str] = []
        server.wire.faults.append(lambda request: asked.append(request.url.path))
        found = await server.ok("GET", ONE)
        assert found["gates"][1]["state"] == found["gates"][2]["state"] == "Passed", (uid, found)
        assert not [path for path in asked if path in (f"{KUEUE}/workloads", f"{OURS}/devices")]
        assert f"{KUEUE}/resourceflavors/{FLAVOR}" in asked
        assert f"{KUEUE}/namespaces/team/localqueues/{ENTRANCE}" in asked

    run(test)
