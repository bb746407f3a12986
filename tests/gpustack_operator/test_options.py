"""One field, one flag, one environment variable; all mistakes at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from gpustack_operator.options import (
    ConfigMistakes,
    declared,
    flag_of,
    load,
    option,
    parse_bool,
    parse_duration,
    parse_int,
    parse_list,
    title_of,
    unknown_variables,
    variable_of,
)


def even(value: int) -> str:
    return "" if value % 2 == 0 else "should be even"


@dataclass(frozen=True, kw_only=True, slots=True)
class Things:
    """Things.

    Only the first line is a title.
    """

    how_many: int = option(4, "number of things", parse=parse_int, check=even)
    named: str = option("", "name of the things", env="THING_NAME")
    ready: bool = option(False, "whether they are ready", parse=parse_bool)

    def mistakes(self) -> list[str]:
        return ["--ready: needs --named"] if self.ready and not self.named else []


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Times."""

    period: float = option(15.0, "between two looks", parse=parse_duration, shown="15s")


def loaded(flags: dict[str, Any] | None = None, /, **environ: str) -> Things:
    things: Things = load([Things], flags or {}, environ)[0]
    return things


def test_the_default() -> None:
    assert loaded() == Things()


def test_flag_over_environment_over_default() -> None:
    assert loaded(GPUSTACK_OPERATOR_HOW_MANY="6").how_many == 6
    assert loaded({"how_many": "8"}, GPUSTACK_OPERATOR_HOW_MANY="6").how_many == 8
    assert loaded({"how_many": None}, GPUSTACK_OPERATOR_HOW_MANY="6").how_many == 6
    assert loaded(THING_NAME="a").named == "a"


def test_an_empty_variable_counts_as_unset_and_an_empty_flag_does_not() -> None:
    assert loaded(GPUSTACK_OPERATOR_HOW_MANY="").how_many == 4
    assert loaded({"named": ""}, THING_NAME="a").named == ""


def test_every_mistake_at_once_with_value_and_source() -> None:
    with pytest.raises(ConfigMistakes) as wrong:
        load([Things, Times], {"how_many": "3", "period": "1d"}, {"GPUSTACK_OPERATOR_READY": "yes"})
    assert wrong.value.mistakes == (
        "--how-many: should be even (got '3' from the command line)",
        "--ready: should be true or false (got 'yes' from environment GPUSTACK_OPERATOR_READY)",
        "--period: should be a duration such as 15s, 5m or 1h30m (got '1d' from the command line)",
    )
    assert str(wrong.value).count("\n") == 2


def test_rules_between_fields() -> None:
    with pytest.raises(ConfigMistakes, match="--ready: needs --named"):
        loaded({"ready": "true"})
    assert loaded({"ready": "true", "named": "a"}).ready


def test_a_misspelt_variable_is_named() -> None:
    environ = {"GPUSTACK_OPERATOR_HOW_MAY": "1", "GPUSTACK_OPERATOR_READY": "true", "HOW_MANY": "1", "THING_NAM": "a"}
    assert unknown_variables(environ, [Things]) == [
        "environment GPUSTACK_OPERATOR_HOW_MAY: no flag reads this variable"
    ]


def test_names() -> None:
    assert flag_of("how_many") == "--how-many"
    assert [variable_of(name, meta) for name, meta in declared(Things)] == [
        "GPUSTACK_OPERATOR_HOW_MANY",
        "THING_NAME",
        "GPUSTACK_OPERATOR_READY",
    ]
    assert title_of(Things) == "Things"


DURATIONS = {"15s": 15, "5m": 300, "1h": 3600, "1h30m": 5400, "500ms": 0.5, "1m30s500ms": 90.5, "0s": 0}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items(), ids=DURATIONS)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "15", "s", "1d", "-1s", "1.5s", "1s1m", " 1s", "1 s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="should be a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_true(text: str) -> None:
    assert parse_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "false", "FALSE", "False"])
def test_false(text: str) -> None:
    assert parse_bool(text) is False


@pytest.mark.parametrize("text", ["", "yes", "on", "tRUE", " true"])
def test_neither(text: str) -> None:
    with pytest.raises(ValueError, match="true or false"):
        parse_bool(text)


@pytest.mark.parametrize("text", ["", "1e3", "1.0", "0x1", "+1", " 1", "1234567890123456789", "١"])
def test_no_whole_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        parse_int(text)


def test_whole_numbers() -> None:
    assert [parse_int(text) for text in ("0", "-1", "999999999999999999")] == [0, -1, 999999999999999999]


def test_lists() -> None:
    assert parse_list(" a, ,b,") == ("a", "b")
    assert parse_list("") == ()
