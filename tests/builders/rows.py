"""Reads the rows that tables of the specification were written down as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

_TESTS = Path(__file__).parents[1]
Row = dict[str, Any]


def rows(name: str) -> list[Row]:
    """Return the rows of `tests/rows/<name>.json`."""
    loaded: list[Row] = json.loads((_TESTS / "rows" / f"{name}.json").read_text("utf-8"))
    return loaded


def row_id(row: Row) -> str:
    """Return the name a row has in its table."""
    return str(row["row"]) or "empty"


def case_json(name: str) -> Any:
    """Return the decoded `tests/cases/<name>.json`."""
    return json.loads((_TESTS / "cases" / f"{name}.json").read_text("utf-8"))


def case_yaml(name: str) -> list[Any]:
    """Return the documents of `tests/cases/<name>.yaml`."""
    return list(yaml.safe_load_all((_TESTS / "cases" / f"{name}.yaml").read_text("utf-8")))


def recorded(name: str) -> Any:
    """Return the decoded `hack/recorded/<name>.yaml`."""
    return yaml.safe_load((_TESTS.parent / "hack" / "recorded" / f"{name}.yaml").read_text("utf-8"))
