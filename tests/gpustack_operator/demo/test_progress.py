"""Progress on a terminal and elsewhere."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from gpustack_operator.demo.fleet import DemoFleet
from gpustack_operator.demo.progress import Progress
from gpustack_operator.demo.world import KINDS, World
from nodefeature.kinds import DEVICES, INSTANCE_TYPE, NODE

FLEET = DemoFleet(Path(), Path(), {"n": {"accelerators": [{"uuid": "a"}]}}, "n")
EMPTY = World({kind: [] for kind in KINDS})
MANAGED: dict[str, Any] = {"metadata": {"name": "n", "labels": {"gpustack.ai/managed": "true"}}}
ONE = World(
    {
        **EMPTY.objects,
        NODE: [MANAGED, {"metadata": {"name": "other"}}],
        DEVICES: [{"spec": {"groups": [{"accelerators": [{}]}]}}],
        INSTANCE_TYPE: [{"status": {"phase": "Active"}}, {"status": None}],
    }
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(stream: io.StringIO, *worlds: World) -> str:
    moments = iter(range(0, 100, 2))
    progress = Progress(stream, lambda: float(next(moments)))
    for world in worlds:
        progress.show(world, FLEET)
    progress.end()
    return stream.getvalue()


def test_a_line_per_change_in_a_log() -> None:
    lines = told(io.StringIO(), EMPTY, EMPTY, ONE).splitlines()
    assert lines == [
        "[   2 s] nodes 0/1   cards 0/1   flavors 0   queues 0   types active 0/0",
        "[   6 s] nodes 1/1   cards 1/1   flavors 0   queues 0   types active 1/2",
    ]


def test_one_line_that_moves_on_a_terminal() -> None:
    text = told(Terminal(), EMPTY, EMPTY, ONE)
    assert text.count("\n") == 1
    assert text.endswith("types active 1/2\n")
    assert text.count("\r\x1b[K") == 3


def test_nothing_shown_ends_nothing() -> None:
    assert told(Terminal()) == ""
