"""Which tests share a worker of a spread run, and with it a control plane.

For: `make e2e`, which runs two workers side by side. In: ids of tests. Out: the name of a test's part.
Promises: a part runs on one worker, in the order of its files; the parts that take longest begin first.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

PARTS = {
    "tests/protocol/": "protocol",
    "tests/e2e/chain/test_3_disturbed.py": "disturbed",
    "tests/e2e/chain/": "pools",
}
"""The first that an id begins with. The pools of a fleet end with the audit of what they cost."""
_REST = "rest"


def part_of(node_id: str) -> str:
    """Return the part that a test belongs to."""
    return next((part for start, part in PARTS.items() if node_id.startswith(start)), _REST)


class PartScheduling(LoadScopeScheduling):  # type: ignore[misc]  # the library has no types
    """Hands out whole parts; a worker that is done takes the next one."""

    def _split_scope(self, nodeid: str) -> str:
        return part_of(nodeid)
