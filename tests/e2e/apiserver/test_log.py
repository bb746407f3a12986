"""An Instance's log through two servers: ours, and the kubelet's behind kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.controlplane.replicas import Replicas
from nodefeature.fields import uid_of
from nodefeature.kinds import NODE, POD
from tests.e2e.apiserver.conformance import row
from tests.e2e.apiserver.following import following
from tests.e2e.apiserver.kubelet_log import KubeletLog, kubelet_log
from tests.e2e.apiserver.objects import instance

pytestmark = pytest.mark.timeout(240)
NAME = "talks"


@pytest.fixture
def log(pair: Replicas, namespace: str) -> Iterator[KubeletLog]:
    """Return the log of the running Pod of Instance `talks`."""
    with kubelet_log() as served:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": served.port}},
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}, "status": status}
        pair.admin.create(node)
        pair.admin.patch(NODE, NAME, {"status": status}, subresource="status")
        owner = pair.admin.create(instance(NAME, version="v1alpha1", namespace=namespace))
        pair.admin.create(pod(namespace, uid_of(owner)))
        pair.admin.patch(POD, NAME, {"status": {"phase": "Running"}}, namespace, subresource="status")
        yield served
        pair.admin.delete(POD, NAME, namespace, grace_s=0)
        pair.admin.delete(NODE, NAME)


def pod(namespace: str, uid: str) -> dict[str, object]:
    """Return the Pod that a controller would make, bound to our node."""
    labels = {"app.kubernetes.io/part-of": uid}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": namespace, "labels": labels},
        "spec": {
            "nodeName": NAME,
            "containers": [{"name": "main", "image": "x"}],
            "automountServiceAccountToken": False,
        },
    }


@row("get --raw .../log?follow=true", "a TLS server stands in for the kubelet: kwok serves no logs")
def test_a_log_streams_as_it_is_written(pair: Replicas, namespace: str, log: KubeletLog) -> None:
    path = f"/apis/worker.gpustack.ai/v1/namespaces/{namespace}/instances/{NAME}/log"
    for line in ("one", "two"):
        log.say(line)
    assert pair.kubectl("get", "--raw", path) == "one\ntwo\n"
    assert pair.kubectl("get", "--raw", f"{path}?tailLines=1") == "two\n"
    with following(pair, "get", "--raw", f"{path}?follow=true") as lines:
        assert [lines.next(), lines.next()] == ["one", "two"]
        log.say("three")
        assert lines.next() == "three"
        log.end()
        assert lines.ended()
