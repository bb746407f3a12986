"""The CustomResourceDefinitions, generated from the models.

For: the installers, the chart (`chart/crds`), the devcluster. In: nothing. Out: manifests as plain dicts.
Promises: printer columns are the columns of the v1 tables, fed by `status.summary` where a cell joins several figures
(design §6); v1alpha1 is the only and stored version; unknown fields are pruned, which is the default and so not
written (the API server would leave it out again, and a comparison would differ for ever); the same on every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from api.models.devices import Devices
from api.models.instance import Instance
from api.models.instance_type import InstanceType
from api.schema import Schema, structural
from nodefeature.kinds import CUSTOM_RESOURCE_DEFINITION, DEVICES, INSTANCE, INSTANCE_TYPE, Kind

CATEGORY = "gpustack"


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column; a priority above 0 shows with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """What a CRD says beside its schema."""

    kind: Kind
    model: type[BaseModel]
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]


def _age(priority: int) -> Column:
    return Column("Age", ".metadata.creationTimestamp", "date", priority)


DEFINITIONS: tuple[Definition, ...] = (
    Definition(DEVICES, Devices, ("devs",), (_age(1),)),
    Definition(
        INSTANCE,
        Instance,
        ("inst",),
        (
            Column("Type", ".spec.type"),
            Column("Access", ".status.accessAddresses[0]"),
            Column("Port(s)", ".status.summary.ports", description="port:nodePort/protocol"),
            Column("Phase", ".status.phase"),
            _age(1),
        ),
    ),
    Definition(
        INSTANCE_TYPE,
        InstanceType,
        ("instype",),
        (
            Column("Entrance", ".status.entrance", description="LocalQueue for label kueue.x-k8s.io/queue-name"),
            Column("Unit(CPU/RAM)/Storage", ".status.summary.unit"),
            Column(
                "Accelerator(EX/SH/SL/PT)",
                ".status.summary.accelerator",
                description="Largest single request and what is left: exclusive, shared, sliced, partitioned",
            ),
            Column("CPU", ".status.summary.cpu", description="Largest single request and what is left"),
            Column("Phase", ".status.phase"),
            Column("Partitions", ".status.summary.partitions", priority=1, description="Free instances by profile"),
            _age(2),
        ),
    ),
)


def crd_manifests() -> list[dict[str, Any]]:
    """Return every CRD manifest, sorted by name."""
    return sorted((_manifest(definition) for definition in DEFINITIONS), key=lambda crd: str(crd["metadata"]["name"]))


def _manifest(definition: Definition) -> dict[str, Any]:
    kind = definition.kind
    singular = kind.kind.lower()
    return {
        "apiVersion": CUSTOM_RESOURCE_DEFINITION.api_version,
        "kind": CUSTOM_RESOURCE_DEFINITION.kind,
        "metadata": {"name": kind.group_resource},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": singular,
                "shortNames": list(definition.short_names),
                "categories": [CATEGORY],
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _root(structural(definition.model))},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(column) for column in definition.columns],
                }
            ],
        },
    }


def _root(schema: Schema) -> Schema:
    """Leave what the API server itself knows about the root to the API server."""
    properties = {
        **schema["properties"],
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    return {**schema, "properties": properties}


def _column(column: Column) -> dict[str, Any]:
    out: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        out["description"] = column.description
    if column.priority:
        out["priority"] = column.priority
    return out
