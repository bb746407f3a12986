"""What is wrong with an input: all of it at once, each with path, value and rule.

For: validators of kinds and settings, readers of ledgers and annotations, webhooks that answer `causes`.
In: facts. Out: `Problem` values in the order in which they were found.
Promises: a value is shown cut to 120 characters and never evaluated; a sensitive value is never put in.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_SHOWN = 120


class Fault(StrEnum):
    """How a field breaks its rule, in the words of Kubernetes' causes."""

    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    FORBIDDEN = "FieldValueForbidden"
    NOT_FOUND = "FieldValueNotFound"


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken rule: `path` as a user writes it (`spec.ports[0].port`), the value found, the rule it breaks."""

    path: str
    value: str
    rule: str
    fault: Fault = Fault.INVALID

    def __str__(self) -> str:
        return f"{self.path}: {self.value}: {self.rule}" if self.value else f"{self.path}: {self.rule}"


def problem(path: str, value: object, rule: str, fault: Fault = Fault.INVALID) -> Problem:
    """Return a problem with `value` shown in a bounded form; None means that there is nothing to show."""
    return Problem(path, shown(value), rule, fault)


def require(holds: bool, path: str, value: object, rule: str, fault: Fault = Fault.INVALID) -> list[Problem]:
    """Return no problem when the rule `holds`, else one."""
    return [] if holds else [problem(path, value, rule, fault)]


def shown(value: object) -> str:
    """Return a bounded text of any value; containers are named by type alone, so that nothing large is rendered."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = f'"{value[: _SHOWN + 1]}"'
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int):
        text = str(value) if value.bit_length() < 256 else "an integer of more than 256 bits"
    elif isinstance(value, dict):
        return "object"
    elif isinstance(value, list | tuple):
        return "list"
    else:
        text = str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
