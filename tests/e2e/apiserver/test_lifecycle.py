"""Start, rotation, leaving and uninstalling before a real aggregator. Cases B005, B021, B022, B023, B032, B057."""

from __future__ import annotations

import base64
import time

import pytest

from hack.controlplane.manifests import SYSTEM_NAMESPACE, namespace_manifest
from hack.controlplane.replicas import ACCOUNT, NAMES, Replicas
from nodefeature.fields import at, name_of
from nodefeature.kinds import API_SERVICE, CONFIG_MAP, NAMESPACE, SECRET
from nodefeature.kinds import CUSTOM_RESOURCE_DEFINITION as CRD

pytestmark = pytest.mark.timeout(240)

G = "/apis/worker.gpustack.ai/v1"
CONFIG = "extension-apiserver-authentication"
INSTANCE = """
apiVersion: worker.gpustack.ai/v1
kind: Instance
metadata: {name: a, namespace: default}
spec: {type: t, image: i, stop: true, volume: {ephemeral: {capacity: 1Gi}}}
"""


def test_b057_one_start_without_kueue_and_v1_is_preferred(replicas: Replicas) -> None:
    replicas.start()
    seconds = replicas.until_available()
    assert seconds < 30
    assert replicas.is_running()
    group = replicas.raw("/apis/worker.gpustack.ai")
    assert group["preferredVersion"]["version"] == "v1"
    assert {version["version"] for version in group["versions"]} >= {"v1", "v1alpha1"}
    assert {name_of(crd) for crd in replicas.admin.list(CRD)} >= {"instances.worker.gpustack.ai"}
    replicas.kubectl("apply", "-f", "-", stdin=INSTANCE)
    assert replicas.kubectl("get", "instances", "-o", "name") == "instance.worker.gpustack.ai/a\n"
    assert "NAME" in replicas.kubectl("get", "instances.v1.worker.gpustack.ai")
    replicas.kubectl("delete", "instance", "a", "--wait=false")
    assert "node-management-manual" in replicas.kubectl("get", "settings", "-n", SYSTEM_NAMESPACE)
    assert "Instance" in replicas.kubectl("get", "--raw", f"{G}/docs")


def test_identity_reaches_us_and_decides(replicas: Replicas) -> None:
    replicas.start()
    replicas.until_available()
    nobody = replicas.kubectl("get", "instances", "--as", "eve", check=False)
    assert 'User "eve" cannot list resource "instances" in API group "worker.gpustack.ai"' in nobody
    replicas.kubectl("create", "clusterrole", "reads", "--verb=list", "--resource=instances.worker.gpustack.ai")
    try:
        replicas.kubectl("create", "clusterrolebinding", "reads", "--clusterrole=reads", "--group=readers")
        replicas.until(
            lambda: (
                "forbidden" not in replicas.kubectl("get", "instances", "--as=eve", "--as-group=readers", check=False)
            ),
            "the group's right counts",
        )
        assert "forbidden" in replicas.kubectl("delete", "instance", "x", "--as=eve", "--as-group=readers", check=False)
    finally:
        replicas.kubectl("delete", "clusterrole,clusterrolebinding", "reads")


def test_b021_other_namespaces_wait_for_a_dead_server_and_go_when_it_returns(replicas: Replicas) -> None:
    replicas.start()
    replicas.until_available()
    replicas.admin.apply(namespace_manifest("unrelated"))
    replicas.stop(kill=True)
    replicas.until(lambda: replicas.available(NAMES[1]) != "True", "kube-apiserver notices")
    replicas.admin.delete(NAMESPACE, "unrelated")
    time.sleep(5)
    stuck = replicas.admin.get(NAMESPACE, "unrelated")
    assert stuck is not None
    replicas.start()
    replicas.until(lambda: replicas.admin.get(NAMESPACE, "unrelated") is None, "the namespace is gone")


def test_b021_the_system_namespace_goes_with_a_live_server(replicas: Replicas) -> None:
    replicas.start()
    replicas.until_available()
    replicas.admin.apply(namespace_manifest("unrelated"))
    replicas.admin.delete(NAMESPACE, SYSTEM_NAMESPACE)
    replicas.until(lambda: all(replicas.admin.get(API_SERVICE, name) is None for name in NAMES), "no APIService", 10)
    replicas.until(lambda: replicas.admin.get(NAMESPACE, SYSTEM_NAMESPACE) is None, "our namespace is gone")
    replicas.admin.delete(NAMESPACE, "unrelated")
    replicas.until(lambda: replicas.admin.get(NAMESPACE, "unrelated") is None, "others go at once", 30)
    assert replicas.stop() == 0


