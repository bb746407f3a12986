"""node_devices: the rows of spec 04 §14.3."""

from __future__ import annotations

import asyncio

import pytest

from controllers.node_devices import control_labels, labels_patch, worker_owned
from kube.reconciler import Object
from nodefeature.kinds import DEVICES, NODE, NODE_FEATURE
from nodefeature.labels import ACCELERATABLE, ARCH, DEVICE_PREFIX, GENERAL_PREFIX, MANAGED, OS, TOPOLOGY_PROFILE
from nodefeature.topology import DEFAULT_PROFILE
from tests.builders.chain import bench
from tests.builders.fake_api import FakeApi
from tests.builders.inventory import devices, group, logical_cards
from tests.builders.node_features import worker_feature_of
from tests.builders.nodes import MERGED, cpu_node, gpu_node, node

CARDS = group("nvidia", "a10g", logical_cards(2))
AGENTS = {OS: "linux", ARCH: "amd64", DEVICE_PREFIX + "nvidia-a10g": "true", ACCELERATABLE: "true"}
GENERIC = {GENERAL_PREFIX + "generic": "true"}


def reconciled(shown: Object | None, labels: dict[str, str]) -> dict[str, str] | None:
    """Return the labels of Devices `n` once settled; None when it was deleted."""

    async def scenario() -> dict[str, str] | None:
        api = FakeApi()
        if shown is not None:
            api.add(NODE, shown)
        api.add(DEVICES, devices("n", CARDS, labels=labels, managed=False))
        chain = bench(api, ["node_devices"])
        await chain.settle()
        assert await chain.settle() == []
        assert await bench(api, ["node_devices"]).settle() == [], "a restart writes nothing"
        stored = api.get(DEVICES, "n")
        return None if stored is None else stored["metadata"]["labels"]

    return asyncio.run(scenario())


SETTLED = {**AGENTS, MANAGED: "true", TOPOLOGY_PROFILE: DEFAULT_PROFILE, **GENERIC}
ROWS: dict[str, tuple[Object, dict[str, str], dict[str, str]]] = {
    "managed copied": (gpu_node("n"), AGENTS, SETTLED),
    "managed removed": (
        gpu_node("n", labels={MANAGED: None}),
        SETTLED,
        {key: value for key, value in SETTLED.items() if key != MANAGED},
    ),
    "false mirrored": (gpu_node("n", labels={MANAGED: "false"}), SETTLED, {**SETTLED, MANAGED: "false"}),
    "stale generic key replaced": (
        cpu_node("n", "amd-epyc-7763"),
        {**SETTLED, GENERAL_PREFIX + "generic.count": "4"},
        {**{k: v for k, v in SETTLED.items() if k not in GENERIC}, GENERAL_PREFIX + "amd-epyc-7763": "true"},
    ),
    "profile replaced": (
        gpu_node("n", labels={TOPOLOGY_PROFILE: "fnv64-0123456789abcdef"}),
        SETTLED,
        {**SETTLED, TOPOLOGY_PROFILE: "fnv64-0123456789abcdef"},
    ),
    "profile removed": (
        gpu_node("n", labels={TOPOLOGY_PROFILE: None}),
        SETTLED,
        {key: value for key, value in SETTLED.items() if key != TOPOLOGY_PROFILE},
    ),
}


@pytest.mark.parametrize(("shown", "labels", "want"), ROWS.values(), ids=ROWS.keys())
def test_labels(shown: Object, labels: dict[str, str], want: dict[str, str]) -> None:
    assert reconciled(shown, labels) == want


def test_no_devices_is_no_error() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, gpu_node("n"))
        chain = bench(api, ["node_devices"])
        assert await chain.settle() == []
        assert chain.errors == []

    asyncio.run(scenario())


def test_devices_without_a_node_are_deleted() -> None:
    assert reconciled(None, AGENTS) is None


def test_devices_are_kept_while_the_api_server_knows_the_node() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, gpu_node("n"))
        api.add(DEVICES, devices("n", CARDS, labels=SETTLED))
        chain = bench(api, ["node_devices"])
        hidden = api.store[NODE].copy()
        api.store[NODE].clear()  # the cache lags behind
        api.faults.append(lambda request: api.store[NODE].update(hidden) if "/nodes/n" in request.path else None)
        await chain.settle()
        assert api.get(DEVICES, "n") is not None
        assert [write.verb for write in api.writes] == []

    asyncio.run(scenario())


def test_a_namesake_made_meanwhile_is_not_deleted() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(DEVICES, devices("n", CARDS))
        chain = bench(api, ["node_devices"])

        def replace(request: object) -> None:
            if getattr(request, "method", "") == "DELETE":
                api.store[DEVICES].clear()
                api.add(NODE, gpu_node("n"))
                api.add(DEVICES, devices("n", CARDS) | {"metadata": {"name": "n", "uid": "another"}})

        api.faults.append(replace)
        await chain.settle()
        assert api.get(DEVICES, "n") is not None

    asyncio.run(scenario())


def test_b003_effective_labels_count() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, node("n"))
        api.add(
            NODE_FEATURE,
            worker_feature_of("n", {**MERGED, GENERAL_PREFIX + "amd": "true", GENERAL_PREFIX + "amd-25-1": "true"}),
        )
        api.add(DEVICES, devices("n", CARDS, labels=AGENTS, managed=False))
        await bench(api, ["node_devices"]).settle()
        stored = api.get(DEVICES, "n")
        assert stored is not None
        assert stored["metadata"]["labels"] == {**AGENTS, **MERGED, GENERAL_PREFIX + "amd-25-1": "true"}

    asyncio.run(scenario())


def in_sync(left: dict[str, str], right: dict[str, str]) -> bool:
    return worker_owned(left) == worker_owned(right)


@pytest.mark.parametrize(
    ("change", "synced"),
    [
        ({DEVICE_PREFIX + "nvidia-t4": "true", OS: "windows"}, True),
        ({MANAGED: "false"}, False),
        ({TOPOLOGY_PROFILE: "fnv64-0123456789abcdef"}, False),
        ({GENERAL_PREFIX + "generic": "maybe"}, False),
        ({GENERAL_PREFIX + "amd-25-1": "true"}, False),
    ],
    ids=["accelerator keys ignored", "managed value", "profile", "general key", "stale extra general key"],
)
def test_in_sync_is_symmetric(change: dict[str, str], synced: bool) -> None:
    assert in_sync(SETTLED, {**SETTLED, **change}) is synced
    assert in_sync({**SETTLED, **change}, SETTLED) is synced


def test_control_labels() -> None:
    assert control_labels({MANAGED: "true", **AGENTS}, {}) == {MANAGED: "true", **GENERIC}
    assert control_labels(AGENTS, {}) == GENERIC


def test_a_patch_drops_every_sibling_of_a_stale_key() -> None:
    stale = {GENERAL_PREFIX + "amd": "true", GENERAL_PREFIX + "amd.count": "4"}
    assert labels_patch({**stale, **AGENTS}, GENERIC) == {**GENERIC, **dict.fromkeys(stale)}
