"""Machines come up once; what stands already is left alone."""

from __future__ import annotations

import asyncio

from hack.devcluster.standins.registrar import RegisteredMachine, register
from nodefeature.fields import labels_of
from nodefeature.kinds import NODE, NODE_FEATURE
from tests.builders.fake_api import FakeApi
from tests.builders.rows import recorded


def test_register() -> None:
    api, machine = FakeApi(), recorded("cpu-amd-7763")
    machines = [RegisteredMachine(f"n{number}", {"team": "a"}, machine) for number in range(3)]

    def count() -> int:
        return asyncio.run(register(api.client("kubelet"), machines, namespace="gpustack-system"))

    assert count() == 3
    assert api.names(NODE) == api.names(NODE_FEATURE) == ["n0", "n1", "n2"]
    assert labels_of(api.get(NODE, "n0") or {})["team"] == "a"
    api.writes.clear()
    assert count() == 3
    assert api.writes == []
