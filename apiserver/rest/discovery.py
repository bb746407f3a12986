"""Discovery documents, legacy and aggregated (spec 03 B3).

For: `app`. In: the catalog. Out: APIVersions, APIGroupList, APIGroup, APIResourceList, APIGroupDiscoveryList.
Promises: the same kinds in both forms (case B023); a `responseKind` on every resource and sub-resource; groups keep the
order of registration; an ETag that changes only when the catalog does; no group without a version.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from apiserver.rest import status
from apiserver.rest.negotiation import clauses, encode
from apiserver.rest.storage import Catalog, Resource, Subresource

AGGREGATED = "APIGroupDiscoveryList"
_AGGREGATED_GROUP = "apidiscovery.k8s.io"
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def version_order(version: str) -> tuple[int, int, int, str]:
    """Return a sort key that puts v2 before v1 before v1beta1 before v1alpha1, and strange names last."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (9, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (stage, -int(found[1]), -int(found[3] or 0), "")


class Discovery:
    """Discovery answers over a catalog, rebuilt when it changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._generation = -1
        self._answers: dict[str, tuple[bytes, str]] = {}

    def answer(self, path: str, accept: str) -> tuple[bytes, str, str] | None:
        """Return (body, content type, quoted ETag) of a discovery path, or None for another path."""
        if self._generation != self._catalog.generation:
            self._answers, self._generation = {}, self._catalog.generation
        version = _aggregated_version(accept) if path in ("/api", "/apis") else ""
        key = f"{path}#{version}"
        if key not in self._answers:
            document = self._document(path, version)
            if document is None:
                return None
            body = encode(document)
            self._answers[key] = (body, '"' + hashlib.sha512(body).hexdigest().upper() + '"')
        body, etag = self._answers[key]
        content_type = f"application/json;g={_AGGREGATED_GROUP};v={version};as={AGGREGATED}" if version else ""
        return body, content_type or "application/json", etag

    def _document(self, path: str, version: str) -> dict[str, Any] | None:
        parts = path.strip("/").split("/")
        if path == "/api":
            return self._aggregated([""], version) if version else _core_versions(self._versions(""))
        if path == "/apis":
            groups = self.groups()
            return self._aggregated(groups, version) if version else self._group_list(groups)
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in self.groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **self._group(parts[1])}
        if parts[0] == "api" and len(parts) == 2:
            return self._resource_list("", parts[1])
        if parts[0] == "apis" and len(parts) == 3:
            return self._resource_list(parts[1], parts[2])
        return None

    def groups(self) -> list[str]:
        """Return the names of the groups, the core group left out."""
        return [group for group in dict.fromkeys(resource.group for resource in self._catalog.all()) if group]

    def _versions(self, group: str) -> list[str]:
        found = {resource.version for resource in self._catalog.all() if resource.group == group}
        return sorted(found, key=version_order)

    def _group(self, group: str) -> dict[str, Any]:
        versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in self._versions(group)]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _group_list(self, groups: list[str]) -> dict[str, Any]:
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [self._group(group) for group in groups]}

    def _resources(self, group: str, version: str) -> list[Resource]:
        found = [r for r in self._catalog.all() if (r.group, r.version) == (group, version)]
        return sorted(found, key=lambda resource: resource.plural)

    def _resource_list(self, group: str, version: str) -> dict[str, Any] | None:
        resources = self._resources(group, version)
        if not resources:
            return None
        entries = [entry for resource in resources for entry in _legacy_entries(resource)]
        name = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": entries}

    def _aggregated(self, groups: Iterable[str], version: str) -> dict[str, Any]:
        items = [
            {
                "metadata": {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None},
                "versions": [
                    {
                        "version": served,
                        "resources": [_aggregated_entry(r) for r in self._resources(group, served)],
                        "freshness": "Current",
                    }
                    for served in self._versions(group)
                ],
            }
            for group in groups
        ]
        kind = {"kind": AGGREGATED, "apiVersion": f"{_AGGREGATED_GROUP}/{version}"}
        return {**kind, "metadata": {}, "items": [item for item in items if item["versions"]]}


def _aggregated_version(accept: str) -> str:
    """Return v2, v2beta1, or empty for the legacy form; raises Refusal 406."""
    if not accept.strip():
        return ""
    for clause in clauses(accept):
        if clause.media_type not in ("application/json", "application/*", "*/*"):
            continue
        if not clause.parameters.get("as"):
            return ""
        wanted = clause.parameters.get("v", "")
        same = clause.parameters.get("g") == _AGGREGATED_GROUP and clause.parameters["as"] == AGGREGATED
        if same and wanted in ("v2", "v2beta1"):
            return wanted
    raise status.not_acceptable(("application/json",))


def _core_versions(versions: list[str]) -> dict[str, Any]:
    return {"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": []}


def _legacy_entries(resource: Resource) -> Iterable[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular_name,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": sorted(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    yield entry
    for sub in sorted(resource.subresources.values(), key=lambda sub: sub.name):
        yield {
            "name": f"{resource.plural}/{sub.name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            **({"group": sub.group, "version": sub.version} if sub.version else {}),
            "kind": sub.kind,
            "verbs": sorted(sub.verbs),
        }


def _response_kind(resource: Resource, sub: Subresource | None = None) -> dict[str, str]:
    if sub is not None and sub.version:
        return {"group": sub.group, "version": sub.version, "kind": sub.kind}
    return {"group": resource.group, "version": resource.version, "kind": sub.kind if sub else resource.kind}


def _aggregated_entry(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular_name,
        "verbs": sorted(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    subresources = [
        {"subresource": sub.name, "responseKind": _response_kind(resource, sub), "verbs": sorted(sub.verbs)}
        for sub in sorted(resource.subresources.values(), key=lambda sub: sub.name)
    ]
    return {**entry, "subresources": subresources} if subresources else entry
