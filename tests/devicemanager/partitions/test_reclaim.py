"""Giving back what dead Pods held (spec 06 §10, §11, §16 rows 9 and 10)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from api.ledger.placements import Placement
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.kubelet.grant import PartitionRefused, PartitionRequest
from devicemanager.partitions.binder import NodePartitions
from devicemanager.partitions.keeper import Keeper
from devicemanager.partitions.reclaim import Reclaimer
from devicemanager.partitions.work_folders import WorkFolders
from tests.builders.injection import put
from tests.builders.virtual_clock import VirtualClock
from tests.devicemanager.partitions.test_keeper import CARD, PODS, Bench

NOBODY: frozenset[str] = frozenset()
FREE: frozenset[str] = frozenset()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def passes(
    reclaimer: Reclaimer, count: int, live: frozenset[str] = NOBODY, claimed: frozenset[str] | None = None
) -> None:
    """Run passes."""
    for _ in range(count):
        reclaimer.pass_over(live, claimed)


def test_three_passes_in_a_row(bench: Bench) -> None:
    bench.ensure()
    reclaimer = Reclaimer(bench.keeper)
    passes(reclaimer, 2)
    passes(reclaimer, 1, frozenset({"uid-1"}))
    passes(reclaimer, 2)
    assert (len(bench.live), bench.marked) == (1, 1)
    passes(reclaimer, 1)
    assert (bench.live, bench.marked) == ([], 0)


def test_the_living_keep_theirs(bench: Bench) -> None:
    bench.ensure(pod="alive")
    bench.ensure(pod="dead")
    passes(Reclaimer(bench.keeper), 5, frozenset({"alive"}))
    assert (bench.live, bench.marked) == ([(0, 1)], 1)


def test_a_number_used_again_drops_the_marker_alone(bench: Bench) -> None:
    bench.ensure()
    bench.cards.lose(CARD, 1)
    bench.cards.add_foreign(CARD, Placement(0, 1), 1)
    passes(Reclaimer(bench.keeper), 3)
    assert (bench.live, bench.marked) == ([(0, 1)], 0)


def test_in_use_is_tried_again_and_said_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.ensure()
    bench.cards.use(CARD, 1)
    reclaimer = Reclaimer(bench.keeper)
    with caplog.at_level(logging.ERROR):
        passes(reclaimer, 20)
    assert len(caplog.records) == 1
    assert bench.marked == 1
    bench.cards.use(CARD, 1, used=False)
    passes(reclaimer, 1)
    assert (bench.live, bench.marked) == ([], 0)


def test_a_card_that_cannot_be_read_keeps_its_marker(bench: Bench) -> None:
    bench.ensure()
    reclaimer = Reclaimer(bench.keeper)
    passes(reclaimer, 2)
    bench.cards.fail_next("read", DriverFault("lost"))
    passes(reclaimer, 1)
    assert bench.marked == 1
    passes(reclaimer, 1)
    assert bench.marked == 0


def test_an_unmarked_instance_goes_after_three_passes(bench: Bench) -> None:
    bench.cards.add_foreign(CARD, Placement(0, 1), 1)
    reclaimer = Reclaimer(bench.keeper)
    passes(reclaimer, 2, claimed=FREE)
    assert len(bench.live) == 1
    passes(reclaimer, 1, claimed=FREE)
    assert bench.live == []


@pytest.mark.parametrize("claimed", [None, frozenset({CARD})], ids=["claims-unknown", "card-claimed"])
def test_an_unmarked_instance_stays_where_somebody_may_hold_it(bench: Bench, claimed: frozenset[str] | None) -> None:
    bench.cards.add_foreign(CARD, Placement(0, 1), 1)
    passes(Reclaimer(bench.keeper), 5, claimed=claimed)
    assert len(bench.live) == 1


def test_an_unmarked_instance_in_use_stays(bench: Bench) -> None:
    bench.cards.use(CARD, bench.cards.add_foreign(CARD, Placement(0, 1), 1).gpu_instance)
    passes(Reclaimer(bench.keeper), 10, claimed=FREE)
    assert len(bench.live) == 1


def test_a_corrupt_marker_holds_its_card_until_its_pod_is_gone(bench: Bench) -> None:
    bench.cards.add_foreign(CARD, Placement(0, 1), 1)
    put(bench.root, f"{PODS}/uid-9/c-x/nvidia-mig-{CARD}.json", "{")
    reclaimer = Reclaimer(bench.keeper)
    passes(reclaimer, 5, frozenset({"uid-9"}), FREE)
    assert len(bench.live) == 1
    passes(reclaimer, 3, NOBODY, FREE)
    assert bench.markers.find().corrupt == ()
    passes(reclaimer, 3, NOBODY, FREE)
    assert bench.live == []


def test_row_10_working_folders(tmp_path: Path) -> None:
    put(tmp_path, "/pods/uid-1/c-main/run/vppu/ledger", "")
    folders = WorkFolders(tmp_path / "pods")
    alive = frozenset({"uid-1"})
    for live in (NOBODY, NOBODY, alive, NOBODY, NOBODY):
        folders.pass_over(live)
    assert (tmp_path / "pods/uid-1").exists()
    folders.pass_over(NOBODY)
    assert not (tmp_path / "pods/uid-1").exists()
    folders.pass_over(NOBODY)
    WorkFolders(tmp_path / "nowhere").pass_over(NOBODY)


@pytest.mark.parametrize("name", ["nvidia-mig-GPU-1.json", "metax-sgpu.json", "cambricon-smlu.json"])
def test_a_folder_with_a_marker_waits(tmp_path: Path, name: str) -> None:
    put(tmp_path, f"/pods/uid-1/c-main/{name}", "{}")
    folders = WorkFolders(tmp_path / "pods")
    for _ in range(5):
        folders.pass_over(NOBODY)
    assert (tmp_path / "pods/uid-1").exists()
    (tmp_path / "pods/uid-1/c-main" / name).unlink()
    folders.pass_over(NOBODY)
    assert not (tmp_path / "pods/uid-1").exists()


def test_a_link_among_the_folders_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "pods/uid-1").symlink_to(tmp_path / "elsewhere")
    folders = WorkFolders(tmp_path / "pods")
    for _ in range(5):
        folders.pass_over(NOBODY)
    assert (tmp_path / "elsewhere").exists()


def request(profile: str = "1g.10gb", pod: str = "uid-1", manufacturer: str = "nvidia") -> PartitionRequest:
    """Return the plugin's question."""
    return PartitionRequest(manufacturer, {}, {"id": CARD}, profile, Placement(3, 1), pod, "main")


