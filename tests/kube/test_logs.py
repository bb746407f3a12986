"""The promises of kube.logs."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest

from kube.logs import log_fields, mask, set_up


@pytest.fixture(autouse=True)
def _root_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def written(style: Literal["json", "text"]) -> str:
    stream = io.StringIO()
    set_up(style=style, stream=stream)
    log = logging.getLogger("kube.test")
    with log_fields(controller="c", object="outer"):
        log.info("quota filled", extra={"object": "q1", "cards": 8, "odd": {1, 2}})
    log.info("outside")
    try:
        raise ValueError("Bearer abc.def")
    except ValueError:
        log.exception("broke")
    return stream.getvalue()


def test_json_lines_carry_the_fields_of_task_and_record() -> None:
    lines = [json.loads(line) for line in written("json").splitlines()]
    first = lines[0]
    assert (first["message"], first["controller"], first["object"], first["cards"]) == ("quota filled", "c", "q1", 8)
    assert first["time"].endswith("Z")
    assert "controller" not in lines[1]
    assert "ValueError" in lines[2]["exception"]


def test_text_lines_carry_them_too() -> None:
    first = written("text").splitlines()[0]
    assert "INFO    quota filled controller=c object=q1 cards=8" in first


@pytest.mark.parametrize("style", ["json", "text"])
def test_what_looks_like_a_token_is_masked(style: Literal["json", "text"]) -> None:
    assert "abc.def" not in written(style)
    assert mask("Authorization: Bearer x.y-z, next") == "Authorization: Bearer ***, next"
    assert mask("token eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJr.abc end") == "token *** end"
    assert mask("bearer of news") == "bearer *** news"
