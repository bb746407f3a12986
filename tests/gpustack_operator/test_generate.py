"""Generated files are committed as they are generated."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.reference_files import CRDS
from gpustack_operator.cli import COMMANDS
from gpustack_operator.generate import FLAGS_PAGE, RBAC, rendered, write
from gpustack_operator.options import declared, flag_of, variable_of

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", rendered())
def test_committed_files_are_current(name: str) -> None:
    assert (CHECKOUT / name).read_text("utf-8") == rendered()[name], f"{name} is stale: run `make generate`"


def test_no_manifest_of_a_kind_or_process_that_is_gone() -> None:
    found = (path for folder in (CRDS, RBAC) for path in (CHECKOUT / folder).glob("*.yaml"))
    committed = {str(path.relative_to(CHECKOUT)) for path in found}
    assert committed <= rendered().keys()


def test_write_is_idempotent_and_removes(tmp_path: Path) -> None:
    gone = tmp_path / RBAC / "gone.yaml"
    gone.parent.mkdir(parents=True)
    gone.write_text("kind: Role\n")
    assert set(write(tmp_path)) == {gone, *(tmp_path / name for name in rendered())}
    assert not gone.exists()
    assert write(tmp_path) == []


def test_the_page_names_every_flag() -> None:
    page = rendered()[FLAGS_PAGE]
    for command in COMMANDS:
        for group in command.groups:
            for name, meta in declared(group):
                assert f"| `{flag_of(name)}` |" in page
                assert f"`{variable_of(name, meta)}`" in page
                assert "|" not in meta.about, "a bar would break the table"
