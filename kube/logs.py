"""Logging with the house's fields.

For: every process, once at its start (`set_up`); runtimes, which give a task its fields (`log_fields`).
In: constant messages with variable `extra` fields. Out: one line a record, JSON or text.
Promises:
- fields given by `log_fields` stand in every record of the task, `extra` wins over them;
- what looks like a bearer token is masked, wherever it stands;
- a value that cannot be written as JSON is written as text: logging never raises.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import orjson

_FIELDS: ContextVar[Mapping[str, object]] = ContextVar("log_fields", default={})  # noqa: B039 - never written to
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_TOKEN = re.compile(r"(?i)(bearer\s+)[\w.~+/=-]+|\beyJ[\w-]{8,}\.[\w.-]+")


@contextmanager
def log_fields(**fields: object) -> Iterator[None]:
    """Add fields to every record that this task writes inside the block."""
    token = _FIELDS.set({**_FIELDS.get(), **fields})
    try:
        yield
    finally:
        _FIELDS.reset(token)


def mask(text: str) -> str:
    """Hide what looks like a bearer token."""
    return _TOKEN.sub(lambda match: f"{match.group(1) or ''}***", text)


def record_fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the variable fields of a record."""
    own = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**_FIELDS.get(), **own}


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        line: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **record_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return mask(orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode())


class TextFormatter(logging.Formatter):
    """One readable line: time, level, message, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        fields = "".join(f" {name}={value}" for name, value in record_fields(record).items())
        line = f"{_moment(record)} {record.levelname:<7} {record.getMessage()}{fields}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return mask(line)


def set_up(*, style: Literal["json", "text"] = "text", level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send all records of this process to `stream` (standard error)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # These two log every request at INFO.
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
