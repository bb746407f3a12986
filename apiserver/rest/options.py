"""Options of lists, watches, writes and deletes, read and checked (spec 03 B7, B8).

For: `app`, which reads them from query and body; storages, which obey them.
In: the query of a `RequestInfo` and, for deletes, the DeleteOptions of the body. Out: frozen options, or a Refusal.
Promises: every combination that kube-apiserver refuses is refused here, before a storage sees it; a streaming list is
never ignored in silence (case B004).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apiserver.rest import status
from apiserver.rest.request_info import RequestInfo, boolean, integer
from apiserver.rest.selectors import ALL_FIELDS, ALL_LABELS, FieldSelector, LabelSelector, parse_fields, parse_labels
from nodefeature.fields import as_map, as_str

_LIST_KIND = "ListOptions"
_POLICIES = frozenset({"Background", "Foreground", "Orphan"})
_VALIDATIONS = frozenset({"", "Ignore", "Warn", "Strict"})


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What a list asks for. `resource_version` is None when absent; `limit` 0 means all."""

    labels: LabelSelector = ALL_LABELS
    fields: FieldSelector = ALL_FIELDS
    limit: int = 0
    continue_token: str = ""
    resource_version: int | None = None
    match: str = ""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What a watch asks for. `initial`: existing objects come first as ADDED; `mark_end`: then the end bookmark."""

    labels: LabelSelector = ALL_LABELS
    fields: FieldSelector = ALL_FIELDS
    resource_version: int | None = None
    bookmarks: bool = False
    initial: bool = False
    mark_end: bool = False
    timeout_s: int = 0


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of create, update and patch."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = ""
    force: bool = False


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of delete and deletecollection. `grace_period_s` is None when the kind's default counts."""

    dry_run: bool = False
    grace_period_s: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""


def read_version(query: Mapping[str, str]) -> int | None:
    """Read `resourceVersion`; absent and empty are None."""
    value = query.get("resourceVersion", "")
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        raise status.bad_request(f"resourceVersion {value!r} must be an unsigned integer")
    return int(value)


def list_options(info: RequestInfo) -> ListOptions:
    """Read and check the options of a list (or of the list part of a deletecollection)."""
    query = info.query
    if not query:
        return ListOptions()
    match, token, version = query.get("resourceVersionMatch", ""), query.get("continue", ""), read_version(query)
    if "sendInitialEvents" in query:
        raise status.forbidden_option(_LIST_KIND, "sendInitialEvents", "sendInitialEvents is forbidden for list")
    if match:
        _check_match(match, version=version, continuing=bool(token))
    elif token and version:
        raise status.bad_request("specifying resource version is not allowed when using continue")
    limit = integer(query, "limit") or 0
    if limit < 0:
        raise status.invalid_option(_LIST_KIND, "limit", limit, "must not be negative")
    return ListOptions(
        labels=parse_labels(query.get("labelSelector", "")),
        fields=_fields(info),
        limit=limit,
        continue_token=token,
        resource_version=version,
        match=match,
    )


def _check_match(match: str, *, version: int | None, continuing: bool) -> None:
    field = "resourceVersionMatch"
    if version is None:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise status.forbidden_option(_LIST_KIND, field, why)
    if continuing:
        raise status.forbidden_option(_LIST_KIND, field, "resourceVersionMatch is forbidden when continue is provided")
    if match not in ("Exact", "NotOlderThan"):
        raise status.invalid_option(_LIST_KIND, field, match, "supported values: Exact, NotOlderThan")
    if match == "Exact" and version == 0:
        why = 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
        raise status.forbidden_option(_LIST_KIND, field, why)


