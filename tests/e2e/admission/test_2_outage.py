"""Nobody answers the webhooks: what must still pass, passes (cases B011, B032). The server comes back by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hack.controlplane.admin import Admin, path_of
from hack.controlplane.errors import RequestError
from hack.controlplane.manifests import SYSTEM_NAMESPACE
from hack.controlplane.replicas import Replicas
from nodefeature.kinds import INSTANCE, INSTANCE_TYPE, NAMESPACE, POD, WORKLOAD
from tests.builders.admission import instance, pod
from tests.e2e.admission.conftest import NAMESPACES, entrance_of, install_pool, name_of_pool

pytestmark = pytest.mark.timeout(600)

SPACE = NAMESPACES[0]
API = {"apiVersion": "v1"}


@pytest.fixture(scope="module")
def away(server: Replicas) -> Replicas:
    """Kill the server, with objects in the cluster that only webhooks would hold up."""
    admin = server.admin
    for number in range(20):
        meta = {"name": f"held-{number}", "namespace": NAMESPACES[2], "finalizers": ["gpustack.ai/controlled"]}
        admin.create({**instance(type=name_of_pool("capacity 4")), "metadata": meta})
    meta = {"name": "held-type", "finalizers": ["gpustack.ai/controlled"]}
    kind = admin.get(INSTANCE_TYPE, name_of_pool("capacity 2"))
    assert kind is not None
    admin.create({**kind, "metadata": meta})
    admin.create({**instance(type=name_of_pool("sliceable")), "metadata": {"name": "runs", "namespace": SPACE}})
    server.stop(kill=True)
    for number in range(20):
        admin.delete(INSTANCE, f"held-{number}", NAMESPACES[2])
    admin.delete(INSTANCE_TYPE, name_of_pool("capacity 4"))
    admin.delete(INSTANCE_TYPE, "held-type")
    return server


def plain(namespace: str, queue: str = "") -> tuple[str, Any]:
    return path_of(POD, namespace=namespace) + "?dryRun=All", {**pod([{}], queue=queue), **_named(namespace, queue)}


def _named(namespace: str, queue: str) -> dict[str, Any]:
    labels = {"labels": {"kueue.x-k8s.io/queue-name": queue}} if queue else {}
    return {"metadata": {"generateName": "p-", "namespace": namespace, **labels}}


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_pods_without_the_label_pass(away: Replicas, namespace: str) -> None:
    away.admin.post(*plain(namespace))


@pytest.mark.parametrize("namespace", ["kube-system", SYSTEM_NAMESPACE])
def test_system_pods_pass_whatever_label_they_carry(away: Replicas, namespace: str) -> None:
    away.admin.post(*plain(namespace, entrance_of("80Gi")))
    away.admin.patch(NAMESPACE, namespace, {"metadata": {"labels": {"somebody": "labelled-it"}}})
    away.admin.post(*plain(namespace, entrance_of("80Gi")))


WRITES: dict[str, Callable[[Admin], Any]] = {
    "ConfigMap in kube-system": lambda a: a.apply(
        {**API, "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "kube-system"}}
    ),
    "Secret in our namespace": lambda a: a.apply(
        {**API, "kind": "Secret", "metadata": {"name": "s", "namespace": SYSTEM_NAMESPACE}}
    ),
    "Lease in our namespace": lambda a: a.apply(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "l", "namespace": SYSTEM_NAMESPACE},
        }
    ),
    "Node": lambda a: a.apply({**API, "kind": "Node", "metadata": {"name": "while-away"}}),
    "Devices": lambda a: a.apply(
        {
            "apiVersion": "worker.gpustack.ai/v1alpha1",
            "kind": "Devices",
            "metadata": {"name": "while-away"},
            "spec": {"groups": []},
        }
    ),
    "status of an Instance": lambda a: a.patch(
        INSTANCE, "runs", {"status": {"phase": "Ready"}}, SPACE, subresource="status"
    ),
    "Workload of our queue": lambda a: a.post(
        path_of(WORKLOAD, namespace=SPACE) + "?dryRun=All",
        {
            "apiVersion": WORKLOAD.api_version,
            "kind": WORKLOAD.kind,
            "metadata": {"generateName": "w-", "namespace": SPACE},
            "spec": {
                "queueName": entrance_of("80Gi"),
                "podSets": [
                    {
                        "name": "m",
                        "count": 1,
                        "template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}},
                    }
                ],
            },
        },
    ),
}


@pytest.mark.parametrize("what", WRITES)
def test_other_writes_pass(away: Replicas, what: str) -> None:
    WRITES[what](away.admin)


REFUSED: dict[str, Callable[[Admin], Any]] = {
    "Pod of a queue": lambda a: a.post(*plain(SPACE, entrance_of("80Gi"))),
    "Instance": lambda a: a.create(
        {**instance(type=name_of_pool("sliceable")), "metadata": {"name": "n", "namespace": SPACE}}
    ),
    "spec of an Instance": lambda a: a.patch(INSTANCE, "runs", {"spec": {"displayName": "x"}}, SPACE),
    "InstanceType": lambda a: a.patch(INSTANCE_TYPE, name_of_pool("80Gi"), {"spec": {"displayName": "x"}}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_only_what_must_is_refused_and_says_whom_to_ask(away: Replicas, what: str) -> None:
    with pytest.raises(RequestError) as refused:
        REFUSED[what](away.admin)
    assert "failed calling webhook" in str(refused.value)
    assert "gpustack" in str(refused.value)


def test_b011_twenty_instances_whose_type_is_gone_leave_and_a_type_too(away: Replicas) -> None:
    admin = away.admin
    for number in range(20):
        admin.patch(INSTANCE, f"held-{number}", {"metadata": {"finalizers": None}}, NAMESPACES[2])
        assert admin.get(INSTANCE, f"held-{number}", NAMESPACES[2]) is None
    admin.patch(INSTANCE_TYPE, "held-type", {"metadata": {"finalizers": None}})
    assert admin.get(INSTANCE_TYPE, "held-type") is None


def test_everything_comes_back_without_hands(away: Replicas) -> None:
    away.start()
    away.until_serving(1)
    away.until(lambda: passes(lambda: away.admin.post(*plain(SPACE, entrance_of("80Gi")))), "labelled Pods pass again")
    install_pool(away.admin, "back", away.admin.get(INSTANCE_TYPE, name_of_pool("80Gi")))


def passes(act: Callable[[], Any]) -> bool:
    try:
        act()
    except RequestError:
        return False
    return True


def test_uninstall_takes_everything_along(away: Replicas) -> None:
    away.stop()
    assert away.uninstall() == 0
    away.admin.post(*plain(SPACE, entrance_of("80Gi")))
    forged = {
        **plain(SPACE)[1],
        "metadata": {"generateName": "p-", "annotations": {"device.gpustack.ai/accelerator.allocated": "{}"}},
    }
    away.until(lambda: passes(lambda: away.admin.post(plain(SPACE)[0], forged)), "policies are gone")
