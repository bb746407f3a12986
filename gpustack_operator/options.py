"""How options are declared and read: one field, one flag, one environment variable.

For: `config.py`, which declares; `cli.py`, which reads.
In: dataclasses whose fields come from `option(...)`, a command line and an environment mapping.
Out: filled dataclasses, or `ConfigMistakes` naming every wrong value at once.
Promises: flag over environment over default; nothing starts before every value is checked; the text shown by `--help`
is the text at the declaration.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kube.errors import OperatorError

T = TypeVar("T")
Parse = Callable[[str], Any]
Check = Callable[[Any], str]

ENV_PREFIX = "GPUSTACK_OPERATOR_"
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII)
_META = "gpustack.option"


class ConfigMistakes(OperatorError):
    """Every mistake of one command line, one line each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = tuple(mistakes)


@dataclass(frozen=True, slots=True)
class Option:
    """What a declaration says about one field."""

    about: str
    parse: Parse
    check: Check | None
    env: str
    shown: str
    letter: str = ""


def parse_bool(text: str) -> bool:
    """Read a boolean the way Kubernetes' flags do."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("should be true or false")


def parse_int(text: str) -> int:
    """Read a whole number."""
    if not re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        raise ValueError("should be a whole number")
    return int(text)


def parse_duration(text: str) -> float:
    """Read `1h`, `5m`, `15s`, `500ms` or a combination, in that order; the answer is in seconds."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError("should be a duration such as 15s, 5m or 1h30m")
    hours, minutes, seconds, millis = (int(group or 0) for group in match.groups())
    return hours * 3600 + minutes * 60 + seconds + millis / 1000


def parse_list(text: str) -> tuple[str, ...]:
    """Read a comma-separated list; blanks around items and empty items are dropped."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def option(
    default: T,
    about: str,
    *,
    parse: Parse = str,
    check: Check | None = None,
    env: str = "",
    shown: str = "",
    letter: str = "",
) -> T:
    """Declare a field of an options dataclass.

    `parse` turns text into the value and raises ValueError with the rule; `check` answers the rule a value breaks, or
    the empty string; `env` replaces the derived variable name; `shown` is the default's text in `--help`; `letter` is a
    short name of the flag.
    """
    meta = Option(about=about, parse=parse, check=check, env=env, shown=shown or str(default), letter=letter)
    return field(default=default, metadata={_META: meta})


def flag_of(name: str) -> str:
    """Return the flag of a field: `monitor_period` -> `--monitor-period`."""
    return "--" + name.replace("_", "-")


def variable_of(name: str, meta: Option) -> str:
    """Return the environment variable of a field."""
    return meta.env or ENV_PREFIX + name.upper()


def title_of(group: type[Any]) -> str:
    """Return what the options of a dataclass are about: its docstring's first line."""
    return (group.__doc__ or "").strip().partition("\n")[0].rstrip(".")


def declared(group: type[Any]) -> list[tuple[str, Option]]:
    """Return the options of a dataclass, in order of declaration."""
    return [(f.name, f.metadata[_META]) for f in dataclasses.fields(group) if _META in f.metadata]


def add_flags(parser: argparse.ArgumentParser, groups: Sequence[type[Any]]) -> None:
    """Give `parser` a flag for every option of `groups`; values stay text until `load`."""
    for group in groups:
        section = parser.add_argument_group(title_of(group))
        for name, meta in declared(group):
            section.add_argument(
                *([f"-{meta.letter}"] if meta.letter else []),
                flag_of(name),
                dest=name,
                default=None,
                metavar=name.rsplit("_", 1)[-1].upper(),
                nargs="?" if meta.parse is parse_bool else None,
                const="true" if meta.parse is parse_bool else None,
                help=f"{meta.about} (default: {meta.shown or 'none'}; environment: {variable_of(name, meta)})".replace(
                    "%", "%%"
                ),
            )


def load(groups: Sequence[type[Any]], flags: Mapping[str, Any], environ: Mapping[str, str]) -> list[Any]:
    """Fill one instance of each group. Raises ConfigMistakes with every wrong value of every group.

    A group may have a method `mistakes() -> list[str]` for rules between its own fields.
    """
    mistakes: list[str] = []
    loaded = []
    for group in groups:
        values: dict[str, Any] = {}
        for name, meta in declared(group):
            text, source = _text_of(name, meta, flags, environ)
            if text is None:
                continue
            value, broken = _value_of(meta, text)
            if broken:
                mistakes.append(f"{flag_of(name)}: {broken} (got {text!r} from {source})")
            else:
                values[name] = value
        filled = group(**values)
        mistakes.extend(filled.mistakes() if hasattr(filled, "mistakes") else ())
        loaded.append(filled)
    if mistakes:
        raise ConfigMistakes(mistakes)
    return loaded


def unknown_variables(environ: Mapping[str, str], groups: Sequence[type[Any]]) -> list[str]:
    """Name the variables under our prefix that no option of any command reads: most likely misspelt."""
    known = {variable_of(name, meta) for group in groups for name, meta in declared(group)}
    return [
        f"environment {name}: no flag reads this variable"
        for name in sorted(environ)
        if name.startswith(ENV_PREFIX) and name not in known
    ]


def _text_of(name: str, meta: Option, flags: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[str | None, str]:
    if flags.get(name) is not None:
        return str(flags[name]), "the command line"
    variable = variable_of(name, meta)
    if environ.get(variable):
        return environ[variable], f"environment {variable}"
    return None, ""


def _value_of(meta: Option, text: str) -> tuple[Any, str]:
    try:
        value = meta.parse(text)
    except ValueError as error:
        return None, str(error)
    return value, meta.check(value) if meta.check else ""
