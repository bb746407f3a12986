"""The promises of kube.requests."""

from __future__ import annotations

import orjson
import pytest

from kube import requests
from kube.errors import InvalidRequest
from kube.requests import ListOptions, WriteOptions
from nodefeature.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, NODE, POD

OURS = WriteOptions(field_manager="gpustack-test")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a%2fb", "..%2f", "a?x", "a#x", "a\\b", "a b", "a\nb", "\u2028"], ids=repr
)
def test_a_name_that_is_no_path_segment_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        requests.get_object(NODE, name)
    with pytest.raises(InvalidRequest):
        requests.get_object(POD, "p", name)
    with pytest.raises(InvalidRequest):
        requests.delete_object(POD, name, "ns")


@pytest.mark.parametrize(
    ("built", "path"),
    [
        (requests.get_object(NODE, "n1"), "/api/v1/nodes/n1"),
        (requests.get_object(POD, "p", "ns", "status"), "/api/v1/namespaces/ns/pods/p/status"),
        (requests.get_object(CLUSTER_QUEUE, "q"), "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q"),
        (requests.list_objects(LOCAL_QUEUE, "ns"), "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/localqueues"),
        (requests.list_objects(POD), "/api/v1/pods"),
        (requests.get_object(NODE, "system:node"), "/api/v1/nodes/system%3Anode"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.what,
)
def test_paths(built: requests.Request, path: str) -> None:
    assert built.path == path
    assert built.safe


def test_a_namespace_must_fit_the_kind() -> None:
    with pytest.raises(InvalidRequest, match="cluster-scoped"):
        requests.list_objects(NODE, "ns")
    with pytest.raises(InvalidRequest, match="needs a namespace"):
        requests.get_object(POD, "p")
    with pytest.raises(InvalidRequest, match="needs a namespace"):
        requests.create_object(POD, {"metadata": {"name": "p"}}, OURS)


def test_empty_options_are_not_sent() -> None:
    assert requests.list_objects(NODE).query == ()
    options = ListOptions(label_selector="a=b", limit=5, continue_token="t")
    assert requests.list_objects(NODE, options=options).query == (
        ("labelSelector", "a=b"),
        ("limit", "5"),
        ("continue", "t"),
    )


def test_a_watch_never_sends_an_empty_version() -> None:
    plain = dict(requests.watch_objects(NODE, options=ListOptions(resource_version="7"), timeout_s=300).query)
    assert plain == {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "300", "resourceVersion": "7"}
    first = requests.watch_objects(
        NODE, options=ListOptions(resource_version_match="NotOlderThan"), timeout_s=300, initial=True
    )
    assert dict(first.query)["sendInitialEvents"] == "true"
    assert "resourceVersion" not in dict(first.query)


def test_every_write_names_its_field_manager() -> None:
    obj = {"metadata": {"name": "n1"}}
    for built in (
        requests.create_object(NODE, obj, OURS),
        requests.update_object(NODE, obj, OURS),
        requests.patch_object(NODE, "n1", "", {}, OURS, patch_type="merge"),
        requests.patch_object(NODE, "n1", "", obj, OURS, patch_type="apply"),
    ):
        assert dict(built.query)["fieldManager"] == "gpustack-test"
        assert not built.safe
    with pytest.raises(InvalidRequest, match="field manager"):
        requests.create_object(NODE, obj, WriteOptions(field_manager=""))


def test_writes_carry_their_options() -> None:
    options = WriteOptions(field_manager="m", subresource="status", dry_run=True, force=True)
    built = requests.patch_object(NODE, "n1", "", {"a": None}, options, patch_type="apply")
    assert built.path == "/api/v1/nodes/n1/status"
    assert dict(built.query) == {"fieldManager": "m", "dryRun": "All", "force": "true"}
    assert built.content_type == "application/apply-patch+yaml"


def test_preconditions_of_a_deletion() -> None:
    built = requests.delete_object(NODE, "n1", uid="u1", resource_version="7", propagation="Foreground", grace_s=0)
    assert orjson.loads(built.content or b"") == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u1", "resourceVersion": "7"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }


def test_select_labels() -> None:
    assert requests.select_labels({"b": "2", "a": "1"}) == "a=1,b=2"
