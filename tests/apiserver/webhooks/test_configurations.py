"""The configurations and policies to the letter: spec 05 §4, design §6 and §8.7, case B032."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.installers.webhooks import NAMES, VERSION_LABEL, is_newer, leads_to, next_object
from apiserver.route import Route
from apiserver.webhooks import policies
from apiserver.webhooks.configurations import MUTATION, VALIDATION, manifests
from hack.devcluster.admission import CONDITIONS, check_configuration
from nodefeature.labels import QUEUE_NAME

ROUTE = Route(service="server", namespace="gpustack-system", port=443, bundle="CA")
BY_NAME: dict[str, Any] = {manifest["metadata"]["name"]: manifest for _, manifest in manifests(ROUTE)}
OURS = "worker.gpustack.ai"
TABLE = {
    f"mutate.{OURS}.v1alpha1.instance": (f"{OURS}/v1alpha1/instances", "Namespaced", "CREATE UPDATE", "Fail"),
    f"mutate.{OURS}.v1alpha1.instancetype": (f"{OURS}/v1alpha1/instancetypes", "Cluster", "CREATE UPDATE", "Fail"),
    "mutate.gpustack-worker.core.v1.pod": ("/v1/pods", "Namespaced", "CREATE", "Fail"),
    "mutate.gpustack-worker.kueue.x-k8s.io.v1beta2.workload": (
        "kueue.x-k8s.io/v1beta2/workloads",
        "Namespaced",
        "CREATE UPDATE",
        "Ignore",
    ),
    f"validate.{OURS}.v1alpha1.instance": (f"{OURS}/v1alpha1/instances", "Namespaced", "CREATE UPDATE", "Fail"),
    f"validate.{OURS}.v1alpha1.instancetype": (f"{OURS}/v1alpha1/instancetypes", "Cluster", "CREATE UPDATE", "Fail"),
    "validate.gpustack-worker.core.v1.pod": ("/v1/pods", "Namespaced", "CREATE", "Fail"),
}
HOOKS = {hook["name"]: hook for manifest in BY_NAME.values() for hook in manifest["webhooks"]}


def test_names_and_order() -> None:
    assert tuple(BY_NAME) == (MUTATION, VALIDATION) == ("gpustack-worker-mutation", "gpustack-worker-validation")
    assert MUTATION < "kueue-mutating-webhook-configuration"
    assert list(HOOKS) == list(TABLE), "in the order of handlers, mutating first"


@pytest.mark.parametrize("name", TABLE)
def test_entry(name: str) -> None:
    hook, (what, scope, operations, failure) = HOOKS[name], TABLE[name]
    (rule,) = hook["rules"]
    assert "/".join((rule["apiGroups"][0], rule["apiVersions"][0], rule["resources"][0])) == what
    assert (rule["scope"], " ".join(rule["operations"]), hook["failurePolicy"]) == (scope, operations, failure)
    assert hook["clientConfig"]["service"]["path"] == "/" + name.replace(".", "-")
    assert (hook["matchPolicy"], hook["sideEffects"], hook["timeoutSeconds"]) == ("Equivalent", "None", 10)
    assert hook["admissionReviewVersions"] == ["v1"]
    assert hook.get("reinvocationPolicy") == ("Never" if name.startswith("mutate") else None)
    assert hook["matchConditions"][0]["expression"] == "!has(object.metadata.deletionTimestamp)"


def test_workloads_of_our_queues_alone() -> None:
    conditions = {
        c["name"]: c["expression"]
        for c in HOOKS["mutate.gpustack-worker.kueue.x-k8s.io.v1beta2.workload"]["matchConditions"]
    }
    want = "has(object.spec.queueName) && object.spec.queueName.startsWith('gpustack-fnv64-')"
    assert conditions["gpustack-local-queue"] == want


@pytest.mark.parametrize("name", TABLE)
def test_b032_who_is_never_sent(name: str) -> None:
    hook = HOOKS[name]
    labelled = {"matchExpressions": [{"key": QUEUE_NAME, "operator": "Exists"}]}
    assert hook["objectSelector"] == (labelled if "pod" in name else {})
    spared = "pod" in name or "workload" in name
    outside = hook["namespaceSelector"].get("matchExpressions", [{}])[0]
    assert outside.get("values") == (
        ["gpustack-system", "kube-node-lease", "kube-public", "kube-system"] if spared else None
    )
    assert all("/" not in resource for rule in hook["rules"] for resource in rule["resources"]), "no status"


def test_the_devcluster_knows_every_condition_and_takes_both() -> None:
    used = {condition["expression"] for hook in HOOKS.values() for condition in hook["matchConditions"]}
    assert used == set(CONDITIONS)
    assert [check_configuration(manifest) for manifest in BY_NAME.values()] == [[], []]


REFUSED: dict[str, dict[str, Any]] = {
    "CEL": {"matchConditions": [{"name": "x", "expression": "true"}]},
    "a URL": {"clientConfig": {"url": "https://x"}},
    "no CA": {"clientConfig": {"service": {"name": "s", "namespace": "n"}}},
    "v1beta1": {"admissionReviewVersions": ["v1beta1"]},
    "side effects": {"sideEffects": "Some"},
    "reinvocation": {"reinvocationPolicy": "IfNeeded"},
    "DELETE": {"rules": [{"operations": ["DELETE"], "resources": ["pods"]}]},
    "a sub-resource": {"rules": [{"operations": ["CREATE"], "resources": ["pods/status"]}]},
    "an operator": {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}},
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_what_the_devcluster_does_not_do_refuses_the_configuration(change: dict[str, Any]) -> None:
    hook = HOOKS["mutate.gpustack-worker.core.v1.pod"] | change
    assert check_configuration({"webhooks": [hook]}) != []


def want(version: str = "1.2.0") -> Any:
    made = BY_NAME[VALIDATION]
    return {**made, "metadata": {**made["metadata"], "labels": {"a": "b", VERSION_LABEL: version}}}


def test_settled_means_no_write_and_edits_are_written_back() -> None:
    have = {**want(), "metadata": {**want()["metadata"], "resourceVersion": "7", "generation": 3}}
    assert next_object(have, want(), version="1.2.0") is None
    edits: list[dict[str, Any]] = [
        {"failurePolicy": "Ignore"},
        {"namespaceSelector": {"matchLabels": {"x": "y"}}},
        {"rules": []},
    ]
    for edit in edits:
        edited = {**have, "webhooks": [{**have["webhooks"][0], **edit}, *have["webhooks"][1:]]}
        written = next_object(edited, want(), version="1.2.0")
        assert written is not None
        assert written["webhooks"] == want()["webhooks"]
        assert written["metadata"]["resourceVersion"] == "7"


def test_a_newer_version_s_object_keeps_its_shape_and_gets_the_bundle() -> None:
    newer = want("1.10.0")
    newer["webhooks"] = [
        {**hook, "timeoutSeconds": 5, "clientConfig": {"caBundle": "b2xk"}} for hook in newer["webhooks"]
    ]
    assert is_newer(newer, "1.2.0")
    written = next_object(newer, want(), version="1.2.0")
    assert written is not None
    assert {hook["timeoutSeconds"] for hook in written["webhooks"]} == {5}
    assert {hook["clientConfig"]["caBundle"] for hook in written["webhooks"]} == {"Q0E="}
    assert written["metadata"]["labels"][VERSION_LABEL] == "1.10.0"


def test_one_that_is_going_is_left_alone() -> None:
    going = {**want("1.0.0"), "metadata": {**want("1.0.0")["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert next_object(going, want(), version="1.2.0") is None


def test_what_leads_elsewhere_is_not_removed() -> None:
    assert leads_to(want(), "server", "gpustack-system")
    assert not leads_to(want(), "other", "gpustack-system")


def test_policies_and_bindings() -> None:
    made = policies.manifests("gpustack-system")
    assert {(kind, manifest["metadata"]["name"]) for kind, manifest in made} == {
        (kind, name) for kind, names in NAMES.items() for name in names if kind.plural.startswith("validatingadmission")
    }
    specs = {manifest["metadata"]["name"]: manifest["spec"] for kind, manifest in made if "bindings" not in kind.plural}
    assert all(spec["failurePolicy"] == "Fail" for spec in specs.values())
    reached = {
        r for rule in specs[policies.ALLOCATIONS]["matchConstraints"]["resourceRules"] for r in rule["resources"]
    }
    assert reached == {"pods", "pods/status", "pods/binding", "bindings"}
