"""What the processes are allowed, and whether it is what they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from controllers import RECONCILERS
from controllers.selections import selections
from gpustack_operator import rbac
from gpustack_operator.commands.rbac import run
from gpustack_operator.config import RbacOptions
from gpustack_operator.rbac import Process, Scope, manifests, narrowed, processes, summed
from kube.reconciler import Reconciler, Rule, Selection
from kube.requests import Request
from nodefeature.fields import as_list, as_maps, at
from nodefeature.kinds import CLUSTER_QUEUE, INSTANCE_TYPE, RESOURCE_FLAVOR
from tests.builders.fleet import Chain, Machine
from tests.builders.instance_types import FREE

CONTROLLERS, DEVICE_MANAGER, API_SERVER = processes()
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
EPYC = Machine("cpu-1", 64, "AMD", "AMD EPYC 7571")
T4 = Machine("gpu-1", 48, group="nvidia-tesla-t4", cards=[FREE] * 4, product="Tesla-T4", memory="16Gi", family="turing")


def allows(process: Process, *, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
    """Decide as Kubernetes' RBAC authorizer does, from the manifests."""
    for role in manifests(process):
        if role["kind"] not in ("Role", "ClusterRole") or at(role, "metadata", "namespace") not in (None, namespace):
            continue
        for rule in as_maps(role.get("rules")):
            names = as_list(rule.get("resourceNames"))
            if (
                group in as_list(rule.get("apiGroups"))
                and resource in as_list(rule.get("resources"))
                and verb in as_list(rule.get("verbs"))
                and (not names or name in names)
            ):
                return True
    return False


def refusal(request: Request) -> str:
    """Return what the controllers' account may not do in a request; empty when it may, or when it is not theirs."""
    manager = dict(request.query).get("fieldManager", "gpustack-")
    if not manager.startswith("gpustack-"):
        return ""
    parts = request.path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace, rest = (rest[1], rest[2:]) if rest[0] == "namespaces" and len(rest) > 2 else ("", rest)
    name, subresource = (rest[1] if len(rest) > 1 else ""), (f"/{rest[2]}" if len(rest) > 2 else "")
    verb = "list" if request.method == "GET" and not name else VERBS[request.method]
    asked = {
        "verb": verb,
        "group": group,
        "resource": rest[0] + subresource,
        "namespace": namespace,
        "name": name,
    }
    return "" if allows(CONTROLLERS, **asked) else f"{asked}"


