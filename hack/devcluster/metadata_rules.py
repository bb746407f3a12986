"""What every API server checks and fills in of an object's metadata.

For: `objects`. In: decoded objects, old and new. Out: field errors; metadata changed in place.
Promises: names, labels, annotations, finalizers and owner references are checked by Kubernetes' rules; identity and
lifecycle fields belong to the server, whatever the client sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from apiserver.rest.status import Cause
from nodefeature.fields import as_list, as_map, as_maps

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_ANNOTATION_BYTES = 256 * 1024
_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)


@lru_cache(maxsize=16384)
def name_error(name: str) -> str:
    """Return why a name is no DNS-1123 subdomain, or the empty string."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    if not _SUBDOMAIN.fullmatch(name):
        return "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
    return ""


@lru_cache(maxsize=16384)
def label_key_error(key: str) -> str:
    """Return why a key is no qualified name, or the empty string."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or name_error(prefix)):
        return "prefix part must be a DNS subdomain"
    if not 0 < len(name) <= 63 or not _LABEL_NAME.fullmatch(name):
        return "name part must consist of at most 63 alphanumeric characters, '-', '_' or '.'"
    return ""


@lru_cache(maxsize=16384)
def label_value_error(value: str) -> str:
    """Return why a text is no label value, or the empty string."""
    if value and (len(value) > 63 or not _LABEL_NAME.fullmatch(value)):
        return "a valid label must be at most 63 alphanumeric characters, '-', '_' or '.'"
    return ""


def _invalid(path: str, value: object, why: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {value!r}: {why}", path)


def check_metadata(meta: Mapping[str, Any], *, path_name: bool) -> list[Cause]:
    """Return every error of an object's metadata."""
    causes: list[Cause] = []
    name = meta.get("name")
    if not isinstance(name, str) or not name:
        causes.append(Cause("FieldValueRequired", "Required value: name or generateName is required", "metadata.name"))
    elif not path_name and (why := name_error(name)):
        causes.append(_invalid("metadata.name", name, why))
    elif path_name and (name in (".", "..") or "/" in name or "%" in name):
        causes.append(_invalid("metadata.name", name, "may not be '.', '..', or contain '/' or '%'"))
    causes += _check_pairs(meta)
    for index, finalizer in enumerate(as_list(meta.get("finalizers"))):
        if not isinstance(finalizer, str) or label_key_error(finalizer):
            causes.append(_invalid(f"metadata.finalizers[{index}]", finalizer, "must be a qualified name"))
    for index, owner in enumerate(as_maps(meta.get("ownerReferences"))):
        missing = [key for key in ("apiVersion", "kind", "name", "uid") if not owner.get(key)]
        causes += [
            Cause("FieldValueRequired", "Required value", f"metadata.ownerReferences[{index}].{key}") for key in missing
        ]
    return causes


def _check_pairs(meta: Mapping[str, Any]) -> list[Cause]:
    causes: list[Cause] = []
    for word in ("labels", "annotations"):
        pairs = meta.get(word)
        if pairs is not None and not isinstance(pairs, Mapping):
            causes.append(Cause("FieldValueTypeInvalid", "Invalid value: must be a map of strings", f"metadata.{word}"))
        for key, value in as_map(pairs).items():
            path = f"metadata.{word}"
            if why := label_key_error(key.lower() if word == "annotations" else key):
                causes.append(_invalid(path, key, why))
            if not isinstance(value, str):
                causes.append(_invalid(f"{path}[{key}]", value, "must be a string"))
            elif word == "labels" and (why := label_value_error(value)):
                causes.append(_invalid(path, value, why))
    size = sum(len(str(k)) + len(str(v)) for k, v in as_map(meta.get("annotations")).items())
    if size > _ANNOTATION_BYTES:
        text = f"Too long: may not be more than {_ANNOTATION_BYTES} bytes"
        causes.append(Cause("FieldValueTooLong", text, "metadata.annotations"))
    return causes


def keep_server_fields(meta: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Put the old values of the server's own fields into new metadata."""
    for key in (*_SERVER_OWNED, "name", "namespace", "generateName"):
        if key in old:
            meta[key] = old[key]
        else:
            meta.pop(key, None)


def wipe_server_fields(meta: dict[str, Any]) -> None:
    """Remove from new metadata what only the server sets."""
    for key in (*_SERVER_OWNED, "resourceVersion", "managedFields"):
        meta.pop(key, None)


def new_finalizers(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return finalizers that an update adds."""
    had = as_list(old.get("finalizers"))
    return [name for name in as_list(new.get("finalizers")) if name not in had]