def test_b021_uninstalled_after_a_crash(replicas: Replicas) -> None:
    replicas.start()
    replicas.until_available()
    replicas.stop(kill=True)
    replicas.admin.apply(namespace_manifest("unrelated"))
    done = replicas.uninstall()
    assert done == 0
    assert [replicas.admin.get(API_SERVICE, name) for name in NAMES] == [None, None]
    replicas.admin.delete(NAMESPACE, "unrelated")
    replicas.until(lambda: replicas.admin.get(NAMESPACE, "unrelated") is None, "others go at once", 30)


def test_leaving_with_sigterm_leaves_what_others_need(replicas: Replicas) -> None:
    replicas.start()
    replicas.until_available()
    assert replicas.stop() == 0
    assert all(replicas.admin.get(API_SERVICE, name) is not None for name in NAMES)


def test_b023_kinds_are_the_same_in_both_forms(replicas: Replicas) -> None:
    replicas.start()
    replicas.until_available()
    legacy = {row["name"] for row in replicas.raw(G)["resources"] if "/" not in row["name"]}
    listed = {line.split(".")[0] for line in _resources(replicas)}
    assert legacy == listed
    replicas.stop(kill=True)
    replicas.start()
    seen: set[frozenset[str]] = set()
    started = time.monotonic()
    while time.monotonic() - started < 6:
        seen.add(frozenset(line.split(".")[0] for line in _resources(replicas)))
        time.sleep(0.2)
    assert all(not names or names >= {"instances", "instancetypes", "devices"} for names in seen), seen
    replicas.until_available()


def _resources(replicas: Replicas) -> list[str]:
    words = ("api-resources", "--api-group=worker.gpustack.ai", "--cached=false", "-o", "name")
    return [line for line in replicas.kubectl(*words, check=False).splitlines() if line.endswith("worker.gpustack.ai")]


def test_b022_the_config_map_breaks_and_mends_under_an_open_watch(replicas: Replicas) -> None:
    replicas.start()
    replicas.until_available()
    data = at(replicas.admin.get(CONFIG_MAP, CONFIG, "kube-system"), "data")
    try:
        # kube-apiserver writes it back within a minute; we must have lived through it.
        broken = {"requestheader-client-ca-file": "not a certificate", "requestheader-allowed-names": "nonsense"}
        replicas.admin.patch(CONFIG_MAP, CONFIG, {"data": broken}, "kube-system")
        replicas.until(lambda: "the last good trust stays" in replicas.log(), "we noticed", 10)
        assert replicas.kubectl("get", "instances", "-n", "kube-system", check=False).startswith("No resources")
        assert replicas.available(NAMES[1]) == "True"
    finally:
        replicas.admin.patch(CONFIG_MAP, CONFIG, {"data": data}, "kube-system")
    assert replicas.kubectl("get", "instances", "-n", "kube-system", check=False).startswith("No resources")


def test_two_replicas_share_a_certificate(replicas: Replicas) -> None:
    replicas.start("a")
    replicas.until_available()
    replicas.start("b")
    replicas.until(lambda: replicas.log().count("INFO    serving\n") >= 2, "both serve")
    secret = replicas.admin.get(SECRET, "gpustack-operator-worker-serving", SYSTEM_NAMESPACE)
    published = at(replicas.admin.get(API_SERVICE, NAMES[0]), "spec", "caBundle")
    assert published == at(secret, "data", "ca.crt")
    assert b"BEGIN CERTIFICATE" in base64.b64decode(str(published))
    for name in ("a", "b"):
        assert replicas.stop(name) == 0


def test_the_account_can_do_what_it_declares_and_no_more(replicas: Replicas) -> None:
    rows = {
        ("deletecollection", "instances.worker.gpustack.ai"): "yes",
        ("create", "subjectaccessreviews.authorization.k8s.io"): "yes",
        ("impersonate", "users"): "no",
        ("delete", "customresourcedefinitions"): "no",
        ("delete", "apiservices"): "no",
        ("create", "deployments.apps"): "no",
        ("get", "configmaps"): "no",
    }
    for (verb, resource), want in rows.items():
        answer = replicas.kubectl("auth", "can-i", verb, resource, "-A", "--as", ACCOUNT.user, check=False)
        assert answer.splitlines()[-1] == want or want in answer.splitlines(), (verb, resource, answer)