class TestTheChainUnderItsAccount:
    def chain(self, *machines: Machine) -> tuple[Chain, list[str]]:
        chain, refused = Chain(*machines), list[str]()

        def authorize(request: Request) -> None:
            if problem := refusal(request):
                refused.append(problem)

        chain.api.faults.append(authorize)
        return chain, refused

    def test_hardware_to_pools_and_back(self) -> None:
        chain, refused = self.chain(EPYC, T4)
        chain.run()
        assert len(chain.types()) == 2
        chain.api.remove(next(kind for kind in chain.api.store if kind.plural == "nodes"), "gpu-1")
        chain.run()
        assert refused == []

    def test_hands_on_our_objects(self) -> None:
        chain, refused = self.chain(EPYC, T4)
        chain.run()
        for kind in (RESOURCE_FLAVOR, CLUSTER_QUEUE):
            for name in chain.api.names(kind):
                chain.api.edit(kind, name, {"metadata": {"labels": None, "annotations": None}})
        for name in chain.api.names(INSTANCE_TYPE):
            chain.api.edit(INSTANCE_TYPE, name, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        chain.run()
        assert refused == []

    def test_the_authorizer_of_this_test_refuses(self) -> None:
        request = Request(method="DELETE", path="/api/v1/nodes/gpu-1", what="delete", query=())
        assert "'verb': 'delete'" in refusal(request)


@pytest.mark.parametrize("reconciler", RECONCILERS, ids=lambda each: str(each.NAME))
def test_a_reconciler_declares_the_kinds_it_reads(reconciler: type[Reconciler]) -> None:
    declared = {(rule.group, rule.resource): set(rule.verbs) for rule in reconciler.RBAC}
    for kind in rbac.cached_kinds([reconciler]):
        assert {"list", "watch"} <= declared.get((kind.group, kind.plural), set()), kind


def test_every_cached_kind_may_be_listed_and_watched_where_its_cache_looks() -> None:
    for kind in rbac.cached_kinds(RECONCILERS):
        selection = selections()[kind]
        name = selection.field_selector.removeprefix("metadata.name=")
        for verb in ("list", "watch"):
            assert allows(
                CONTROLLERS,
                verb=verb,
                group=kind.group,
                resource=kind.plural,
                namespace=selection.namespace,
                name=name,
            ), f"{verb} {kind}"


ALLOWED: dict[str, tuple[Process, dict[str, str], bool]] = {
    "controllers read the settings": (
        CONTROLLERS,
        {"verb": "get", "resource": "secrets", "namespace": "gpustack-system", "name": "gpustack-settings"},
        True,
    ),
    "controllers read no other Secret": (
        CONTROLLERS,
        {"verb": "get", "resource": "secrets", "namespace": "gpustack-system", "name": "tls"},
        False,
    ),
    "controllers list no Secrets at large": (
        CONTROLLERS,
        {"verb": "list", "resource": "secrets", "namespace": "gpustack-system"},
        False,
    ),
    "controllers read no Secret elsewhere": (
        CONTROLLERS,
        {"verb": "get", "resource": "secrets", "namespace": "default", "name": "gpustack-settings"},
        False,
    ),
    "controllers read no NodeFeature elsewhere": (
        CONTROLLERS,
        {"verb": "list", "group": "nfd.k8s-sigs.io", "resource": "nodefeatures", "namespace": "default"},
        False,
    ),
    "controllers renew their Lease": (
        CONTROLLERS,
        {
            "verb": "update",
            "group": "coordination.k8s.io",
            "resource": "leases",
            "namespace": "gpustack-system",
            "name": "worker.gpustack.ai",
        },
        True,
    ),
    "controllers take no other Lease": (
        CONTROLLERS,
        {
            "verb": "update",
            "group": "coordination.k8s.io",
            "resource": "leases",
            "namespace": "gpustack-system",
            "name": "kueue",
        },
        False,
    ),
    "controllers keep fit labels on Nodes": (CONTROLLERS, {"verb": "patch", "resource": "nodes", "name": "n"}, True),
    "controllers replace no Node": (CONTROLLERS, {"verb": "update", "resource": "nodes", "name": "n"}, False),
    "controllers delete no Node": (CONTROLLERS, {"verb": "delete", "resource": "nodes", "name": "n"}, False),
    "controllers delete no InstanceType": (
        CONTROLLERS,
        {"verb": "delete", "group": "worker.gpustack.ai", "resource": "instancetypes", "name": "t"},
        False,
    ),
    "the API server removes its APIServices": (
        API_SERVER,
        {"verb": "delete", "group": "apiregistration.k8s.io", "resource": "apiservices", "name": "v1.gpustack.ai"},
        True,
    ),
    "the API server removes no other APIService": (
        API_SERVER,
        {"verb": "delete", "group": "apiregistration.k8s.io", "resource": "apiservices", "name": "v1.apps"},
        False,
    ),
    "the API server updates no other CRD": (
        API_SERVER,
        {"verb": "update", "group": "apiextensions.k8s.io", "resource": "customresourcedefinitions", "name": "x.y"},
        False,
    ),
    "the API server deletes no CRD": (
        API_SERVER,
        {
            "verb": "delete",
            "group": "apiextensions.k8s.io",
            "resource": "customresourcedefinitions",
            "name": "instances.worker.gpustack.ai",
        },
        False,
    ),
    "the API server follows its own namespace": (
        API_SERVER,
        {"verb": "watch", "resource": "namespaces", "name": "gpustack-system"},
        True,
    ),
    "the API server reads no other ConfigMap of kube-system": (
        API_SERVER,
        {"verb": "get", "resource": "configmaps", "namespace": "kube-system", "name": "kubeadm-config"},
        False,
    ),
    "the API server reads whom to trust": (
        API_SERVER,
        {
            "verb": "watch",
            "resource": "configmaps",
            "namespace": "kube-system",
            "name": "extension-apiserver-authentication",
        },
        True,
    ),
    "the API server reviews access": (
        API_SERVER,
        {"verb": "create", "group": "authorization.k8s.io", "resource": "subjectaccessreviews"},
        True,
    ),
    "the API server does not impersonate": (API_SERVER, {"verb": "impersonate", "resource": "users"}, False),
    "the agent reads its Node": (DEVICE_MANAGER, {"verb": "get", "resource": "nodes", "name": "n"}, True),
    "the agent reads no Secret": (
        DEVICE_MANAGER,
        {"verb": "get", "resource": "secrets", "namespace": "gpustack-system", "name": "gpustack-settings"},
        False,
    ),
    "the agent deletes no Devices": (
        DEVICE_MANAGER,
        {"verb": "delete", "group": "worker.gpustack.ai", "resource": "devices", "name": "n"},
        False,
    ),
}


@pytest.mark.parametrize("row", ALLOWED.values(), ids=ALLOWED.keys())
def test_least_privilege(row: tuple[Process, dict[str, str], bool]) -> None:
    process, asked, want = row
    assert allows(process, **{"group": "", **asked}) is want


@pytest.mark.parametrize("process", processes(), ids=lambda each: str(each.name))
def test_nothing_is_granted_wholesale(process: Process) -> None:
    text = rbac.as_yaml(manifests(process))
    assert "*" not in text
    assert "cluster-admin" not in text
    objects = list(yaml.safe_load_all(text))
    assert {obj["kind"] for obj in objects} == {
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    }
    for binding in (obj for obj in objects if obj["kind"].endswith("Binding")):
        assert binding["roleRef"]["name"] == process.account
        assert [s["name"] for s in binding["subjects"]] == [process.account]


@pytest.mark.parametrize("process", processes(), ids=lambda each: str(each.name))
def test_no_verb_is_lost(process: Process) -> None:
    granted = {verb for verbs in process.grants.values() for verb in verbs}
    roles = [obj for obj in manifests(process) if obj["kind"].endswith("Role")]
    assert granted == {verb for role in roles for rule in role["rules"] for verb in rule["verbs"]}


def test_another_namespace() -> None:
    for process in processes("elsewhere"):
        for obj in manifests(process, "elsewhere"):
            assert at(obj, "metadata", "namespace") in (None, "elsewhere", "default", "kube-system")
            assert all(subject["namespace"] == "elsewhere" for subject in obj.get("subjects", ()))


ONE_SECRET = Selection(namespace="ns", field_selector="metadata.name=only")
NARROWED: dict[str, tuple[Rule, Mapping[Scope, frozenset[str]]]] = {
    "cluster-wide": (Rule("g", "things", ("get", "patch")), {Scope("g", "things"): frozenset({"get", "patch"})}),
    "the operator's namespace": (
        Rule("g", "things", ("get",), "gpustack-system"),
        {Scope("g", "things", "ns"): frozenset({"get"})},
    ),
    "another namespace": (
        Rule("g", "things", ("get",), "default"),
        {Scope("g", "things", "default"): frozenset({"get"})},
    ),
    "reads follow the cache, writes the declaration": (
        Rule("", "secrets", ("list", "watch", "create")),
        {
            Scope("", "secrets", "ns", ("only",)): frozenset({"list", "watch"}),
            Scope("", "secrets"): frozenset({"create"}),
        },
    ),
}


@pytest.mark.parametrize("row", NARROWED.values(), ids=NARROWED.keys())
def test_narrowed(row: tuple[Rule, Mapping[Scope, frozenset[str]]]) -> None:
    rule, want = row
    assert narrowed(rule, {("", "secrets"): ONE_SECRET}, "ns") == want


def test_summed_says_nothing_twice() -> None:
    everywhere, here = Scope("", "pods"), Scope("", "pods", "ns")
    parts = [{everywhere: frozenset({"get"})}, {here: frozenset({"get", "list"})}, {everywhere: frozenset({"watch"})}]
    assert summed(parts) == {everywhere: frozenset({"get", "watch"}), here: frozenset({"list"})}
    assert summed([{everywhere: frozenset({"get"}), here: frozenset({"get"})}]) == {everywhere: frozenset({"get"})}


def test_the_command_prints_what_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*process: str) -> list[dict[str, Any]]:
        run(RbacOptions(namespace="ns", process=process), environ={})
        return list(yaml.safe_load_all(capsys.readouterr().out))

    assert printed("controllers") == manifests(processes("ns")[0], "ns")
    both = printed("controllers", "device-manager")
    assert [obj["metadata"]["name"] for obj in both if obj["kind"] == "ServiceAccount"] == [
        "gpustack-operator-worker",
        "gpustack-operator-device-manager",
    ]
