"""What of each kind the controllers keep in memory.

For: `kube.runtime.Manager` of the controllers process.
In: objects as the API server sends them. Out: the parts that some reconciler reads; nothing else is cached.
Promises: a Secret other than the settings' is never asked for; nulls and wrong-typed fields pass through as they are,
the readers are tolerant. (That managedFields are never kept is `kube.store`'s promise, for every cache.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.ledger.transport import ALLOCATED_ANNOTATION
from api.settings import SECRET_NAME
from controllers.card_claims import WORKLOAD_ANNOTATION
from controllers.node_view import LABELS_MERGED
from kube.reconciler import Object, Selection
from nodefeature.fields import annotations_of, as_map, as_maps, at, labels_of
from nodefeature.kinds import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    DEVICES,
    INSTANCE,
    INSTANCE_TYPE,
    LOCAL_QUEUE,
    NAMESPACE,
    NODE,
    NODE_FEATURE,
    POD,
    RESOURCE_FLAVOR,
    SECRET,
    SERVICE,
    TOPOLOGY,
    WORKLOAD,
    Kind,
)
from nodefeature.labels import QUEUE_NAME, RESOURCE_TYPE, SYSTEM_NAMESPACE, TYPE_INSTANCES

_KEPT_CONDITIONS = frozenset({"Ready", LABELS_MERGED})
_KEPT_POD_STATUS = ("phase", "containerStatuses", "initContainerStatuses")
_IDENTITY = ("name", "namespace", "uid", "resourceVersion")


def node(obj: Object) -> Object:
    """Keep metadata, taints, the cordon, capacity, addresses and the conditions that somebody reads."""
    spec, status = as_map(at(obj, "spec")), as_map(at(obj, "status"))
    conditions = [
        {key: c.get(key) for key in ("type", "status", "reason", "message")}
        for c in as_maps(status.get("conditions"))
        if c.get("type") in _KEPT_CONDITIONS
    ]
    return {
        "metadata": obj.get("metadata"),
        "spec": {key: spec[key] for key in ("taints", "unschedulable") if key in spec},
        "status": {key: status[key] for key in ("capacity", "addresses") if key in status}
        | ({"conditions": conditions} if conditions else {}),
    }


def node_feature(obj: Object) -> Object:
    """Keep metadata and the labels; the features NFD workers report are large and not ours to read."""
    return {"metadata": obj.get("metadata"), "spec": {"labels": at(obj, "spec", "labels")}}


def metadata_only(obj: Object) -> Object:
    """Keep metadata and the phase."""
    slim: dict[str, Any] = {"metadata": obj.get("metadata")}
    phase = at(obj, "status", "phase")
    return slim | ({"status": {"phase": phase}} if phase is not None else {})


def pod(obj: Object) -> Object:
    """Keep Pods that were queued; of others with cards what they hold; of all the rest that they exist."""
    meta = as_map(obj.get("metadata"))
    if QUEUE_NAME in labels_of(obj):
        return {"metadata": meta, "spec": obj.get("spec"), "status": obj.get("status")}
    if not {WORKLOAD_ANNOTATION, ALLOCATED_ANNOTATION} & annotations_of(obj).keys():
        return {"metadata": {key: meta[key] for key in _IDENTITY if key in meta}}
    spec, status = as_map(obj.get("spec")), as_map(obj.get("status"))
    return {
        "metadata": meta,
        "spec": _pod_spec(spec) | ({"nodeName": spec["nodeName"]} if "nodeName" in spec else {}),
        "status": {key: status[key] for key in _KEPT_POD_STATUS if key in status},
    }


def workload(obj: Object) -> Object:
    """Keep metadata, the status, and of the Pods' templates what decides about cards and nodes."""
    spec = as_map(obj.get("spec"))
    pod_sets = [
        {key: pod_set[key] for key in ("name", "count") if key in pod_set}
        | {"template": {"spec": _pod_spec(as_map(at(pod_set, "template", "spec")))}}
        for pod_set in as_maps(spec.get("podSets"))
    ]
    kept = {key: spec[key] for key in ("active", "queueName", "priority") if key in spec}
    return {"metadata": obj.get("metadata"), "spec": {**kept, "podSets": pod_sets}, "status": obj.get("status")}


def _pod_spec(spec: Mapping[str, Any]) -> Object:
    """Keep of a Pod's spec its containers' resources, its node selector and its tolerations."""
    slim: Object = {
        name: [{key: c[key] for key in ("name", "restartPolicy", "resources") if key in c} for c in as_maps(spec[name])]
        for name in ("initContainers", "containers")
        if name in spec
    }
    return slim | {key: spec[key] for key in ("nodeSelector", "tolerations") if key in spec}


def selections(namespace: str = SYSTEM_NAMESPACE) -> Mapping[Kind, Selection]:
    """Return what is cached when the operator lives in `namespace`."""
    whole = Selection()
    return {
        NODE: Selection(project=node),
        NODE_FEATURE: Selection(namespace=namespace, project=node_feature),
        NAMESPACE: Selection(project=metadata_only),
        SECRET: Selection(namespace=namespace, field_selector=f"metadata.name={SECRET_NAME}"),
        SERVICE: Selection(label_selector=f"{RESOURCE_TYPE}={TYPE_INSTANCES}"),
        DEVICES: whole,
        INSTANCE: whole,
        INSTANCE_TYPE: whole,
        CLUSTER_QUEUE: whole,
        LOCAL_QUEUE: whole,
        RESOURCE_FLAVOR: whole,
        TOPOLOGY: whole,
        ADMISSION_CHECK: whole,
        POD: Selection(project=pod),
        WORKLOAD: Selection(project=workload),
    }


SELECTIONS: Mapping[Kind, Selection] = selections()
