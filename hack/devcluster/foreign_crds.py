"""Kinds of NFD and Kueue that the product reads and writes, as permissive CRDs in our own words.

For: `server`, which installs them next to the product's own. In: nothing. Out: CRD manifests.
Promises: names, versions, scopes, short names, sub-resources and keyed lists are those of the real ones; their field
rules are not: any spec is kept as it comes. What real webhooks and schemas refuse is tested on a real control plane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodefeature import kinds
from nodefeature.kinds import CUSTOM_RESOURCE_DEFINITION, Kind

_ANYTHING: Mapping[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True, slots=True)
class Foreign:
    """One kind of somebody else's. `columns`: (name, type, path)."""

    kind: Kind
    short_names: tuple[str, ...] = ()
    status: bool = True
    columns: tuple[tuple[str, str, str], ...] = ()
    keyed: Mapping[str, str] | None = None
    """Lists of the status that are keyed: field -> key."""


_AGE = ("Age", "date", ".metadata.creationTimestamp")
_CONDITION = '.status.conditions[?(@.type=="{}")].status'

FOREIGN: tuple[Foreign, ...] = (
    Foreign(kinds.NODE_FEATURE, status=False),
    Foreign(kinds.NODE_FEATURE_RULE, ("nfr",)),
    Foreign(kinds.RESOURCE_FLAVOR, ("flavor", "flavors", "rf"), status=False),
    Foreign(
        kinds.CLUSTER_QUEUE,
        ("cq",),
        columns=(
            ("Cohort", "string", ".spec.cohortName"),
            ("Strategy", "string", ".spec.queueingStrategy"),
            ("Pending Workloads", "integer", ".status.pendingWorkloads"),
            ("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ),
        keyed={"flavorsReservation": "name", "flavorsUsage": "name"},
    ),
    Foreign(
        kinds.LOCAL_QUEUE,
        ("queue", "queues", "lq"),
        columns=(
            ("ClusterQueue", "string", ".spec.clusterQueue"),
            ("Pending Workloads", "integer", ".status.pendingWorkloads"),
            ("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ),
    ),
    Foreign(
        kinds.WORKLOAD,
        ("wl",),
        columns=(
            ("Queue", "string", ".spec.queueName"),
            ("Reserved in", "string", ".status.admission.clusterQueue"),
            ("Admitted", "string", _CONDITION.format("Admitted")),
            ("Finished", "string", _CONDITION.format("Finished")),
            _AGE,
        ),
        keyed={"admissionChecks": "name"},
    ),
    Foreign(kinds.ADMISSION_CHECK),
    Foreign(kinds.TOPOLOGY, status=False),
)


def manifest(foreign: Foreign) -> dict[str, Any]:
    """Return the CRD of one kind."""
    kind = foreign.kind
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": _properties(foreign)}},
    }
    if foreign.status:
        version["subresources"] = {"status": {}}
    if foreign.columns:
        version["additionalPrinterColumns"] = [
            {"name": name, "type": type_, "jsonPath": path} for name, type_, path in foreign.columns
        ]
    names = {"plural": kind.plural, "kind": kind.kind, "shortNames": list(foreign.short_names)}
    return {
        "apiVersion": CUSTOM_RESOURCE_DEFINITION.api_version,
        "kind": CUSTOM_RESOURCE_DEFINITION.kind,
        "metadata": {"name": kind.group_resource},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }


def _properties(foreign: Foreign) -> dict[str, Any]:
    if not foreign.status:
        return {"spec": dict(_ANYTHING)}
    status: dict[str, Any] = dict(_ANYTHING)
    if foreign.keyed:
        status["properties"] = {
            name: {
                "type": "array",
                "items": {**_ANYTHING},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": [key],
            }
            for name, key in foreign.keyed.items()
        }
    return {"spec": dict(_ANYTHING), "status": status}


def foreign_manifests() -> list[dict[str, Any]]:
    """Return the CRDs of every foreign kind."""
    return [manifest(foreign) for foreign in FOREIGN]
