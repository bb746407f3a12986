"""Setting: one key of the settings Secret, as a person sees and changes it.

For: the v1 resource (spec 02 §12.1). In: the declarations and the Secret's data. Out: statuses, and what is refused.
Promises: a sensitive value is never shown; a value equal to the stored one is no change; unknown keys are no settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict

from api.problems import Problem, problem
from api.setting_declarations import BY_NAME, Declaration
from api.setting_rules import SettingInvalid
from api.settings import Settings, decode, parse, refusal, watermark_problems

HIDDEN = "(sensitive)"


class SettingStatus(TypedDict):
    """What is shown of a setting."""

    description: str
    editable: bool
    sensitive: bool
    value: str


def setting_names(data: Mapping[str, Any]) -> list[str]:
    """Return the settings that the Secret holds, by name; keys that nobody declares are left out."""
    return sorted(name for name in data if name in BY_NAME)


def status_of(declaration: Declaration, data: Mapping[str, Any]) -> SettingStatus:
    """Return a setting's status; a value that is no text reads as unset."""
    try:
        value = decode(data[declaration.name]) if declaration.name in data else ""
    except SettingInvalid:
        value = ""
    return {
        "description": declaration.effect,
        "editable": declaration.editable,
        "sensitive": declaration.sensitive,
        "value": HIDDEN if declaration.sensitive and value else value,
    }


def write_problems(declaration: Declaration, value: str, data: Mapping[str, Any]) -> list[Problem]:
    """Return why a new value is refused, given the values that stand in the Secret."""
    rule = refusal(declaration, value)
    shown = None if declaration.sensitive else value
    if rule:
        return [problem("spec.value", shown, rule)]
    current = parse(data).settings
    crossed = watermark_problems(_with_value(current, declaration, value))
    own = [found for found in crossed if declaration.name in found.path]
    return [problem("spec.value", shown, found.rule) for found in own]


def _with_value(current: Settings, declaration: Declaration, value: str) -> Settings:
    changed: dict[str, Any] = {declaration.field: declaration.parse(value)}
    return replace(current, **changed)
