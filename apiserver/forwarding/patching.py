"""The root `apiVersion` inside a JSON patch.

For: `view`. In: the body of a JSON patch. Out: the body under the stored version.
Promises: a patch that does not touch the root's version passes through unread; the operations that set or test it, or
replace the whole object, speak of the stored version; a body that is no JSON passes through, to be refused upstream.
"""

from __future__ import annotations

from typing import Any

import orjson

from apiserver.forwarding.splicing import Splice
from apiserver.rest import negotiation
from apiserver.rest.patch import MAX_OPERATIONS

_ROOT = ("", "/apiVersion")


def splice_json_patch(body: bytes, splice: Splice) -> bytes:
    """Return a JSON patch under the stored version; raises Refusal 400."""
    if b"apiVersion" not in body and b"\\u" not in body:
        return body
    try:
        operations = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    if not isinstance(operations, list) or len(operations) > MAX_OPERATIONS:
        return body
    touched = [o for o in operations if isinstance(o, dict) and o.get("path") in _ROOT and "value" in o]
    for operation in touched:
        operation["value"] = _spliced(operation["value"], operation["path"], splice)
    return negotiation.encode(operations) if touched else body


def _spliced(value: Any, path: str, splice: Splice) -> Any:
    if path and value == splice.wanted:
        return splice.stored
    if not path and isinstance(value, dict) and value.get("apiVersion") == splice.wanted:
        return {**value, "apiVersion": splice.stored}
    return value
