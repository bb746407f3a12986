"""Tables and metadata-only forms of objects (spec 03 B5, spec 02 §13).

For: `app`, which converts lists, single objects and watch events.
In: documents, a resource's columns, the clock's time. Out: JSON bytes of Table and PartialObjectMetadata(List).
Promises: rows carry the metadata, the whole object or nothing, as `includeObject` says; a missing value is an empty
cell; ages are kubectl's own short form; nothing here blocks longer than one object takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from apiserver.rest import status
from apiserver.rest.paths import compile_path, evaluate
from apiserver.rest.storage import Cell, Column
from nodefeature.fields import as_map, as_str, at

NAME = Column("Name", ".metadata.name", format="name", description="Name must be unique within a namespace.")
AGE = Column("Age", ".metadata.creationTimestamp", type="date", description="Time since the object was created.")
DEFAULT_COLUMNS = (NAME, AGE)
INCLUDES = ("Metadata", "None", "Object")


def check_include(value: str) -> str:
    """Return `includeObject`, Metadata when unset; raises Refusal 400."""
    if value not in ("", *INCLUDES):
        raise status.bad_request(f"unrecognized includeObject value: {value!r}")
    return value or "Metadata"


def definitions(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Return `columnDefinitions`."""
    return [
        {
            "name": column.name,
            "type": "string" if column.type == "date" and not column.declared else column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in columns or DEFAULT_COLUMNS
    ]


def row(
    obj: Mapping[str, Any], columns: Sequence[Column], *, include: str, version: str, now: datetime
) -> dict[str, Any]:
    """Return one row."""
    cells = [_cell(column, obj, now) for column in columns or DEFAULT_COLUMNS]
    if include == "None":
        return {"cells": cells}
    return {"cells": cells, "object": obj if include == "Object" else partial(obj, version)}


def of_one(
    obj: Mapping[str, Any], row_of_it: Mapping[str, Any], columns: Sequence[Column], *, version: str
) -> dict[str, Any]:
    """Return the Table of a single object."""
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {"resourceVersion": as_str(at(obj, "metadata", "resourceVersion"))},
        "columnDefinitions": definitions(columns),
        "rows": [row_of_it],
    }


def partial(obj: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the metadata-only form of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": as_map(obj.get("metadata")),
    }


def _cell(column: Column, obj: Mapping[str, Any], now: datetime) -> Cell:
    if column.render is not None:
        return column.render(obj)
    values = evaluate(compile_path(column.path), obj)
    if not values:
        return None if column.type != "date" else "<unknown>"
    if column.type == "date":
        return age(as_str(values[0]), now)
    if column.type == "string":
        return ",".join(_text(value) for value in values) if len(values) > 1 else _text(values[0])
    value = values[0]
    return value if isinstance(value, (int, float, bool, str)) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ",".join(_text(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{key}:{_text(item)}" for key, item in value.items()) + "]"
    return str(value)


def age(timestamp: str, now: datetime) -> str:
    """Return the short age of a timestamp: two units below three of the larger one, one unit above."""
    try:
        then = datetime.fromisoformat(timestamp)
    except ValueError:
        return "<invalid>"
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return human_duration(int((now - then).total_seconds()))


def human_duration(seconds: int) -> str:
    """Return kubectl's rendering of a duration."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
