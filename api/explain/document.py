"""An explanation as a document and as a table.

For: the sub-resource `instances/explain`, the command `explain`. In: an explanation; a document. Out: plain JSON types.
Promises: a figure that is not there has no key; a table's cells are texts made of the document alone, so that the API's
Table and the command line's show the same; any document gives cells, also one of a newer server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.explain.evidence import Numbers, Verdict, in_units
from api.explain.quota_figures import amount
from api.explain.verdicts import Explanation
from nodefeature.fields import as_bool, as_int, as_map, as_maps, as_str
from nodefeature.manufacturers import CREDITS_PREFIX

KIND_OF_INSTANCE = "InstanceExplanation"
KIND_OF_POD = "PodExplanation"
COLUMNS = (
    ("Gate", "The gates, in the order in which a Pod meets them"),
    ("State", "Passed, Waiting, Refused (somebody must change something) or Unknown (it could not be read)"),
    ("Asked", "What is asked for"),
    ("Free", "What of it is free in all"),
    ("Largest", "What of it is free in one place: a node, or a flavor of the queue"),
    ("Ahead", "Workloads that come first in the queue, of those that wait"),
    ("Reason", "Why, in one sentence"),
    ("Passes-When", "What would let it pass"),
)
_KEPT = ("name", "namespace", "uid", "generation", "resourceVersion", "creationTimestamp", "deletionTimestamp")


def document(explanation: Explanation, about: Mapping[str, Any], *, kind: str, api_version: str) -> dict[str, Any]:
    """Return the document; `about` is the Instance or Pod in question."""
    meta = as_map(about.get("metadata"))
    out: dict[str, Any] = {
        "kind": kind,
        "apiVersion": api_version,
        "metadata": {key: meta[key] for key in _KEPT if meta.get(key) is not None},
        "phase": explanation.phase,
        "summary": explanation.summary,
        "gates": [_gate(verdict) for verdict in explanation.gates],
    }
    if explanation.waiting_at is not None:
        out["waitingAt"] = str(explanation.waiting_at)
    return out


def _gate(verdict: Verdict) -> dict[str, Any]:
    out: dict[str, Any] = {"name": str(verdict.gate), "state": str(verdict.state), "reason": verdict.reason}
    if verdict.advice:
        out["passesWhen"] = verdict.advice
    numbers = _numbers(verdict.numbers)
    if numbers:
        out["numbers"] = numbers
    return out


def _numbers(numbers: Numbers) -> dict[str, Any]:
    named = {
        "unit": numbers.unit or None,
        "asked": numbers.asked,
        "free": numbers.free,
        "largest": numbers.largest,
        "largestAt": numbers.largest_at or None,
        "queueAhead": numbers.ahead,
        "queuePending": numbers.pending,
        "atLeast": numbers.at_least or None,
    }
    return {key: value for key, value in named.items() if value is not None}


def rows(explained: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a document's cells, one row a gate."""
    return [_row(gate) for gate in as_maps(explained.get("gates"))]


def _row(gate: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = as_map(gate.get("numbers"))
    return (
        as_str(gate.get("name")),
        as_str(gate.get("state")),
        _figure(numbers, "asked"),
        _figure(numbers, "free"),
        _largest(numbers),
        _ahead(numbers),
        as_str(gate.get("reason")),
        as_str(gate.get("passesWhen")),
    )


def table(explained: Mapping[str, Any], *, version: str, obj: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a document's Table; `obj` stands behind each row, None for none."""
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {},
        "columnDefinitions": [
            {"name": name, "type": "string", "format": "", "description": about, "priority": 0}
            for name, about in COLUMNS
        ],
        "rows": [
            {"cells": list(cells)} if obj is None else {"cells": list(cells), "object": obj}
            for cells in rows(explained)
        ],
    }


def _figure(numbers: Mapping[str, Any], name: str) -> str:
    if name not in numbers:
        return ""
    value, unit = as_int(numbers[name]), as_str(numbers.get("unit"))
    if unit == "credits":
        return amount(CREDITS_PREFIX, value * 1000)
    if unit == "millicores":
        return amount("cpu", value)
    return in_units(value, unit) if name == "asked" else str(value)


def _largest(numbers: Mapping[str, Any]) -> str:
    text, where = _figure(numbers, "largest"), as_str(numbers.get("largestAt"))
    return f"{text} at {where}" if text and where else text


def _ahead(numbers: Mapping[str, Any]) -> str:
    if "queueAhead" not in numbers:
        return ""
    more = "+" if as_bool(numbers.get("atLeast")) else ""
    return f"{as_int(numbers['queueAhead'])}{more} of {as_int(numbers.get('queuePending'))}"