def watch_options(info: RequestInfo) -> WatchOptions:
    """Read and check the options of a watch."""
    query = info.query
    match, version = query.get("resourceVersionMatch", ""), read_version(query)
    asked = "sendInitialEvents" in query
    initial = boolean(query, "sendInitialEvents")
    field = "resourceVersionMatch"
    if asked and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise status.forbidden_option(_LIST_KIND, field, why)
    if match and not asked:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        raise status.forbidden_option(_LIST_KIND, field, why)
    if query.get("continue"):
        raise status.forbidden_option(_LIST_KIND, "continue", "continue is forbidden for watch")
    bookmarks = boolean(query, "allowWatchBookmarks")
    timeout_s = integer(query, "timeoutSeconds") or 0
    if timeout_s < 0:
        raise status.invalid_option(_LIST_KIND, "timeoutSeconds", timeout_s, "must not be negative")
    return WatchOptions(
        labels=parse_labels(query.get("labelSelector", "")),
        fields=_fields(info),
        resource_version=version,
        bookmarks=bookmarks,
        # Without sendInitialEvents a start at nothing or at 0 means "what there is, then changes".
        initial=initial if asked else not version,
        mark_end=initial and bookmarks,
        timeout_s=timeout_s,
    )


def _fields(info: RequestInfo) -> FieldSelector:
    """Return the field selector; a watch of one name becomes `metadata.name=<name>`."""
    text = info.query.get("fieldSelector", "")
    if not info.name:
        return parse_fields(text) if text else ALL_FIELDS
    selector = parse_fields(text)
    if selector.required("metadata.name") not in ("", info.name):
        raise status.bad_request("field selector metadata.name does not match the requested name")
    # The path's name first: a selector may end in the escape of a comma.
    return parse_fields(",".join(filter(None, (f"metadata.name={info.name}", text))))


def write_options(info: RequestInfo, *, default_manager: str) -> WriteOptions:
    """Read and check the options of create, update and patch."""
    query = info.query
    kind = {"create": "CreateOptions", "update": "UpdateOptions"}.get(info.verb, "PatchOptions")
    manager = query.get("fieldManager", "")
    if len(manager) > 128 or not manager.isprintable():
        why = "must be at most 128 printable characters"
        raise status.invalid_option(kind, "fieldManager", manager[:128], why)
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        why = "supported values: Ignore, Warn, Strict"
        raise status.invalid_option(kind, "fieldValidation", validation, why)
    return WriteOptions(
        dry_run=_dry_run(query.get("dryRun", ""), kind),
        field_manager=manager or default_manager,
        field_validation=validation,
        force=boolean(query, "force"),
    )


def _dry_run(value: str, kind: str) -> bool:
    if value not in ("", "All"):
        raise status.invalid_option(kind, "dryRun", value, "supported values: All")
    return value == "All"


def delete_options(info: RequestInfo, body: Any) -> DeleteOptions:
    """Read and check DeleteOptions: those of the body, else those of the query."""
    if body is not None and not isinstance(body, Mapping):
        raise status.bad_request("the body of a delete must be DeleteOptions")
    given: Mapping[str, Any] = as_map(body)
    if given.get("kind", "DeleteOptions") != "DeleteOptions":
        raise status.bad_request(f"the body of a delete must be DeleteOptions, not {given.get('kind')!r}")
    grace = given.get("gracePeriodSeconds", integer(info.query, "gracePeriodSeconds"))
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool) or grace < 0):
        raise status.invalid_option("DeleteOptions", "gracePeriodSeconds", grace, "must be a non-negative integer")
    dry = given.get("dryRun") or ([info.query["dryRun"]] if info.query.get("dryRun") else [])
    if not isinstance(dry, list) or any(value != "All" for value in dry):
        raise status.invalid_option("DeleteOptions", "dryRun", dry, "supported values: All")
    wanted = as_map(given.get("preconditions"))
    return DeleteOptions(
        dry_run=bool(dry),
        grace_period_s=grace,
        propagation=_propagation(info, given),
        uid=as_str(wanted.get("uid")),
        resource_version=as_str(wanted.get("resourceVersion")),
    )


def _propagation(info: RequestInfo, given: Mapping[str, Any]) -> str:
    policy = as_str(given.get("propagationPolicy")) or info.query.get("propagationPolicy", "")
    orphan = given.get("orphanDependents")
    if orphan is None and "orphanDependents" in info.query:
        orphan = boolean(info.query, "orphanDependents")
    if policy and orphan is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        raise status.invalid_option("DeleteOptions", "propagationPolicy", policy, why)
    if policy and policy not in _POLICIES:
        why = "supported values: Foreground, Background, Orphan"
        raise status.invalid_option("DeleteOptions", "propagationPolicy", policy, why)
    return policy or ("Orphan" if orphan is True else "")
