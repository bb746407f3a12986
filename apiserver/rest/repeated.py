"""Fields that a body gives twice (spec 03 B8): the decoders keep the last, and say nothing.

For: `app`, which warns of them or refuses. In: the bytes of a body, its media type. Out: names, each once.
Promises: a body is looked at once more at most, and never one that is too long or that no decoder takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from apiserver.rest.negotiation import JSON_TYPE, YAML_TYPES, BodyLoader

_MAX_BYTES = 256 * 1024
_MOST = 20


def repeated_fields(body: bytes, content_type: str) -> list[str]:
    """Return the names of fields that a body gives twice in one object.

    What is too long to be looked at once more, or nests beyond the slower parser's depth, is taken as it is.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if len(body) > _MAX_BYTES:
        return []
    if media_type in ("", "*/*", JSON_TYPE) or (media_type in YAML_TYPES and body.lstrip().startswith(b"{")):
        found = _in_json(body)
    elif media_type in YAML_TYPES:
        found = _in_yaml(body)
    else:
        found = []
    return list(dict.fromkeys(found))[:_MOST]


def _in_json(body: bytes) -> list[str]:
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in pairs:
            if key in out:
                found.append(key)
            out[key] = value
        return out

    try:
        json.loads(body, object_pairs_hook=look)
    except (ValueError, RecursionError):
        return []
    return found


def _in_yaml(body: bytes) -> list[str]:
    try:
        return list(_walked(body))
    except (yaml.YAMLError, ValueError):
        return []


def _walked(body: bytes) -> Iterator[str]:
    """Yield the keys that a mapping of the event stream has had before."""
    above: list[tuple[set[str] | None, bool]] = []
    seen: set[str] | None = None  # the keys of the mapping we are in; None in a sequence and at the root
    is_key = False
    for event in yaml.parse(body, Loader=BodyLoader):
        match event:
            case yaml.MappingStartEvent():
                above.append((seen, is_key))
                seen, is_key = set(), True
            case yaml.SequenceStartEvent():
                above.append((seen, is_key))
                seen, is_key = None, False
            case yaml.CollectionEndEvent():
                seen, was_key = above.pop()
                is_key = seen is not None and not was_key
            case yaml.ScalarEvent(value=value) if seen is not None:
                if is_key and value in seen:
                    yield value
                if is_key:
                    seen.add(value)
                is_key = not is_key
            case _:
                continue
