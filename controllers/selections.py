"""What of each kind the controllers keep in memory.

For: `kube.runtime.Manager` of the controllers process.
In: objects as the API server sends them. Out: the parts that some reconciler reads; nothing else is cached.
Promises: a Secret other than the settings' is never asked for; nulls and wrong-typed fields pass through as they are,
the readers are tolerant. (That managedFields are never kept is `kube.store`'s promise, for every cache.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.settings import SECRET_NAME
from controllers.node_view import LABELS_MERGED
from kube.reconciler import Object, Selection
from nodefeature.fields import as_map, as_maps, at
from nodefeature.kinds import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    DEVICES,
    INSTANCE_TYPE,
    LOCAL_QUEUE,
    NAMESPACE,
    NODE,
    NODE_FEATURE,
    RESOURCE_FLAVOR,
    SECRET,
    TOPOLOGY,
    Kind,
)
from nodefeature.labels import SYSTEM_NAMESPACE

_KEPT_CONDITIONS = frozenset({"Ready", LABELS_MERGED})


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


def selections(namespace: str = SYSTEM_NAMESPACE) -> Mapping[Kind, Selection]:
    """Return what is cached when the operator lives in `namespace`."""
    whole = Selection()
    return {
        NODE: Selection(project=node),
        NODE_FEATURE: Selection(namespace=namespace, project=node_feature),
        NAMESPACE: Selection(project=metadata_only),
        SECRET: Selection(namespace=namespace, field_selector=f"metadata.name={SECRET_NAME}"),
        DEVICES: whole,
        INSTANCE_TYPE: whole,
        CLUSTER_QUEUE: whole,
        LOCAL_QUEUE: whole,
        RESOURCE_FLAVOR: whole,
        TOPOLOGY: whole,
        ADMISSION_CHECK: whole,
    }


SELECTIONS: Mapping[Kind, Selection] = selections()
