"""What the processes may do in a cluster, summed from what their parts declare.

For: `gpustack-operator rbac`, the chart's committed copy.
In: the `RBAC`, `WATCHES` and `READS` of reconcilers and of the node agent. Out: ServiceAccount, ClusterRole, Role and
bindings of each process, as plain objects.
Promises: no wildcard, and nothing that nobody declared; a kind that is cached from one namespace, or of which one
object is cached, is read there alone; the same declarations give the same objects in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from api.crds import crd_manifests
from apiserver.authn import front_proxy
from apiserver.installers.api_services import GROUPS, VERSION
from apiserver.installers.webhooks import NAMES as ADMISSION_NAMES
from apiserver.process import RBAC as API_SERVER_RBAC
from controllers import RECONCILERS, node_feature_rule
from controllers.selections import selections
from devicemanager.exporter.exporter import RBAC as EXPORTER_RBAC
from devicemanager.ledger.publishing import LedgerPublisher
from devicemanager.own_objects import OwnObjects
from devicemanager.publisher.publish import RBAC as AGENT_RBAC
from gpustack_operator.config import PROCESSES, SYSTEM_NAMESPACE, ElectionOptions
from kube.reconciler import Reconciler, Rule, Selection
from nodefeature.kinds import API_SERVICE, CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, LEASE, NAMESPACE, Kind

Manifest = dict[str, Any]

API_VERSION = "rbac.authorization.k8s.io/v1"
_API_GROUP = "rbac.authorization.k8s.io"
_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_READS = frozenset({"get", "list", "watch"})
_NAME_FIELD = "metadata.name="


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a grant holds: a resource of a group, in a namespace (empty: everywhere), of some names (empty: of all)."""

    group: str
    resource: str
    namespace: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Process:
    """One process and everything it was granted."""

    name: str
    account: str
    grants: Mapping[Scope, frozenset[str]] = field(default_factory=dict)


def processes(namespace: str = SYSTEM_NAMESPACE) -> tuple[Process, ...]:
    """Return the processes of an operator that lives in `namespace`, in the order of `PROCESSES`."""
    made = (
        Process("controllers", "gpustack-operator-worker", _controllers(namespace)),
        Process("device-manager", "gpustack-operator-device-manager", _device_manager(namespace)),
        Process("apiserver", "gpustack-operator-apiserver", _api_server(namespace)),
    )
    return tuple(process for name in PROCESSES for process in made if process.name == name)


def cached_kinds(reconcilers: Iterable[type[Reconciler]]) -> list[Kind]:
    """Return the kinds that reconcilers watch or read from the cache."""
    found = {watch.kind: None for each in reconcilers for watch in each.WATCHES}
    found.update((kind, None) for each in reconcilers for kind in each.READS)
    return list(found)


def narrowed(rule: Rule, cached: Mapping[tuple[str, str], Selection], namespace: str) -> dict[Scope, frozenset[str]]:
    """Return what a rule grants, by scope. `cached` is by (group, resource).

    A rule's namespace stands for the operator's own when it is the default one. Reads of a cached kind reach no further
    than its cache does: authorization knows the name that a list or watch of one object selects.
    """
    where = namespace if rule.namespace == SYSTEM_NAMESPACE else rule.namespace
    selection = cached.get((rule.group, rule.resource), Selection())
    names = tuple(
        term.removeprefix(_NAME_FIELD) for term in selection.field_selector.split(",") if term.startswith(_NAME_FIELD)
    )
    reads = Scope(rule.group, rule.resource, selection.namespace or where, names)
    writes = Scope(rule.group, rule.resource, where)
    granted: dict[Scope, frozenset[str]] = {}
    for scope, verbs in ((reads, _READS & set(rule.verbs)), (writes, set(rule.verbs) - _READS)):
        if verbs:
            granted[scope] = granted.get(scope, frozenset()) | verbs
    return granted


def summed(parts: Iterable[Mapping[Scope, frozenset[str]]]) -> dict[Scope, frozenset[str]]:
    """Add grants up; what is granted everywhere is not granted again in one namespace."""
    total: dict[Scope, frozenset[str]] = {}
    for part in parts:
        for scope, verbs in part.items():
            total[scope] = total.get(scope, frozenset()) | verbs
    left = {
        scope: verbs
        - (total.get(Scope(scope.group, scope.resource), frozenset()) if _is_narrow(scope) else frozenset())
        for scope, verbs in total.items()
    }
    return {scope: verbs for scope, verbs in left.items() if verbs}


