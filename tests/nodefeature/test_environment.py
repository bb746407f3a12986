"""Environment variables: spec 01 §13."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodefeature import environment as declared


def test_every_declaration_is_whole_and_unique() -> None:
    variables = declared.declared_variables()
    assert len({variable.name for variable in variables}) == len(variables)
    assert all(variable.effect.endswith(".") and variable.processes for variable in variables)
    assert "GPUSTACK_THEAD_DEVICE_INJECTION_STRATEGY" in {variable.name for variable in variables}


@pytest.mark.parametrize(
    ("env", "want"),
    [({}, "/var/lib/gpustack"), ({"GPUSTACK_DATA_DIR": ""}, "/var/lib/gpustack"), ({"GPUSTACK_DATA_DIR": "/d"}, "/d")],
)
def test_an_empty_value_is_an_unset_one(env: dict[str, str], want: str) -> None:
    assert declared.DATA_DIR.read(env) == want


@pytest.mark.parametrize(
    ("value", "want"), [(None, False), ("true", True), ("True", False), ("1", False), ("false", False)]
)
def test_only_the_exact_word_turns_the_memory_suffix_on(value: str | None, want: bool) -> None:
    env = {} if value is None else {"GPUSTACK_DEVICES_GROUP_ID_WITH_MEMORY": value}
    assert declared.is_group_id_with_memory(env) is want


@pytest.mark.parametrize(("value", "want"), [(None, True), ("true", True), ("false", False), ("0", True), ("", True)])
def test_only_the_exact_word_turns_a_switch_off(value: str | None, want: bool) -> None:
    for switch in (declared.SLICED_ALLOCATE_GATE, declared.IDENTIFY_BY_KUBELET, declared.RELEASE_TERMINATED_PODS):
        assert declared.is_on(switch, {} if value is None else {switch.name: value}) is want


@pytest.mark.parametrize(
    ("value", "want", "bad"),
    [
        (None, ("02", "03", "0b", "12"), 0),
        ("03", ("03",), 0),
        (" 0B,12 ,12", ("0b", "12"), 0),
        ("0300,12", ("12",), 1),
        ("x", ("02", "03", "0b", "12"), 1),
        ("02,", ("02",), 1),
    ],
)
def test_pci_class_prefixes(value: str | None, want: tuple[str, ...], bad: int) -> None:
    env = {} if value is None else {"GPUSTACK_PCI_CLASS_PREFIXES": value}
    assert declared.pci_class_prefixes(env) == want
    assert len(declared.environment_problems(env)) == bad


def test_an_unreadable_switch_is_named() -> None:
    (problem,) = declared.environment_problems({"GPUSTACK_LEDGER_RELEASE_TERMINATED_PODS": "yes"})
    assert problem.startswith("GPUSTACK_LEDGER_RELEASE_TERMINATED_PODS='yes' must be true or false")


def test_the_reference_page_is_the_declarations() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "environment-variables.md"
    assert page.read_text("utf-8") == declared.environment_page()
