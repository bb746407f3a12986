"""The built-in kinds of the devcluster, as a table.

For: `server`, which serves one storage per row. In: nothing. Out: frozen rows.
Promises: only metadata is validated for these kinds, and only the defaults written here are filled in; nothing runs
behind them (no scheduler, no kubelet, no Deployment controller): that is the stand-ins' part.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from apiserver.rest.status import Cause
from apiserver.rest.storage import Column, Subresource
from apiserver.rest.table import AGE, NAME
from nodefeature import kinds
from nodefeature.fields import as_map, as_maps, as_str, at, labels_of
from nodefeature.kinds import Kind

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KindSpec:
    """How one kind behaves."""

    kind: Kind
    short_names: tuple[str, ...] = ()
    status: bool = False
    keep_status: bool = False
    """A create may bring the status along, as the kubelet does for its Node."""
    generation: bool = False
    graceful: bool = False
    """A delete first waits for the node (Pods)."""
    fields: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    prepare: Callable[[Object], None] | None = None
    check: Callable[[Object], list[Cause]] | None = None
    """More rules than the schema, on every write of the whole object."""
    unconditional_update: bool = True
    """An update may leave its resourceVersion out."""
    path_names: bool = False
    """Names need only be path segments (RBAC), not DNS names."""
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def prepare_pod(obj: Object) -> None:
    """Fill in what readers of Pods rely on."""
    spec = obj.setdefault("spec", {})
    if isinstance(spec, dict):
        for key, value in (("restartPolicy", "Always"), ("terminationGracePeriodSeconds", 30)):
            spec.setdefault(key, value)
        spec.setdefault("schedulerName", "default-scheduler")
    obj["status"] = {"phase": "Pending"}


def prepare_namespace(obj: Object) -> None:
    """Give a namespace its finalizer, phase and name label."""
    obj["spec"] = {"finalizers": ["kubernetes"]}
    obj["status"] = {"phase": "Active"}
    labels = obj["metadata"].setdefault("labels", {})
    if isinstance(labels, dict):
        labels["kubernetes.io/metadata.name"] = obj["metadata"]["name"]


def prepare_secret(obj: Object) -> None:
    """Fold `stringData` into `data`; default the type."""
    text = obj.pop("stringData", None)
    if isinstance(text, Mapping):
        data = dict(as_map(obj.get("data")))
        data |= {key: base64.b64encode(str(value).encode()).decode() for key, value in text.items()}
        obj["data"] = data
    obj.setdefault("type", "Opaque")


def prepare_claim(obj: Object) -> None:
    """A claim starts Pending."""
    obj["status"] = {"phase": "Pending"}


def node_state(obj: Mapping[str, Any]) -> str:
    """Return the STATUS cell of a Node."""
    ready = [c.get("status") for c in as_maps(at(obj, "status", "conditions")) if c.get("type") == "Ready"]
    text = {"True": "Ready", "False": "NotReady"}.get(as_str(ready[0]) if ready else "", "Unknown")
    return text + (",SchedulingDisabled" if at(obj, "spec", "unschedulable") is True else "")


def node_roles(obj: Mapping[str, Any]) -> str:
    """Return the ROLES cell of a Node."""
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in labels_of(obj) if key.startswith(prefix))
    return ",".join(filter(None, roles)) or "<none>"


def pod_ready(obj: Mapping[str, Any]) -> str:
    """Return the READY cell of a Pod."""
    statuses = as_maps(at(obj, "status", "containerStatuses"))
    total = len(as_maps(at(obj, "spec", "containers")))
    return f"{sum(1 for status in statuses if status.get('ready') is True)}/{total}"


def pod_state(obj: Mapping[str, Any]) -> str:
    """Return the STATUS cell of a Pod."""
    if at(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    gated = bool(as_maps(at(obj, "spec", "schedulingGates")))
    return "SchedulingGated" if gated else as_str(at(obj, "status", "reason") or at(obj, "status", "phase"))


def _sub(name: str, kind: Kind, verbs: tuple[str, ...] = ("get", "patch", "update")) -> Subresource:
    return Subresource(name, kind.kind, verbs)


def _kind(group: str, version: str, plural: str, kind: str, *, namespaced: bool = True) -> Kind:
    return Kind(group, version, plural, kind, namespaced=namespaced)


_POD_COLUMNS = (
    NAME,
    Column("Ready", render=pod_ready),
    Column("Status", render=pod_state),
    AGE,
    Column("IP", ".status.podIP", priority=1),
    Column("Node", ".spec.nodeName", priority=1),
)
_NODE_COLUMNS = (
    NAME,
    Column("Status", render=node_state),
    Column("Roles", render=node_roles),
    AGE,
    Column("Version", ".status.nodeInfo.kubeletVersion"),
)
_NAMESPACE_COLUMNS = (NAME, Column("Status", ".status.phase"), AGE)
_EVENT_COLUMNS = (
    Column("Last Seen", ".lastTimestamp", type="date"),
    Column("Type", ".type"),
    Column("Reason", ".reason"),
    Column("Object", render=lambda obj: f"{at(obj, 'involvedObject', 'kind')}/{at(obj, 'involvedObject', 'name')}"),
    Column("Message", ".message"),
)
_EVENT_FIELDS = (
    *(f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid", "apiVersion")),
    "reason",
    "type",
)
_BINDING = Subresource("binding", "Binding", ("create",))
_RBAC = "rbac.authorization.k8s.io"

BUILT_INS: tuple[KindSpec, ...] = (
    KindSpec(
        kinds.NAMESPACE,
        ("ns",),
        status=True,
        fields=("status.phase",),
        columns=_NAMESPACE_COLUMNS,
        prepare=prepare_namespace,
        subresources=(_sub("finalize", kinds.NAMESPACE, ("update",)),),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    ),
    KindSpec(
        kinds.NODE,
        ("no",),
        status=True,
        keep_status=True,
        fields=("spec.unschedulable",),
        columns=_NODE_COLUMNS,
    ),
    KindSpec(
        kinds.POD,
        ("po",),
        status=True,
        graceful=True,
        generation=True,
        fields=("spec.nodeName", "status.phase", "spec.schedulerName", "spec.restartPolicy", "status.podIP"),
        columns=_POD_COLUMNS,
        prepare=prepare_pod,
        subresources=(_BINDING,),
        categories=("all",),
    ),
    KindSpec(kinds.SECRET, fields=("type",), prepare=prepare_secret),
    KindSpec(kinds.CONFIG_MAP, ("cm",)),
    KindSpec(kinds.SERVICE, ("svc",), status=True, categories=("all",)),
    KindSpec(kinds.SERVICE_ACCOUNT, ("sa",)),
    KindSpec(kinds.EVENT, ("ev",), fields=_EVENT_FIELDS, columns=_EVENT_COLUMNS),
    KindSpec(kinds.PERSISTENT_VOLUME_CLAIM, ("pvc",), status=True, prepare=prepare_claim),
    KindSpec(kinds.LEASE, unconditional_update=False),
    KindSpec(kinds.STORAGE_CLASS, ("sc",)),
    KindSpec(_kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False), ("pc",)),
    KindSpec(_kind(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False), path_names=True),
    KindSpec(_kind(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False), path_names=True),
    KindSpec(_kind(_RBAC, "v1", "roles", "Role"), path_names=True),
    KindSpec(_kind(_RBAC, "v1", "rolebindings", "RoleBinding"), path_names=True),
)
"""RBAC objects are stored and read back; nobody is judged by them."""

FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
