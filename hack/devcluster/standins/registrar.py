"""Registers the machines of a fleet: what each node's kubelet and NFD worker publish when they start.

For: the stand-ins' process. In: Nodes and NodeFeatures to be there. Out: created or restored objects.
Promises: an object that exists is left alone; a machine deleted by hand stays away until the process starts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hack.machines import nfd_feature_of, node_of
from kube.client import Client
from kube.errors import AlreadyExists
from nodefeature.kinds import NODE, NODE_FEATURE

_AT_A_TIME = 16


@dataclass(frozen=True, slots=True)
class RegisteredMachine:
    """One node to be: its name, the administrator's labels, and the machine behind it."""

    name: str
    labels: Mapping[str, str]
    machine: Mapping[str, Any]


async def register(client: Client, machines: Iterable[RegisteredMachine], *, namespace: str) -> int:
    """Create Node and NFD worker's NodeFeature of every machine; return how many machines there are."""
    slots = asyncio.Semaphore(_AT_A_TIME)
    count = 0

    async def one(machine: RegisteredMachine) -> None:
        async with slots:
            for kind, obj in (
                (NODE, node_of(machine.name, machine.machine, machine.labels)),
                (NODE_FEATURE, nfd_feature_of(machine.name, machine.machine, namespace)),
            ):
                try:
                    await client.create(kind, obj)
                except AlreadyExists:
                    continue

    async with asyncio.TaskGroup() as tasks:
        for machine in machines:
            count += 1
            tasks.create_task(one(machine))
    return count
