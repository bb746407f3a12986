"""The two webhook configurations (spec 05 §4, design §6).

For: `installers.webhooks`, `route`, the devcluster's tests. In: how kube-apiserver reaches us. Out: manifests.
Promises:
- the mutating one sorts before Kueue's, so that units are written before Kueue reads resources;
- no entry matches a status, a Node, a Devices object, a Secret or a Lease; an object on its way out is never sent, so
  that a dead webhook makes nothing immortal;
- Pods are sent only with the queue label, Pods and Workloads of reserved namespaces and of our own never;
- every default of the API is written out: what differs was edited by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apiserver.route import Route
from nodefeature.kinds import (
    INSTANCE,
    INSTANCE_TYPE,
    MUTATING_WEBHOOK_CONFIGURATION,
    POD,
    VALIDATING_WEBHOOK_CONFIGURATION,
    WORKLOAD,
    Kind,
)
from nodefeature.labels import QUEUE_NAME, RESERVED_NAMESPACES
from nodefeature.queue_names import LOCAL_QUEUE_PREFIX

MUTATION = "gpustack-worker-mutation"
VALIDATION = "gpustack-worker-validation"
TIMEOUT_S = 10
PART_OF = {"app.kubernetes.io/part-of": "gpustack-operator"}

NOT_DELETING = {"name": "not-deleting", "expression": "!has(object.metadata.deletionTimestamp)"}
OWN_QUEUE = {
    "name": "gpustack-local-queue",
    "expression": f"has(object.spec.queueName) && object.spec.queueName.startsWith('{LOCAL_QUEUE_PREFIX}')",
}
NO_QUOTA_YET = {
    "name": "no-quota-yet",
    "expression": "oldObject == null || !has(oldObject.status) || !has(oldObject.status.admission)",
}
"""A Workload that was admitted is written often, and never pinned any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One webhook."""

    name: str
    path: str
    kind: Kind
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    failure: str = "Fail"
    labelled: bool = False
    """Only objects with the queue label."""
    spares_system: bool = False
    """Reserved namespaces are left alone."""
    conditions: tuple[dict[str, str], ...] = (NOT_DELETING,)


def _ours(half: str, kind: Kind) -> Entry:
    words = f"{kind.group}.{kind.version}.{kind.kind.lower()}"
    return Entry(name=f"{half}.{words}", path=f"/{half}-{words.replace('.', '-')}", kind=kind)


def _pod(half: str) -> Entry:
    return Entry(
        name=f"{half}.gpustack-worker.core.v1.pod",
        path=f"/{half}-gpustack-worker-core-v1-pod",
        kind=POD,
        operations=("CREATE",),
        labelled=True,
        spares_system=True,
    )


WORKLOAD_ENTRY = Entry(
    name=f"mutate.gpustack-worker.{WORKLOAD.group}.{WORKLOAD.version}.workload",
    path=f"/mutate-gpustack-worker-{WORKLOAD.group.replace('.', '-')}-{WORKLOAD.version}-workload",
    kind=WORKLOAD,
    failure="Ignore",
    spares_system=True,
    conditions=(NOT_DELETING, OWN_QUEUE, NO_QUOTA_YET),
)
MUTATING = (_ours("mutate", INSTANCE), _ours("mutate", INSTANCE_TYPE), _pod("mutate"), WORKLOAD_ENTRY)
VALIDATING = (_ours("validate", INSTANCE), _ours("validate", INSTANCE_TYPE), _pod("validate"))


def manifests(route: Route) -> tuple[tuple[Kind, dict[str, Any]], ...]:
    """Return both configurations."""
    return (
        (MUTATING_WEBHOOK_CONFIGURATION, _manifest(MUTATION, MUTATING, route)),
        (VALIDATING_WEBHOOK_CONFIGURATION, _manifest(VALIDATION, VALIDATING, route)),
    )


def _manifest(name: str, entries: tuple[Entry, ...], route: Route) -> dict[str, Any]:
    mutating = name == MUTATION
    return {
        "metadata": {"name": name, "labels": dict(PART_OF)},
        "webhooks": [_webhook(entry, route, mutating=mutating) for entry in entries],
    }


def _webhook(entry: Entry, route: Route, *, mutating: bool) -> dict[str, Any]:
    labelled = {"matchExpressions": [{"key": QUEUE_NAME, "operator": "Exists"}]}
    spared = sorted({*RESERVED_NAMESPACES, route.namespace})
    outside = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": spared}]}
    rule = {
        "apiGroups": [entry.kind.group],
        "apiVersions": [entry.kind.version],
        "operations": list(entry.operations),
        "resources": [entry.kind.plural],
        "scope": "Namespaced" if entry.kind.namespaced else "Cluster",
    }
    webhook: dict[str, Any] = {
        "name": entry.name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {
                "name": route.service,
                "namespace": route.namespace,
                "path": entry.path,
                "port": route.port,
            },
        },
        "failurePolicy": entry.failure,
        "matchConditions": [dict(condition) for condition in entry.conditions],
        "matchPolicy": "Equivalent",
        "namespaceSelector": outside if entry.spares_system else {},
        "objectSelector": labelled if entry.labelled else {},
        "rules": [rule],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_S,
    }
    if route.bundle:
        webhook["clientConfig"]["caBundle"] = route.ca_bundle
    if mutating:
        webhook["reinvocationPolicy"] = "Never"
    return webhook