def manifests(process: Process, namespace: str = SYSTEM_NAMESPACE) -> list[Manifest]:
    """Return the ServiceAccount of a process, its roles and their bindings."""
    objects: list[Manifest] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(process, namespace)},
    ]
    for where in sorted({scope.namespace for scope in process.grants}):
        rules = _rules({scope: verbs for scope, verbs in process.grants.items() if scope.namespace == where})
        prefix = "" if where else "Cluster"
        objects += [
            {
                "apiVersion": API_VERSION,
                "kind": f"{prefix}Role",
                "metadata": _metadata(process, where),
                "rules": rules,
            },
            {
                "apiVersion": API_VERSION,
                "kind": f"{prefix}RoleBinding",
                "metadata": _metadata(process, where),
                "roleRef": {"apiGroup": _API_GROUP, "kind": f"{prefix}Role", "name": process.account},
                "subjects": [{"kind": "ServiceAccount", "name": process.account, "namespace": namespace}],
            },
        ]
    return objects


def as_yaml(objects: Iterable[Manifest]) -> str:
    """Return manifests as one YAML stream."""
    return yaml.safe_dump_all(objects, sort_keys=False, default_flow_style=None, width=120, explicit_start=True)


def _controllers(namespace: str) -> dict[Scope, frozenset[str]]:
    cached = {(kind.group, kind.plural): selection for kind, selection in selections(namespace).items()}
    declared = [rule for each in RECONCILERS for rule in each.RBAC] + list(node_feature_rule.RBAC)
    # The runtime lists and watches every cached kind, whoever declared it.
    declared += [Rule(kind.group, kind.plural, ("list", "watch")) for kind in cached_kinds(RECONCILERS)]
    return summed([*(narrowed(rule, cached, namespace) for rule in declared), _lease(namespace)])


def _api_server(namespace: str) -> dict[Scope, frozenset[str]]:
    """The rules of `apiserver.process`; what is not created is reached by its name alone."""
    cached = {
        (CONFIG_MAP.group, CONFIG_MAP.plural): front_proxy.SELECTION,
        (NAMESPACE.group, NAMESPACE.plural): Selection(field_selector=_NAME_FIELD + namespace),
    }
    crds, services = CUSTOM_RESOURCE_DEFINITION, API_SERVICE
    named = {
        (crds.group, crds.plural): tuple(str(crd["metadata"]["name"]) for crd in crd_manifests()),
        (services.group, services.plural): tuple(f"{VERSION}.{group}" for group in GROUPS),
        **{(kind.group, kind.plural): names for kind, names in ADMISSION_NAMES.items()},
    }
    granted = []
    for rule in API_SERVER_RBAC:
        names = named.get((rule.group, rule.resource), ())
        for scope, verbs in narrowed(rule, cached, namespace).items():
            by_name = verbs - {"create"} if names else frozenset[str]()
            granted += [{scope: verbs - by_name}, {replace(scope, names=names or scope.names): by_name}]
    return summed(granted)


def _device_manager(namespace: str) -> dict[Scope, frozenset[str]]:
    declared = (*AGENT_RBAC, *OwnObjects.RBAC, *LedgerPublisher.RBAC, *EXPORTER_RBAC)
    return summed(narrowed(rule, {}, namespace) for rule in declared)


def _lease(namespace: str) -> dict[Scope, frozenset[str]]:
    """Leader election; a create cannot be limited to a name."""
    names = (ElectionOptions().leader_election_id,)
    return {
        Scope(LEASE.group, LEASE.plural, namespace): frozenset({"create"}),
        Scope(LEASE.group, LEASE.plural, namespace, names): frozenset({"get", "update"}),
    }


def _is_narrow(scope: Scope) -> bool:
    return bool(scope.namespace or scope.names)


def _rules(grants: Mapping[Scope, frozenset[str]]) -> list[Manifest]:
    """Return the rules of one role: resources of one group with the same verbs share a rule."""
    together: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for scope in sorted(grants, key=lambda scope: (scope.group, scope.resource, scope.names)):
        verbs = tuple(verb for verb in _VERBS if verb in grants[scope])
        together.setdefault((scope.group, scope.names, verbs), []).append(scope.resource)
    return [
        {
            "apiGroups": [group],
            "resources": resources,
            **({"resourceNames": list(names)} if names else {}),
            "verbs": list(verbs),
        }
        for (group, names, verbs), resources in together.items()
    ]


def _metadata(process: Process, namespace: str) -> Manifest:
    labels = {"app.kubernetes.io/part-of": "gpustack-operator", "app.kubernetes.io/component": process.name}
    return {"name": process.account, **({"namespace": namespace} if namespace else {}), "labels": labels}
