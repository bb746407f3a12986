"""Jobs that ask a pool for cards.

For: the scenarios under load. In: names, amounts. Out: raw objects, predicates.
"""

from __future__ import annotations

from hack.controlplane.admin import Object
from nodefeature.fields import as_int, as_map, as_maps, at, labels_of, name_of
from nodefeature.kinds import POD, Kind
from tests.e2e.chain.cluster import WAIT_S, Cluster

JOB = Kind("batch", "v1", "jobs", "Job", namespaced=True)
TEAM = "team-e2e"


def job(name: str, entrance: str, *, pods: int = 1, unreachable_s: int | None = None, **cards: int) -> Object:
    """Return a Job whose Pods run until deleted; `cards` maps a manufacturer to an amount a Pod.

    Pods bear a node that does not answer for `unreachable_s`; without it for Kubernetes' own 300 s.
    """
    limits = {"cpu": "1", **{_resource(key): str(amount) for key, amount in cards.items()}}
    container = {"name": "main", "image": "registry.example/train:1", "resources": {"limits": limits}}
    spec: Object = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    if unreachable_s is not None:
        borne = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
        spec["tolerations"] = [{**borne, "tolerationSeconds": unreachable_s}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": TEAM, "labels": {"kueue.x-k8s.io/queue-name": entrance}},
        "spec": {"suspend": True, "parallelism": pods, "completions": pods, "template": {"spec": spec}},
    }


def _resource(key: str) -> str:
    return {
        "nvidia": "nvidia.com/gpu",
        "cambricon": "cambricon.com/mlu",
        "ascend": "huawei.com/npu",
    }[key]


def run_job(cluster: Cluster, body: Object) -> None:
    """Create a Job and wait until its Pods are ready."""
    cluster.admin.create(body)
    wait_ready(cluster, body["metadata"]["name"], pods=body["spec"]["parallelism"])


def wait_ready(cluster: Cluster, name: str, *, pods: int = 1, timeout_s: float = WAIT_S) -> None:
    """Wait until a Job's Pods are ready."""
    cluster.wait(
        JOB,
        name,
        TEAM,
        until=lambda obj: as_int(at(obj, "status", "ready")) == pods,
        what=f"{pods} Pods ready",
        timeout_s=timeout_s,
    )


def wait_ready_on(cluster: Cluster, name: str, nodes: list[str], *, timeout_s: float = WAIT_S) -> None:
    """Wait until a Job's Pods are ready on these nodes; what it says of Pods elsewhere, that still go, is no answer."""
    cluster.wait(
        JOB,
        name,
        TEAM,
        until=lambda obj: as_int(at(obj, "status", "ready")) == len(nodes) and nodes_of(cluster, name) == nodes,
        what=f"ready on {nodes}",
        timeout_s=timeout_s,
    )


def wait_suspended(cluster: Cluster, name: str, *, timeout_s: float = WAIT_S) -> None:
    """Wait until Kueue has put a Job back."""
    cluster.wait(
        JOB,
        name,
        TEAM,
        until=lambda obj: at(obj, "spec", "suspend") is True and not at(obj, "status", "active"),
        what="suspended",
        timeout_s=timeout_s,
    )


def live_pods(cluster: Cluster, name: str) -> dict[str, str]:
    """Return the node of each of a Job's live Pods; names are drawn by chance, so that none stands for two Pods."""
    pods = [p for p in cluster.admin.list(POD, TEAM) if labels_of(p).get("batch.kubernetes.io/job-name") == name]
    live = [pod for pod in pods if not at(pod, "metadata", "deletionTimestamp")]
    return {name_of(pod): str(at(pod, "spec", "nodeName")) for pod in live}


def nodes_of(cluster: Cluster, name: str) -> list[str]:
    """Return the nodes of a Job's live Pods."""
    return sorted(live_pods(cluster, name).values())


def remove_job(cluster: Cluster, name: str) -> None:
    """Delete a Job with its Pods and wait for its end."""
    cluster.admin.delete(JOB, name, TEAM, propagation="Foreground")  # by default a Job's Pods outlive it
    cluster.wait_gone(JOB, name, TEAM)


def flavors_used(queue: Object | None) -> list[str]:
    """Return the flavors of a queue that anything is reserved on."""
    found = []
    for flavor in as_maps(at(queue, "status", "flavorsReservation")):
        if any(str(as_map(resource).get("total", "0")) != "0" for resource in as_maps(flavor.get("resources"))):
            found.append(str(flavor.get("name")))
    return sorted(found)