def node(bench: Bench, clock: VirtualClock | None = None) -> NodePartitions:
    """Return the node's partitions over one keeper."""
    folders = WorkFolders(bench.root / PODS.lstrip("/"))
    return NodePartitions([bench.keeper], folders, clock or VirtualClock())


def test_the_plugins_questions(bench: Bench) -> None:
    async def scenario() -> None:
        partitions = node(bench)
        made = await partitions.bind(request())
        assert (made.placement, made.created, made.rebound) == (Placement(3, 1), True, False)
        again = await partitions.bind(request())
        assert (again.physical_id, again.created, again.rebound) == (made.physical_id, False, True)
        await partitions.unbind(request(), again)
        assert len(bench.live) == 1
        await partitions.unbind(request(), made)
        assert (bench.live, bench.marked) == ([], 0)
        await partitions.unbind(request(), made)
        with pytest.raises(PartitionRefused, match="amd: partitions of this manufacturer are not served"):
            await partitions.bind(request(manufacturer="amd"))

    asyncio.run(scenario())


def test_undoing_that_fails_is_left_to_reclaiming(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        partitions = node(bench)
        made = await partitions.bind(request())
        bench.cards.fail_next("destroy", DriverFault("busy"))
        await partitions.unbind(request(), made)
        assert (len(bench.live), bench.marked) == (1, 1)
        for _ in range(3):
            await partitions.live(NOBODY)
        assert (bench.live, bench.marked) == ([], 0)

    asyncio.run(scenario())
    assert "partition not undone" in caplog.text


def test_proving(bench: Bench) -> None:
    bound = bench.ensure()
    partitions = node(bench)
    assert partitions.proves("nvidia", CARD, bound.partition)
    bench.cards.lose(CARD, 1)
    assert not partitions.proves("nvidia", CARD, bound.partition)
    bench.cards.fail_next("read", DriverFault("lost"))
    assert not partitions.proves("nvidia", CARD, bound.partition)
    assert not partitions.proves("thead", CARD, bound.partition)


def test_row_9_nothing_before_the_first_broadcast(bench: Bench) -> None:
    bench.ensure()
    seen: list[frozenset[str]] = []
    clock = VirtualClock()
    folders = WorkFolders(bench.root / PODS.lstrip("/"))
    partitions = NodePartitions([bench.keeper], folders, clock, reclaimers=[seen.append])

    async def scenario() -> None:
        task = asyncio.ensure_future(partitions.run())
        await clock.advance(300)
        assert (seen, bench.marked) == ([], 1)
        await partitions.live(frozenset({"uid-1"}))
        assert seen == [frozenset({"uid-1"})]
        task.cancel()

    asyncio.run(scenario())


def test_what_nobody_foresaw_ends_one_pass_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.ensure()
    seen: list[frozenset[str]] = []

    def crash(*_: object) -> None:
        raise OverflowError("a library's number")

    folders = WorkFolders(bench.root / PODS.lstrip("/"))
    clock = VirtualClock()
    partitions = NodePartitions([bench.keeper], folders, clock, reclaimers=[crash, seen.append])
    monkeypatch.setattr(bench.keeper.markers, "find", crash)

    async def scenario() -> None:
        task = asyncio.ensure_future(partitions.run())
        await partitions.live(NOBODY)
        assert seen == [NOBODY]
        await clock.advance(60)
        async with asyncio.timeout(10):
            while len(seen) < 2:  # noqa: ASYNC110 - a thread fills it
                await asyncio.sleep(0.001)
        assert not task.done()
        monkeypatch.undo()
        for _ in range(3):
            await partitions.live(NOBODY)
        assert (bench.live, bench.marked) == ([], 0)
        task.cancel()

    asyncio.run(scenario())


def test_a_keeper_is_per_manufacturer(bench: Bench) -> None:
    other = Keeper("thead", bench.cards, bench.markers)
    assert other.lock(CARD) is not bench.keeper.lock(CARD)


def test_an_unmarked_instance_waits_until_it_is_known_who_claims_cards(bench: Bench) -> None:
    bench.cards.add_foreign(CARD, Placement(0, 1), 1)
    partitions = node(bench)

    async def scenario() -> None:
        for _ in range(4):
            await partitions.live(NOBODY)
        assert len(bench.live) == 1
        partitions.heed(lambda: FREE)
        for _ in range(3):
            await partitions.live(NOBODY)
        assert bench.live == []

    asyncio.run(scenario())
