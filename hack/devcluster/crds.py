"""CustomResourceDefinitions: checked when written, served as soon as they are stored.

For: `server`. In: CRD objects. Out: resources in the catalog.
Promises: one served version per CRD, no conversion, and no schema keyword the devcluster does not enforce: anything
else is refused when the CRD is written, with its path. Deleting a CRD deletes its objects first.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from apiserver.rest.paths import PathError, compile_path
from apiserver.rest.status import Cause
from apiserver.rest.storage import Catalog, Column, Resource, Subresource
from apiserver.rest.table import AGE, NAME
from hack.devcluster.kinds import KindSpec
from hack.devcluster.objects import ObjectStorage
from hack.devcluster.schema import UnknownKeyword, compile_schema
from hack.devcluster.store import Change, Entry, Object, Store
from kube.clock import Clock, second_time
from nodefeature.fields import as_bool, as_int, as_list, as_map, as_maps, as_str, at
from nodefeature.kinds import CUSTOM_RESOURCE_DEFINITION, Kind

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def crd_spec(clock: Clock) -> KindSpec:
    """Return the row of the CRD kind itself."""

    def prepare(obj: Object) -> None:
        names = dict(as_map(at(obj, "spec", "names")))
        names.setdefault("singular", as_str(names.get("kind")).lower())
        names.setdefault("listKind", as_str(names.get("kind")) + "List")
        if isinstance(obj.get("spec"), dict):
            obj["spec"]["names"] = names
            obj["spec"].setdefault("conversion", {"strategy": "None"})
        now = second_time(clock.time())
        done = [("NamesAccepted", "NoConflicts"), ("Established", "InitialNamesAccepted")]
        obj["metadata"]["finalizers"] = [*as_list(obj["metadata"].get("finalizers")), CLEANUP]
        obj["status"] = {
            "acceptedNames": names,
            "storedVersions": [version.get("name") for version in as_maps(at(obj, "spec", "versions"))],
            "conditions": [
                {"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": now}
                for kind, reason in done
            ],
        }

    return KindSpec(
        CUSTOM_RESOURCE_DEFINITION,
        ("crd", "crds"),
        status=True,
        generation=True,
        unconditional_update=False,
        columns=(NAME, Column("Created At", ".metadata.creationTimestamp", format="date-time")),
        prepare=prepare,
        check=check_crd,
        categories=("api-extensions",),
    )


def check_crd(obj: Object) -> list[Cause]:
    """Return what is wrong with a CRD, or what the devcluster does not do."""
    spec = as_map(obj.get("spec"))
    names = as_map(spec.get("names"))
    causes = [
        Cause("FieldValueRequired", "Required value", f"spec.{path}")
        for path, value in (
            ("group", spec.get("group")),
            ("names.plural", names.get("plural")),
            ("names.kind", names.get("kind")),
        )
        if not isinstance(value, str) or not value
    ]
    expected = f"{names.get('plural')}.{spec.get('group')}"
    if not causes and obj["metadata"]["name"] != expected:
        text = f"Invalid value: must be spec.names.plural+'.'+spec.group: {expected}"
        causes.append(Cause("FieldValueInvalid", text, "metadata.name"))
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        causes.append(Cause("FieldValueNotSupported", "Unsupported value: Cluster or Namespaced", "spec.scope"))
    if at(spec, "conversion", "strategy") not in (None, "None"):
        text = "Forbidden: the devcluster has no conversion webhooks"
        causes.append(Cause("FieldValueForbidden", text, "spec.conversion.strategy"))
    return causes + _check_versions(as_maps(spec.get("versions")))


def _check_versions(versions: list[Mapping[str, Any]]) -> list[Cause]:
    if len([version for version in versions if as_bool(version.get("served"))]) != 1:
        text = "Forbidden: the devcluster serves exactly one version of a CRD"
        return [Cause("FieldValueForbidden", text, "spec.versions")]
    causes = []
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        document = at(version, "schema", "openAPIV3Schema")
        if not isinstance(document, Mapping):
            causes.append(Cause("FieldValueRequired", "Required value", f"{path}.schema.openAPIV3Schema"))
            continue
        try:
            compile_schema(document)
            for column in as_maps(version.get("additionalPrinterColumns")):
                compile_path(as_str(column.get("jsonPath")))
        except (UnknownKeyword, PathError) as error:
            causes.append(Cause("FieldValueForbidden", f"Forbidden: {error}", path))
        if at(version, "subresources", "scale") is not None:
            text = "Forbidden: the devcluster has no scale sub-resource"
            causes.append(Cause("FieldValueForbidden", text, f"{path}.subresources.scale"))
    return causes


class CrdInstaller:
    """Keeps the catalog in step with the stored CRDs."""

    def __init__(self, store: Store, catalog: Catalog, *, clock: Clock, rng: random.Random) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._rng = rng
        self.storages: dict[str, ObjectStorage] = {}
        shelf = store.shelf(CUSTOM_RESOURCE_DEFINITION.group_resource)
        for entry in shelf.ordered():
            self._install(entry.load())
        store.listen(self._changed)

    def _changed(self, resource: str, change: Change) -> None:
        if resource == CUSTOM_RESOURCE_DEFINITION.group_resource:
            self._follow(change.type, change.entry, change.previous)

    def _follow(self, kind: str, entry: Entry, previous: Entry | None) -> None:
        obj = entry.load()
        if kind == "DELETED":
            spec = obj["spec"]
            self.storages.pop(entry.name, None)
            for version in as_maps(spec.get("versions")):
                self._catalog.remove(spec["group"], as_str(version.get("name")), spec["names"]["plural"])
        elif previous is None or as_map(previous.load().get("spec")) != obj["spec"]:
            self._install(obj)

    def _install(self, obj: Object) -> None:
        spec, names = obj["spec"], obj["spec"]["names"]
        version = next(item for item in as_maps(spec["versions"]) if as_bool(item.get("served")))
        document = version["schema"]["openAPIV3Schema"]
        kind = Kind(spec["group"], version["name"], names["plural"], names["kind"], spec["scope"] == "Namespaced")
        has_status = at(version, "subresources", "status") is not None
        fields = tuple(as_str(f.get("jsonPath")).removeprefix(".") for f in as_maps(version.get("selectableFields")))
        row = KindSpec(kind, status=has_status, generation=True, fields=fields, unconditional_update=False)
        storage = ObjectStorage(self._store, row, clock=self._clock, rng=self._rng, schema=compile_schema(document))
        self.storages[obj["metadata"]["name"]] = storage
        status_entry = {"status": Subresource("status", kind.kind, ("get", "patch", "update"))}
        self._catalog.add(
            Resource(
                group=kind.group,
                version=kind.version,
                plural=kind.plural,
                kind=kind.kind,
                namespaced=kind.namespaced,
                storage=storage,
                singular=as_str(names.get("singular")),
                list_kind=as_str(names.get("listKind")),
                short_names=tuple(as_list(names.get("shortNames"))),
                categories=tuple(as_list(names.get("categories"))),
                subresources=status_entry if has_status else {},
                columns=_columns(as_maps(version.get("additionalPrinterColumns"))),
                fields=frozenset({"metadata.name", "metadata.namespace", *fields}),
                schema=document,
            )
        )


def _columns(declared: list[Mapping[str, Any]]) -> tuple[Column, ...]:
    if not declared:
        return (NAME, AGE)
    return (
        NAME,
        *(
            Column(
                as_str(column.get("name")),
                as_str(column.get("jsonPath")),
                type=as_str(column.get("type")) or "string",
                format=as_str(column.get("format")),
                description=as_str(column.get("description")),
                priority=as_int(column.get("priority")),
                declared=True,
            )
            for column in declared
        ),
    )
