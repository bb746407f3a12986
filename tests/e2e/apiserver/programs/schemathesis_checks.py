"""Hooks of a schemathesis run: what every answer of a Kubernetes API must be.

For: `SCHEMATHESIS_HOOKS`. Promises: a failure is a Status whose code is that of the answer; a success is an object that
names its kind, or text where text is served; no request goes on for longer than a second.
"""

from __future__ import annotations

import json
from typing import Any

import schemathesis

_TEXT = ("/docs", "/log")


@schemathesis.check
def kubernetes_answer(ctx: Any, response: Any, case: Any) -> None:
    """Check one answer."""
    if response.status_code < 300 and case.path.endswith(_TEXT):
        return
    if response.status_code < 300 and "watch" in (case.query or {}) and _is_stream(response.content):
        return
    try:
        told = json.loads(response.content)
    except ValueError as error:
        raise AssertionError(f"{response.status_code}: no JSON: {response.content[:200]!r}") from error
    kind = told.get("kind") if isinstance(told, dict) else None
    if response.status_code >= 400:
        assert (kind, told.get("code")) == ("Status", response.status_code), told
        assert told.get("message"), told
    else:
        assert kind, told
        assert told.get("apiVersion"), told


def _is_stream(body: bytes) -> bool:
    """Say whether a body is what a watch brings: an event a line, or none when nothing happened."""
    try:
        events = [json.loads(line) for line in body.splitlines()]
    except ValueError:
        return False
    return all(isinstance(event, dict) and event.keys() == {"type", "object"} for event in events)


@schemathesis.hook
def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """Let no watch or log go on."""
    if query:
        query = {**query, "timeoutSeconds": "1"}
        for endless in ("follow",):
            query.pop(endless, None)
    return query
