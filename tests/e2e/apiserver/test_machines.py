"""Kubernetes' own controllers, which act on our kinds through our server (spec 03 B10)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from hack.controlplane.manifests import namespace_manifest
from hack.controlplane.replicas import Replicas
from nodefeature.fields import at, uid_of
from nodefeature.kinds import CONFIG_MAP, INSTANCE, NAMESPACE, SECRET
from tests.e2e.apiserver.conformance import row
from tests.e2e.apiserver.objects import instance, text

pytestmark = pytest.mark.timeout(300)
LETTERS = "abcdefgh"
V1 = "worker.gpustack.ai/v1"


def _config_map(name: str, namespace: str, owner: dict[str, object]) -> dict[str, object]:
    metadata = {"name": name, "namespace": namespace, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def _owner(obj: object, version: str, kind: str) -> dict[str, object]:
    return {"apiVersion": version, "kind": kind, "name": at(obj, "metadata", "name"), "uid": uid_of(obj)}


@row("garbage collection by our kinds", "owners named as v1 and as v1alpha1")
@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
def test_what_an_instance_owns_goes_with_it(pair: Replicas, namespace: str, version: str) -> None:
    owner = pair.admin.create(instance("owner", version="v1alpha1", namespace=namespace))
    pair.admin.create(_config_map("owned", namespace, _owner(owner, f"worker.gpustack.ai/{version}", "Instance")))
    time.sleep(1)
    pair.kubectl("delete", "instances.v1.worker.gpustack.ai", "owner", "-n", namespace)
    pair.until(lambda: pair.admin.get(CONFIG_MAP, "owned", namespace) is None, "the owned ConfigMap is gone")


@row("garbage collection of our kinds", "in the background, and in the foreground")
@pytest.mark.parametrize("how", ["background", "foreground"])
def test_an_owned_instance_goes_with_its_owner(pair: Replicas, namespace: str, how: str) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": namespace}}
    owner = pair.admin.create(config_map)
    reference = _owner(owner, "v1", "ConfigMap") | {"blockOwnerDeletion": True}
    owned = instance("owned", ownerReferences=[reference])
    pair.kubectl("create", "-n", namespace, "-f", "-", stdin=text(owned))
    time.sleep(1)
    pair.kubectl("delete", "configmap", "owner", "-n", namespace, f"--cascade={how}")
    pair.until(lambda: pair.admin.get(INSTANCE, "owned", namespace) is None, "the owned Instance is gone")


@row("orphans", "an owner that never was: the collector reads through our server before it deletes")
def test_an_instance_of_a_dead_owner_is_collected(pair: Replicas, namespace: str) -> None:
    dead = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "00000000-0000-4000-8000-000000000000"}
    pair.kubectl("create", "-n", namespace, "-f", "-", stdin=text(instance("x", ownerReferences=[dead])))
    pair.until(lambda: pair.admin.get(INSTANCE, "x", namespace) is None, "the orphan is gone")


@row("namespace deletion with Instances inside", "within 60 s")
def test_a_namespace_with_instances_goes(pair: Replicas) -> None:
    pair.admin.apply(namespace_manifest("full"))
    pair.kubectl("create", "-n", "full", "-f", "-", stdin=text(*[instance(name) for name in LETTERS]))
    pair.admin.delete(NAMESPACE, "full")
    pair.until(lambda: pair.admin.get(NAMESPACE, "full") is None, "the namespace is gone", 60)


@row("namespace deletion after our server was down", "the namespace controller looks again after up to 60 s")
def test_a_namespace_waits_for_our_server(pair: Replicas, record_property: Callable[[str, object], None]) -> None:
    pair.admin.apply(namespace_manifest("patient"))
    pair.kubectl("create", "-n", "patient", "-f", "-", stdin=text(*[instance(name) for name in LETTERS]))
    for name in ("a", "b"):
        pair.stop(name, kill=True)
    pair.until(lambda: pair.available("v1.worker.gpustack.ai") != "True", "kube-apiserver notices")
    pair.admin.delete(NAMESPACE, "patient")
    time.sleep(10)
    assert pair.admin.get(NAMESPACE, "patient") is not None
    done = pair.run_kubectl("api-resources", "--cached=false")
    assert "pods " in done.stdout
    for name in ("a", "b"):
        pair.start(name)
    pair.until_available()
    took_s = pair.until(lambda: pair.admin.get(NAMESPACE, "patient") is None, "the namespace is gone", 120)
    record_property("remark", f"gone {took_s:.0f} s after our return")


@row("api-resources with us down", "lists the rest, v1alpha1 included, and exits with 1")
def test_discovery_while_we_are_down(pair: Replicas) -> None:
    for name in ("a", "b"):
        pair.stop(name, kill=True)
    pair.until(lambda: pair.available("v1.worker.gpustack.ai") != "True", "kube-apiserver notices")
    try:
        done = pair.run_kubectl("api-resources", "--cached=false")
        assert "pods " in done.stdout
        assert pair.kubectl("get", "instances.v1alpha1.worker.gpustack.ai", "-A", check=False)
    finally:
        for name in ("a", "b"):
            pair.start(name)
        pair.until_available()
        pair.until(lambda: all(map(pair.is_ready, ("a", "b"))), "both are back")


@row("object-count quota", "count/instances.worker.gpustack.ai, enforced on the forwarded write")
def test_object_count_quota(pair: Replicas, namespace: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": namespace},
        "spec": {"hard": {"count/instances.worker.gpustack.ai": "2"}},
    }
    pair.admin.create(quota)
    kind = pair.admin.kind_of(quota)

    def used() -> object:
        found = pair.admin.get(kind, "few", namespace)
        return at(found, "status", "used", "count/instances.worker.gpustack.ai")

    pair.until(lambda: used() == "0", "the quota is counted")
    for name in "ab":
        pair.kubectl("create", "-n", namespace, "-f", "-", stdin=text(instance(name)))
    pair.until(lambda: used() == "2", "the quota is used up")
    said = pair.kubectl("create", "-n", namespace, "-f", "-", stdin=text(instance("c")), check=False)
    assert "exceeded quota: few" in said
    pair.kubectl("delete", "instances.v1.worker.gpustack.ai", "a", "-n", namespace)
    pair.until(lambda: used() == "1", "the quota is free again")


@row("controller-manager restarted", "foreign Secrets survive, whatever owns them; our views follow")
def test_foreign_secrets_survive(pair: Replicas, namespace: str) -> None:
    owner = pair.admin.create(instance("owner", version="v1alpha1", namespace=namespace))
    key = {"apiVersion": V1, "kind": "InstanceSSHPublicKey", "metadata": {"name": "key"}, "spec": {"data": SSH_KEY}}
    pair.kubectl("create", "-n", namespace, "-f", "-", stdin=text(key))
    foreign = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "foreign", "namespace": namespace}}
    foreign["metadata"] |= {"ownerReferences": [_owner(owner, V1, "Instance")]}  # type: ignore[operator]  # a dict
    pair.admin.create(foreign)
    pair.control_plane.restart("kube-controller-manager")
    time.sleep(20)
    assert pair.admin.get(SECRET, "foreign", namespace) is not None
    assert "key" in pair.kubectl("get", "instancesshpublickeys", "-n", namespace, "-o", "name")
    pair.kubectl("delete", "instances.v1.worker.gpustack.ai", "owner", "-n", namespace)
    pair.until(lambda: pair.admin.get(SECRET, "foreign", namespace) is None, "it goes with its owner")


SSH_KEY = "ssh-ed25519 AAA"
