"""Each setting of the chain takes effect by itself within five seconds, also one that makes flavors anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from api.settings import DECLARATIONS
from nodefeature.fields import as_maps, at
from nodefeature.kinds import ADMISSION_CHECK, CLUSTER_QUEUE, NODE_FEATURE, RESOURCE_FLAVOR
from nodefeature.labels import MANAGED, SYSTEM_NAMESPACE
from nodefeature.queue_names import NODE_DEVICES_CHECK
from tests.builders.machines import machine
from tests.builders.running_chain import RunningChain
from tests.builders.virtual_loop import run_virtually
from tests.component.walkthrough import A10G_POOL, CPU_POOL, FLEET, T4_POOL

LATER = {"instance-access-static-address", "instance-access-wildcard-dns"}
"""Settings of reconcilers that are no part of the chain."""
EXTRA = "example.com/maintenance"
POOLS = (CPU_POOL, A10G_POOL, T4_POOL)
AWARE_T4_POOL = "gpustack-intel-xeon-platinum-8259cl--nvidia-tesla-t4-linux-amd64"

WHEN = "2026-01-01T00:00:00Z"

Check = Callable[[RunningChain], bool]
Setup = Callable[[RunningChain], Awaitable[None]]


def tolerates(chain: RunningChain, key: str) -> list[bool]:
    return [
        any(toleration.get("key") == key for toleration in as_maps(at(flavor, "spec", "tolerations")))
        for flavor in chain.objects(RESOURCE_FLAVOR)
    ]


def admits(chain: RunningChain, *pools: str) -> bool:
    """Say whether Kueue may admit to these pools: open, with a plan, and seen so."""
    return all(
        at(chain.queue(pool), "spec", "stopPolicy") in (None, "None")
        and chain.quotas(pool)
        and chain.condition(CLUSTER_QUEUE, pool, "Active").get("status") == "True"
        and chain.row(pool)[3] == "Active"
        for pool in pools
    )


def says_managed(chain: RunningChain, node: str) -> bool:
    feature = chain.find(NODE_FEATURE, f"{node}-gpustack-worker", SYSTEM_NAMESPACE)
    return bool(at(feature, "spec", "labels", MANAGED) == "true")


def checks(chain: RunningChain, pool: str) -> list[str]:
    references = as_maps(at(chain.queue(pool), "spec", "admissionChecksStrategy", "admissionChecks"))
    return [str(reference["name"]) for reference in references]


async def under_load(chain: RunningChain) -> None:
    await chain.submit("one", CPU_POOL, {"cpu": "8"})


async def with_the_check_active(chain: RunningChain) -> None:
    active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": WHEN}
    await chain.edit(ADMISSION_CHECK, NODE_DEVICES_CHECK, {"status": {"conditions": [active]}}, status=True)


async def with_its_last_node_leaving_under_load(chain: RunningChain) -> None:
    await chain.set(instance_type_drain_when_no_flavors="false")
    await chain.submit("one", A10G_POOL, {"nvidia.com/gpu": "1"})
    await chain.settle()
    await chain.label("node-a10g", **{MANAGED: "false"})


async def with_a_node_that_joined_late(chain: RunningChain) -> None:
    await chain.set(node_management_manual="true")
    await chain.join(machine("late", cores=2))


async def as_it_is(_chain: RunningChain) -> None:
    return


ROWS: dict[str, tuple[Setup, list[tuple[str, Check]]]] = {
    "instance-general-resources-overcommit": (
        under_load,
        [
            ("false", lambda chain: chain.row(CPU_POOL)[2] == "48/64"),
            ("true", lambda chain: chain.row(CPU_POOL)[2] == "48/62"),
        ],
    ),
    "workload-tolerations": (
        as_it_is,
        [
            (EXTRA, lambda chain: tolerates(chain, EXTRA) == [True] * 7 and admits(chain, *POOLS)),
            ("", lambda chain: tolerates(chain, EXTRA) == [False] * 7 and admits(chain, *POOLS)),
        ],
    ),
    "node-management-manual": (
        with_a_node_that_joined_late,
        [("false", lambda chain: says_managed(chain, "late"))],
    ),
    "instance-type-mixed-on-node": (
        as_it_is,
        [
            ("false", lambda chain: chain.row(CPU_POOL)[2] == "16/16" and admits(chain, *POOLS)),
            ("true", lambda chain: chain.row(CPU_POOL)[2] == "48/72" and admits(chain, *POOLS)),
            ("false", lambda chain: chain.row(CPU_POOL)[2] == "16/16" and admits(chain, *POOLS)),
        ],
    ),
    "instance-type-derived-from-node": (
        with_the_check_active,
        [
            ("false", lambda chain: checks(chain, T4_POOL) == []),
            ("true", lambda chain: checks(chain, T4_POOL) == [NODE_DEVICES_CHECK]),
        ],
    ),
    "instance-type-drain-when-no-flavors": (
        with_its_last_node_leaving_under_load,
        [("true", lambda chain: at(chain.queue(A10G_POOL), "spec", "stopPolicy") == "HoldAndDrain")],
    ),
    "instance-type-aware-cpu-manufacturer": (
        as_it_is,
        [
            ("true", lambda chain: AWARE_T4_POOL in chain.types() and admits(chain, AWARE_T4_POOL)),
            ("false", lambda chain: not any("--" in name for name in chain.flavors()) and admits(chain, *POOLS)),
        ],
    ),
}


def test_every_setting_of_the_chain_has_a_row() -> None:
    assert set(ROWS) == {one.name for one in DECLARATIONS if one.wakes} - LATER


@pytest.mark.parametrize("name", ROWS)
def test_within_five_seconds(name: str) -> None:
    async def scenario() -> None:
        async with RunningChain().running(*FLEET) as chain:
            prepare, steps = ROWS[name]
            await chain.settle()
            await prepare(chain)
            for value, holds in steps:
                await chain.settle()
                assert not holds(chain)
                await chain.set(**{name.replace("-", "_"): value})
                await chain.run(5)
                assert holds(chain), f"{value}: {chain.last_changes(20)}"

    run_virtually(scenario())
