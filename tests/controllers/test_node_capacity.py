"""node_capacity: the rows of spec 04 §14.2, §13.2-13.4, and case B013."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from controllers.device_cards import capacity_cards, signature
from controllers.node_capacity import NodeCapacity, _device_keys, family_changed, holds
from kube.reconciler import Key, Object
from nodefeature.capacity import capacity_patch, is_owned, plan_capacity
from nodefeature.kinds import DEVICES, NODE, POD
from nodefeature.labels import MANAGED
from tests.builders.chain import bench, manufacturers
from tests.builders.fake_api import FakeApi
from tests.builders.inventory import (
    A100_40,
    devices,
    group,
    logical_card,
    logical_cards,
    partitioned_card,
    plain_card,
    row,
)
from tests.builders.node_labels import card_labels
from tests.builders.nodes import gpu_node
from tests.builders.rows import case_json

NVIDIA, MTHREADS, ASCEND = "nvidia.com/gpu", "mthreads.com/gpu", "huawei.com/npu"
SLICED = {f"{NVIDIA}.sliced": "1024"}
BOTH = {f"{NVIDIA}.sliced": "256", f"{NVIDIA}.partitioned": "7"}


def sliced(base: str, units: int, cores: int, memory: int, mib: int) -> dict[str, int]:
    return {
        f"{base}.sliced.units": units,
        f"{base}.sliced.cores-percentage": cores,
        f"{base}.sliced.memory-percentage": memory,
        f"{base}.sliced.memory-mib": mib,
    }


def model(key: str, memory: str = "", count: str = "8") -> dict[str, str]:
    return card_labels(key, count, **({"memory": memory} if memory else {}))


H100 = {"1g.10gb": 7, "3g.40gb": 2, "7g.80gb": 1}
ROWS: dict[str, tuple[Mapping[str, str], Object | None, Mapping[str, str], dict[str, int]]] = {
    "NVIDIA a10g 8 cards": (
        model("nvidia-a10g", "24Gi"),
        devices("n", group("nvidia", "a10g", logical_cards(8))),
        SLICED,
        sliced(NVIDIA, 12800000, 102400, 800, 196608),
    ),
    "MThreads s4000 8 cards": (
        model("mthreads-s4000", "48Gi"),
        devices("n", group("mthreads", "s4000", logical_cards(8, slices=16, overcommit=False))),
        {f"{MTHREADS}.sliced": "128"},
        sliced(MTHREADS, 12800000, 800, 800, 393216),
    ),
    "no bare pool": (model("nvidia-a10g", "24Gi"), devices("n", group("nvidia", "a10g", logical_cards(8))), {}, {}),
    "no Devices": (model("nvidia-a10g", "24Gi"), None, SLICED, {}),
    "a10g x4 + t4 x2": (
        {**model("nvidia-a10g", "24Gi"), **model("nvidia-t4", "16Gi")},
        devices("n", group("nvidia", "a10g", logical_cards(4)), group("nvidia", "t4", logical_cards(2))),
        SLICED,
        sliced(NVIDIA, 9600000, 76800, 600, 131072),
    ),
    "no .memory label": (
        model("nvidia-a10g"),
        devices("n", group("nvidia", "a10g", logical_cards(4))),
        SLICED,
        sliced(NVIDIA, 6400000, 51200, 400, 0),
    ),
    "two manufacturers, equal group ids": (
        {**model("nvidia-gpu", "24Gi"), **model("mthreads-gpu", "48Gi")},
        devices(
            "n",
            group("nvidia", "gpu", logical_cards(1)),
            group("mthreads", "gpu", logical_cards(1, slices=16, overcommit=False)),
        ),
        {**SLICED, f"{MTHREADS}.sliced": "16"},
        sliced(NVIDIA, 1600000, 12800, 100, 24576) | sliced(MTHREADS, 1600000, 100, 100, 49152),
    ),
    "Ascend 910b x4 + 310 x2": (
        {**model("ascend-910b", "64Gi"), **model("ascend-310", "24Gi")},
        devices(
            "n",
            group("ascend", "910b", logical_cards(4, slices=63)),
            group("ascend", "310", [plain_card(0), plain_card(1)]),
        ),
        {f"{ASCEND}.sliced": "252"},
        sliced(ASCEND, 6400000, 25200, 400, 262144),
    ),
    "legacy .sliced.partitions label": (
        {**model("nvidia-a10g", "24Gi"), "acceleratable.feature.gpustack.ai/nvidia-a10g.sliced.partitions": "4"},
        devices("n", group("nvidia", "a10g", logical_cards(1))),
        SLICED,
        sliced(NVIDIA, 1600000, 12800, 100, 24576),
    ),
    "2 logical + 1 MIG, both pools": (
        model("nvidia-a100", "24Gi"),
        devices("n", group("nvidia", "a100", [*logical_cards(2), partitioned_card(2, {})])),
        BOTH,
        sliced(NVIDIA, 3200000, 25600, 200, 49152) | {f"{NVIDIA}.partitioned.units": 1600000},
    ),
    "MIG card, only .sliced pool": (
        model("nvidia-a100", "40Gi"),
        devices("n", group("nvidia", "a100", [partitioned_card(0, A100_40)])),
        SLICED,
        {},
    ),
    "2 MIG cards, only .partitioned": (
        model("nvidia-a100", "40Gi"),
        devices("n", group("nvidia", "a100", [partitioned_card(0, {}), partitioned_card(1, {})])),
        {f"{NVIDIA}.partitioned": "14"},
        {f"{NVIDIA}.partitioned.units": 3200000},
    ),
    "2 MIG cards, no ledger": (
        model("nvidia-a100", "40Gi"),
        devices("n", group("nvidia", "a100", [partitioned_card(0, A100_40), partitioned_card(1, A100_40)])),
        {f"{NVIDIA}.partitioned": "14"},
        {
            f"{NVIDIA}.partitioned.units": 3200000,
            f"{NVIDIA}.partitioned.mig-1g.5gb": 14,
            f"{NVIDIA}.partitioned.mig-2g.10gb": 6,
            f"{NVIDIA}.partitioned.mig-3g.20gb": 4,
        },
    ),
    "1 MIG card with a ledger": (
        model("nvidia-h100", "80Gi"),
        devices(
            "n",
            group("nvidia", "h100", [partitioned_card(0, H100)]),
            ledger=[group("nvidia", "h100", [row(0, allocated={"3g.40gb": 1}, left={"1g.10gb": 4, "3g.40gb": 1})])],
        ),
        {f"{NVIDIA}.partitioned": "7"},
        {
            f"{NVIDIA}.partitioned.units": 1600000,
            f"{NVIDIA}.partitioned.mig-1g.10gb": 4,
            f"{NVIDIA}.partitioned.mig-3g.40gb": 2,
            f"{NVIDIA}.partitioned.mig-7g.80gb": 0,
        },
    ),
    ".memory 42Gi while exact memory is 43238 MiB": (
        model("nvidia-a10g", "42Gi"),
        devices("n", group("nvidia", "a10g", logical_cards(1), memory=43238)),
        SLICED,
        sliced(NVIDIA, 1600000, 12800, 100, 43008),
    ),
    "label count 8, Devices 4 cards": (
        model("nvidia-a10g", "24Gi", count="8"),
        devices("n", group("nvidia", "a10g", logical_cards(4))),
        SLICED,
        sliced(NVIDIA, 6400000, 51200, 400, 98304),
    ),
    "both group x, only one of them carved": (
        {**model("nvidia-x", "40Gi"), **model("thead-x", "40Gi")},
        devices(
            "n",
            group("nvidia", "x", [partitioned_card(0, {"1g.5gb": 7, "3g.20gb": 2})]),
            group("thead", "x", [partitioned_card(0, {"1g5gb": 7, "3g20gb": 2})]),
            ledger=[
                group("nvidia", "x", [row(0)]),
                group("thead", "x", [row(0, allocated={"3g20gb": 1}, left={"1g5gb": 4, "3g20gb": 1})]),
            ],
        ),
        {f"{NVIDIA}.partitioned": "7", "alibabacloud.com/ppu.partitioned": "7"},
        {
            f"{NVIDIA}.partitioned.units": 1600000,
            f"{NVIDIA}.partitioned.mig-1g.5gb": 7,
            f"{NVIDIA}.partitioned.mig-3g.20gb": 2,
            "alibabacloud.com/ppu.partitioned.units": 1600000,
            "alibabacloud.com/ppu.partitioned.mig-1g.5gb": 4,
            "alibabacloud.com/ppu.partitioned.mig-3g.20gb": 2,
        },
    ),
    "13.3 Ascend 910B": (
        model("ascend-910b", "64Gi"),
        devices("n", group("ascend", "910b", logical_cards(8, slices=63))),
        {f"{ASCEND}.sliced": "504"},
        sliced(ASCEND, 12800000, 50400, 800, 524288),
    ),
}


@pytest.mark.parametrize(("labels", "ledger", "capacity", "want"), ROWS.values(), ids=ROWS.keys())
def test_wanted_keys(
    labels: Mapping[str, str], ledger: Object | None, capacity: Mapping[str, str], want: Mapping[str, int]
) -> None:
    plan = plan_capacity(manufacturers(), labels=labels, capacity=capacity, cards=capacity_cards(ledger))
    assert plan.wanted == want
    assert plan.problems == ()


def a100_example() -> tuple[Object, Object]:
    """Return node and Devices of spec 04 §13.2: eight A100, the last one in MIG mode."""
    profiles = {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}
    cards = [*logical_cards(7), partitioned_card(7, profiles)]
    node = gpu_node(
        "n",
        "nvidia-a100-sxm4-80gb",
        8,
        details={"memory": "80Gi"},
        capacity={f"{NVIDIA}.sliced": "896", f"{NVIDIA}.partitioned": "7"},
    )
    return node, devices("n", group("nvidia", "a100-sxm4-80gb", cards))


def capacity_of(api: FakeApi, name: str = "n") -> dict[str, Any]:
    stored = api.get(NODE, name)
    assert stored is not None
    return {k: v for k, v in stored["status"]["capacity"].items() if is_owned(manufacturers(), k)}


def test_the_worked_example_of_8_a100_is_patched_once_and_then_left_alone() -> None:
    async def scenario() -> None:
        api = FakeApi()
        node, ledger = a100_example()
        api.add(NODE, node)
        api.add(DEVICES, ledger)
        runs = bench(api, ["node_capacity"])
        (write,) = await runs.settle()
        stored = api.get(NODE, "n")
        assert stored
        assert stored["metadata"]["uid"]
        assert write.body["metadata"] == {"uid": stored["metadata"]["uid"]}, "a namesake would be patched"
        assert capacity_of(api) == {
            f"{NVIDIA}.sliced.units": "11200k",
            f"{NVIDIA}.sliced.cores-percentage": "89600",
            f"{NVIDIA}.sliced.memory-percentage": "700",
            f"{NVIDIA}.sliced.memory-mib": "573440",
            f"{NVIDIA}.partitioned.units": "1600k",
            f"{NVIDIA}.partitioned.mig-1g.10gb": "7",
            f"{NVIDIA}.partitioned.mig-1g.20gb": "4",
            f"{NVIDIA}.partitioned.mig-2g.20gb": "3",
            f"{NVIDIA}.partitioned.mig-3g.40gb": "2",
            f"{NVIDIA}.partitioned.mig-4g.40gb": "1",
            f"{NVIDIA}.partitioned.mig-7g.80gb": "1",
        }
        assert await bench(api, ["node_capacity"]).settle() == [], "a restart writes nothing"

    asyncio.run(scenario())


@pytest.mark.parametrize("managed", [None, "false", "True"])
def test_an_unmanaged_node_gets_nothing(managed: str | None) -> None:
    async def scenario() -> None:
        api = FakeApi()
        node, ledger = a100_example()
        node["metadata"]["labels"].pop(MANAGED)
        if managed is not None:
            node["metadata"]["labels"][MANAGED] = managed
        api.add(NODE, node)
        api.add(DEVICES, ledger)
        assert await bench(api, ["node_capacity"]).settle() == []

    asyncio.run(scenario())


PATCHES: dict[str, tuple[dict[str, str], dict[str, int], dict[str, str | None]]] = {
    "6400000 onto a node lacking it": ({}, {f"{NVIDIA}.sliced.units": 6400000}, {f"{NVIDIA}.sliced.units": "6400k"}),
    "equal": ({f"{NVIDIA}.sliced.units": "6400000"}, {f"{NVIDIA}.sliced.units": 6400000}, {}),
    "from 3200000": (
        {f"{NVIDIA}.sliced.units": "3200k"},
        {f"{NVIDIA}.sliced.units": 6400000},
        {f"{NVIDIA}.sliced.units": "6400k"},
    ),
    "desired empty": (
        {
            f"{NVIDIA}.sliced.units": "3200k",
            f"{NVIDIA}.sliced.memory-mib": "1",
            f"{NVIDIA}.partitioned.mig-1g.10gb": "7",
        },
        {},
        {
            f"{NVIDIA}.sliced.units": None,
            f"{NVIDIA}.sliced.memory-mib": None,
            f"{NVIDIA}.partitioned.mig-1g.10gb": None,
        },
    ),
    "bare keys and retired names": (
        {NVIDIA: "2", f"{NVIDIA}.sliced": "256", f"{NVIDIA}.shared": "20", f"{NVIDIA}.sliced.mig-1g.10gb": "7"},
        {},
        {},
    ),
}


@pytest.mark.parametrize(("current", "wanted", "patch"), PATCHES.values(), ids=PATCHES.keys())
def test_patch(current: dict[str, str], wanted: dict[str, int], patch: dict[str, str | None]) -> None:
    from nodefeature.capacity import CapacityPlan

    assert capacity_patch(manufacturers(), capacity=current, plan=CapacityPlan(wanted)) == patch


@pytest.mark.parametrize(
    ("key", "owned"),
    [
        (f"{NVIDIA}.sliced.units", True),
        (f"{NVIDIA}.sliced.cores-percentage", True),
        (f"{NVIDIA}.sliced.memory-percentage", True),
        (f"{NVIDIA}.sliced.memory-mib", True),
        (f"{NVIDIA}.partitioned.units", True),
        (f"{NVIDIA}.partitioned.mig-1g.10gb", True),
        ("example.com/foo.partitioned.units", False),
        ("example.com/foo.sliced.units", False),
        ("example.com/foo.partitioned.mig-1g.10gb", False),
        (f"{NVIDIA}.partitioned.mig-", False),
        (f"{NVIDIA}.sliced", False),
        (f"{NVIDIA}.partitioned", False),
        (f"{NVIDIA}.shared", False),
        ("cpu", False),
        (f"{NVIDIA}.sliced.mig-1g.10gb", False),
    ],
)
def test_owned_keys(key: str, owned: bool) -> None:
    assert is_owned(manufacturers(), key) is owned


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ({}, {f"{NVIDIA}.sliced": "8"}, True),
        ({f"{NVIDIA}.sliced": "8"}, {}, True),
        ({f"{NVIDIA}.sliced": "8"}, {f"{NVIDIA}.sliced": "0"}, True),
        ({f"{NVIDIA}.partitioned": "7"}, {}, True),
        ({f"{NVIDIA}.sliced.units": "1600k"}, {f"{NVIDIA}.sliced.units": "3200k"}, True),
        ({f"{NVIDIA}.sliced.units": "1600k"}, {f"{NVIDIA}.sliced.units": "1600000"}, False),
        ({"cpu": "4"}, {"cpu": "8"}, False),
    ],
    ids=["pool added", "pool removed", "pool changed", "partitions removed", "own changed", "respelled", "only cpu"],
)
def test_family_change(old: dict[str, str], new: dict[str, str], changed: bool) -> None:
    assert family_changed({"status": {"capacity": old}}, {"status": {"capacity": new}}) is changed


BEFORE = group("nvidia", "a100", [logical_card(0), partitioned_card(1, A100_40)])
SIGNATURES: dict[str, tuple[Object, bool]] = {
    "identical": (devices("n", BEFORE), False),
    "health flip": (
        devices(
            "n",
            group(
                "nvidia",
                "a100",
                [
                    {**logical_card(0), "status": {**logical_card(0)["status"], "unhealthy": True}},
                    partitioned_card(1, A100_40),
                ],
            ),
        ),
        False,
    ),
    "mode and units": (
        devices("n", BEFORE, ledger=[group("nvidia", "a100", [row(0, mode=3, remaining=800000)])]),
        False,
    ),
    "card logical to MIG": (
        devices("n", group("nvidia", "a100", [partitioned_card(0, A100_40), partitioned_card(1, A100_40)])),
        True,
    ),
    "128 to 64 slices": (
        devices("n", group("nvidia", "a100", [logical_card(0, slices=64), partitioned_card(1, A100_40)])),
        True,
    ),
    "new group": (devices("n", BEFORE, group("nvidia", "t4", [logical_card(2)])), True),
    "other profile set": (devices("n", group("nvidia", "a100", [logical_card(0), partitioned_card(1, H100)])), True),
    "a carve that shrinks another profile": (
        devices("n", BEFORE, ledger=[group("nvidia", "a100", [row(1, allocated={"3g.20gb": 1}, left={"1g.5gb": 3})])]),
        True,
    ),
}


@pytest.mark.parametrize(("after", "moves"), SIGNATURES.values(), ids=SIGNATURES.keys())
def test_signature(after: Object, moves: bool) -> None:
    assert (signature(devices("n", BEFORE)) != signature(after)) is moves


def test_devices_ask_for_the_node_of_their_name() -> None:
    assert list(_device_keys(None, devices("node-5", BEFORE), None)) == [Key("node-5")]  # type: ignore[arg-type]  # the caches are not read
    assert list(_device_keys(None, devices("node-5", BEFORE, managed=False), None)) == []  # type: ignore[arg-type]  # the caches are not read


def test_keys_go_after_the_hold_when_the_pool_or_the_mark_is_gone() -> None:
    async def scenario() -> None:
        for change in (
            {"status": {"capacity": {f"{NVIDIA}.sliced": None}}},
            {"metadata": {"labels": {MANAGED: "false"}}},
        ):
            api = FakeApi()
            api.add(NODE, gpu_node("n", capacity=SLICED))
            api.add(DEVICES, devices("n", group("nvidia", "a10g", logical_cards(2))))
            runs = bench(api, ["node_capacity"])
            await runs.settle()
            assert len(capacity_of(api)) == 4
            api.edit(NODE, "n", change)
            assert await runs.settle() == [], "held"
            assert await runs.advance(59) == []
            assert len(await runs.advance(2)) == 1
            assert capacity_of(api) == {}
            stored = api.get(NODE, "n")
            assert stored is not None
            assert stored["status"]["capacity"]["cpu"] == "4"

    asyncio.run(scenario())


def test_keys_stay_while_a_pod_on_the_node_holds_them() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, gpu_node("n", capacity=SLICED))
        api.add(DEVICES, devices("n", group("nvidia", "a10g", logical_cards(2))))
        runs = bench(api, ["node_capacity"])
        await runs.settle()
        api.add(POD, pod("p", "n"))
        api.edit(NODE, "n", {"status": {"capacity": {f"{NVIDIA}.sliced": None}}})
        await runs.settle()
        assert await runs.advance(300) == []
        assert len(capacity_of(api)) == 4, "all keys of the family, not only the held one"
        api.edit(POD, "p", {"status": {"phase": "Succeeded"}}, "default")
        assert len(await runs.advance(61)) == 1
        assert capacity_of(api) == {}

    asyncio.run(scenario())


def pod(name: str, node: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"limits": {f"{NVIDIA}.sliced.units": "800000"}}}],
        },
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"spec": None},
        {"spec": {"containers": [{"resources": None}], "initContainers": None}},
        {"spec": {"containers": [1]}},
    ],
)
def test_a_broken_pod_holds_nothing(broken: Object) -> None:
    assert holds(broken, f"{NVIDIA}.sliced.units") is False


def test_b013_kubelet_restarts() -> None:
    """B013: at most one patch a row, all keys or none, bare pools untouched."""

    async def scenario() -> None:
        api = FakeApi()
        rows = case_json("B013-capacity-sequence")["rows"]
        first = gpu_node("gpu-a", "nvidia-a10g", 2)
        first["status"]["capacity"] = rows[0]["capacity"]
        api.add(NODE, first)
        api.add(DEVICES, devices("gpu-a", group("nvidia", "a10g", logical_cards(2))))
        api.add(POD, pod("running", "gpu-a"))
        runs = bench(api, ["node_capacity"])
        assert await runs.settle() == [], "3200k equals 3200000"
        for number, step in enumerate(rows[1:], 1):
            stored = api.get(NODE, "gpu-a")
            assert stored is not None
            api.add(NODE, {**stored, "status": {"capacity": step["capacity"]}})
            writes = await runs.settle()
            assert len(writes) <= 1, step["step"]
            for write in writes:
                touched = write.body["status"]["capacity"]
                assert not {NVIDIA, f"{NVIDIA}.sliced"} & touched.keys()
            await runs.advance(20)
            assert len(capacity_of(api, "gpu-a")) == (0 if number == 3 else 4), step["step"]
        assert await runs.advance(300) == [], "then silence"

    asyncio.run(scenario())


def test_a_profile_that_cannot_be_named_is_said_once_and_its_neighbours_stay(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, gpu_node("n", "nvidia-a100", capacity={f"{NVIDIA}.partitioned": "7"}))
        api.add(DEVICES, devices("n", group("nvidia", "a100", [partitioned_card(0, {"1g.5gb+me": 1, "1g.5gb": 7})])))
        runs = bench(api, ["node_capacity"])
        await runs.settle()
        assert f"{NVIDIA}.partitioned.mig-1g.5gb" in capacity_of(api)
        for _ in range(3):
            await runs.reconcilers[0].reconcile(Key("n"))

    asyncio.run(scenario())
    assert [r.__dict__["reason"].count("1g.5gb+me") for r in caplog.records if r.levelname == "WARNING"] == [1]


def test_the_class_declares_what_it_reads() -> None:
    assert {watch.kind for watch in NodeCapacity.WATCHES} >= {NODE, DEVICES}
