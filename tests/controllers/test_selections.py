"""What is cached of each kind."""

from __future__ import annotations

from typing import Any

from controllers import RECONCILERS
from controllers.node_view import LABELS_MERGED
from controllers.selections import SELECTIONS, metadata_only, node, node_feature, pod, selections, workload
from nodefeature.kinds import NODE_FEATURE, SECRET


def test_node() -> None:
    shown: dict[str, Any] = {
        "metadata": {"name": "n", "labels": {"a": "b"}},
        "spec": {"taints": [{"key": "a"}], "unschedulable": True, "podCIDR": "10.0.0.0/24"},
        "status": {
            "capacity": {"cpu": "4"},
            "allocatable": {"cpu": "4"},
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
            "images": [{"names": ["x"] * 50}],
            "conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "now"},
                {"type": "DiskPressure", "status": "False"},
                {"type": LABELS_MERGED, "status": "False", "message": "m"},
            ],
        },
    }
    kept = node(shown)
    assert kept["metadata"] == {"name": "n", "labels": {"a": "b"}}
    assert kept["spec"] == {"taints": [{"key": "a"}], "unschedulable": True}
    assert sorted(kept["status"]) == ["addresses", "capacity", "conditions"]
    assert [c["type"] for c in kept["status"]["conditions"]] == ["Ready", LABELS_MERGED]
    assert "lastHeartbeatTime" not in kept["status"]["conditions"][0], "a heartbeat is no change"


def test_node_feature() -> None:
    shown = {"metadata": {"name": "n"}, "spec": {"labels": {"a": "b"}, "features": {"flags": {"cpu": {}}}}}
    assert node_feature(shown) == {"metadata": {"name": "n"}, "spec": {"labels": {"a": "b"}}}


def test_pod() -> None:
    container = {"name": "main", "image": "example/app:1", "env": [{"name": "A"}], "resources": {"limits": {"cpu": 1}}}
    body = {"nodeName": "n", "volumes": [{"name": "v"}], "containers": [container]}
    status = {"phase": "Running", "podIP": "192.0.2.1", "containerStatuses": [{"name": "main"}]}
    queued = {"metadata": {"name": "p", "labels": {"kueue.x-k8s.io/queue-name": "q"}}, "spec": body, "status": status}
    assert pod(queued) == queued
    held = {"name": "p", "annotations": {"device.gpustack.ai/accelerator.allocated": "{}"}}
    assert pod({"metadata": held, "spec": body, "status": status}) == {
        "metadata": held,
        "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {"limits": {"cpu": 1}}}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main"}]},
    }
    other = {"metadata": {"name": "p", "uid": "u", "annotations": {"a": "b"}}, "spec": body, "status": status}
    assert pod(other) == {"metadata": {"name": "p", "uid": "u"}}


def test_workload() -> None:
    containers = [{"name": "main", "image": "example/app:1", "resources": {"requests": {"cpu": 1}}}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers, "nodeSelector": {"a": "b"}}}
    shown = {
        "metadata": {"name": "w"},
        "spec": {"active": True, "podSets": [{"name": "main", "count": 2, "template": template, "minCount": 1}]},
        "status": {"conditions": []},
    }
    slim = {"containers": [{"name": "main", "resources": {"requests": {"cpu": 1}}}], "nodeSelector": {"a": "b"}}
    assert workload(shown) == {
        "metadata": {"name": "w"},
        "spec": {"active": True, "podSets": [{"name": "main", "count": 2, "template": {"spec": slim}}]},
        "status": {"conditions": []},
    }


def test_metadata_only() -> None:
    assert metadata_only({"metadata": {"name": "n"}, "spec": {"a": 1}}) == {"metadata": {"name": "n"}}
    assert metadata_only({"metadata": {}, "status": {"phase": "Active"}})["status"] == {"phase": "Active"}


def test_b019_nulls_pass() -> None:
    broken: list[dict[str, Any]] = [
        {},
        {"metadata": None},
        {"metadata": {}, "spec": None, "status": None},
        {"spec": [], "status": ""},
    ]
    for project in (node, node_feature, metadata_only, pod, workload):
        assert all(isinstance(project(obj), dict) for obj in broken)


def test_the_secret_is_one_object_of_one_namespace() -> None:
    selection = selections("elsewhere")[SECRET]
    assert (selection.namespace, selection.field_selector) == ("elsewhere", "metadata.name=gpustack-settings")
    assert selections("elsewhere")[NODE_FEATURE].namespace == "elsewhere"


def test_every_kind_that_is_watched_or_read_has_a_selection() -> None:
    kinds = {watch.kind for each in RECONCILERS for watch in each.WATCHES} | {k for e in RECONCILERS for k in e.READS}
    assert kinds <= SELECTIONS.keys()
