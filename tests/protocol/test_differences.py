"""The table of differences: every row is asked for, and the page follows it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.protocol.differences import DIFFERENCES, PAGE, with_difference_table

ASKED = re.compile(r'answer_of\(\s*"([a-z-]+)"')


def asked_for() -> set[str]:
    return {name for file in Path(__file__).parent.glob("test_*.py") for name in ASKED.findall(file.read_text())}


def test_every_row_is_asked_for() -> None:
    assert asked_for() == set(DIFFERENCES)


def test_rows_differ_and_say_why() -> None:
    for row in DIFFERENCES.values():
        assert row.devcluster != row.kube_apiserver, row.id
        assert row.why.endswith("."), row.id


def test_the_page_is_fresh() -> None:
    page = PAGE.read_text()
    assert page == with_difference_table(page), "stale: run `make generate`"
