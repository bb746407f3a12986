"""Creating, adopting, rebinding, undoing partitions on simulated cards (spec 06 §10, §16 rows 14-17)."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from api.ledger.placements import Placement
from devicemanager.detectors.recorded import RecordedDetector
from devicemanager.injection.driver_faults import DriverFault
from devicemanager.injection.host import HostFault
from devicemanager.injection.request import HostFile
from devicemanager.kubelet.grant import PartitionRefused
from devicemanager.partitions.keeper import Keeper
from devicemanager.partitions.markers import Markers
from devicemanager.partitions.port import Bound, Origin, PartitionClaim, ProfileOffer
from devicemanager.partitions.simulated import SimulatedCards, simulate
from hack.fleet import RECORDED
from tests.builders.injection import TreeHost, put

PODS = "/var/lib/gpustack/operator/pods"
CARD = "GPU-h100"


def places(*starts: int, length: int) -> tuple[Placement, ...]:
    """Return placements of one length."""
    return tuple(Placement(start, length) for start in starts)


H100 = (
    ProfileOffer("1g.10gb", 19, 1, places(0, 1, 2, 3, 4, 5, 6, length=1)),
    ProfileOffer("1g.20gb", 15, 1, places(0, 2, 4, 6, length=2)),
    ProfileOffer("2g.20gb", 14, 2, places(0, 2, 4, length=2)),
    ProfileOffer("3g.40gb", 9, 3, places(0, 4, length=4)),
    ProfileOffer("4g.40gb", 5, 4, places(0, length=4)),
    ProfileOffer("7g.80gb", 0, 7, places(0, length=8)),
)


class Bench:
    """One simulated H100 and its keeper."""

    def __init__(self, root: Path, host: type[TreeHost] = TreeHost) -> None:
        self.root = root
        self.cards = SimulatedCards({CARD: H100})
        self.markers = Markers(host(root), PODS, "nvidia")
        self.keeper = Keeper("nvidia", self.cards, self.markers)

    def ensure(self, profile: str = "1g.10gb", pod: str = "uid-1", preferred: Placement | None = None) -> Bound:
        return self.keeper.ensure(PartitionClaim(pod, "main", CARD, profile, preferred))

    def refused(self, profile: str = "1g.10gb", pod: str = "uid-1") -> str:
        with pytest.raises(PartitionRefused) as refused:
            self.ensure(profile, pod)
        return str(refused.value)

    @property
    def live(self) -> list[tuple[int, int]]:
        return [(one.placement.start, one.placement.length) for one in self.cards.read(CARD).instances]

    @property
    def marked(self) -> int:
        return len(self.markers.find().markers)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_created_at_the_lowest_start(bench: Bench) -> None:
    starts = [bench.ensure("1g.20gb", f"uid-{n}").partition.placement.start for n in range(4)]
    assert starts == [0, 2, 4, 6]


def test_marker_on_disk(bench: Bench) -> None:
    bound = bench.ensure("3g.40gb")
    place = bench.root / f"{PODS}/uid-1/c-main/nvidia-mig-{CARD}.json".lstrip("/")
    assert place.stat().st_mode & 0o777 == 0o644
    assert json.loads(place.read_text()) == {
        "podUID": "uid-1",
        "container": "main",
        "card": CARD,
        "profile": "3g.40gb",
        "giID": 1,
        "ciID": 0,
        "migUUID": bound.partition.uuid,
        "computeSlices": 3,
        "start": 0,
        "length": 4,
    }


def test_asked_again_it_is_the_same(bench: Bench) -> None:
    first = bench.ensure()
    again = bench.ensure()
    assert (first.origin, again.origin) == (Origin.CREATED, Origin.REBOUND)
    assert again.partition == first.partition


def test_the_ledgers_placement_wins_while_it_is_free(bench: Bench) -> None:
    assert bench.ensure("1g.20gb", preferred=Placement(4, 2)).partition.placement == Placement(4, 2)
    assert bench.ensure("1g.20gb", "uid-2", Placement(4, 2)).partition.placement == Placement(0, 2)
    assert bench.ensure("1g.20gb", "uid-3", Placement(3, 2)).partition.placement == Placement(2, 2)


def test_row_17_full(bench: Bench) -> None:
    bench.ensure("7g.80gb")
    with pytest.raises(PartitionRefused, match=r"card GPU-h100 has no free placement for profile 1g\.10gb") as refused:
        bench.ensure(pod="uid-2")
    assert refused.value.full


def test_row_14_another_instance_under_the_same_number(bench: Bench) -> None:
    bench.ensure()
    bench.cards.lose(CARD, 1)
    bench.cards.add_foreign(CARD, Placement(0, 1), 1)
    assert "not MIG-" in bench.refused()
    assert len(bench.live) == 1


def test_a_lost_instance_fails_closed(bench: Bench) -> None:
    bench.ensure()
    bench.cards.lose(CARD, 1)
    assert "its instance 1 of card GPU-h100 is gone; recreate the Pod" in bench.refused()
    assert bench.live == []


def test_another_profile_fails_closed(bench: Bench) -> None:
    bench.ensure()
    assert "holds a 1g.10gb" in bench.refused("2g.20gb")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"podUID":"uid-1","card":"GPU-h100","profile":"1g.10gb"}'])
def test_a_corrupt_own_marker_fails_closed(bench: Bench, text: str) -> None:
    put(bench.root, f"{PODS}/uid-1/c-main/nvidia-mig-{CARD}.json", text)
    assert f"nvidia-mig-{CARD}.json" in bench.refused()
    assert bench.live == []


def test_an_unowned_instance_of_the_size_is_adopted(bench: Bench) -> None:
    left = bench.cards.add_foreign(CARD, Placement(4, 1), 1)
    bound = bench.ensure()
    assert (bound.origin, bound.partition.uuid) == (Origin.BOUND, left.uuid)
    assert bench.ensure(pod="uid-2").origin is Origin.CREATED


def test_row_16_without_a_uuid_it_is_not_adopted(bench: Bench) -> None:
    bench.cards.add_foreign(CARD, Placement(0, 1), 1, named=False)
    bound = bench.ensure()
    assert (bound.origin, bound.partition.placement) == (Origin.CREATED, Placement(1, 1))


@pytest.mark.parametrize(("length", "slices"), [(2, 2), (2, 1)], ids=["other-compute", "other-length"])
def test_another_size_is_not_adopted(bench: Bench, length: int, slices: int) -> None:
    bench.cards.add_foreign(CARD, Placement(0, length), slices)
    assert bench.ensure().origin is Origin.CREATED


def test_several_compute_instances_are_not_adopted(bench: Bench) -> None:
    foreign = bench.cards.add_foreign(CARD, Placement(0, 1), 1)
    bench.cards.split(CARD, foreign.gpu_instance)
    assert bench.ensure().origin is Origin.CREATED


def test_nothing_is_adopted_beside_a_corrupt_marker_of_that_card(bench: Bench) -> None:
    bench.cards.add_foreign(CARD, Placement(4, 1), 1)
    put(bench.root, f"{PODS}/uid-9/c-x/nvidia-mig-{CARD}.json", "{")
    assert bench.ensure().origin is Origin.CREATED


def test_a_placement_lost_while_creating(bench: Bench) -> None:
    bench.cards.steal_before_create(CARD, Placement(0, 2), 1)
    assert bench.ensure("1g.20gb").partition.placement == Placement(2, 2)


def test_a_driver_that_refuses_leaves_nothing(bench: Bench) -> None:
    bench.cards.fail_next("create", DriverFault("unknown error"))
    assert "unknown error" in bench.refused()
    assert (bench.live, bench.marked) == ([], 0)


def test_a_driver_that_cannot_be_read(bench: Bench) -> None:
    bench.cards.fail_next("read", DriverFault("GPU is lost"))
    assert "GPU is lost" in bench.refused()


def test_an_unknown_profile_or_card(bench: Bench) -> None:
    assert "does not offer partition profile 9g.90gb" in bench.refused("9g.90gb")
    with pytest.raises(PartitionRefused, match="its partition mode is off"):
        bench.keeper.ensure(PartitionClaim("uid-1", "main", "GPU-x", "1g.10gb"))


def test_an_unwritable_marker_destroys_what_was_created(tmp_path: Path) -> None:
    class Full(TreeHost):
        def write(self, file: HostFile) -> None:
            raise HostFault(file.path, "written", OSError(28, "No space left on device"))

    bench = Bench(tmp_path, Full)
    assert "free space" in bench.refused()
    assert bench.live == []
    bench.cards.add_foreign(CARD, Placement(0, 1), 1)
    assert "free space" in bench.refused()
    assert len(bench.live) == 1


def test_undo(bench: Bench) -> None:
    bench.cards.add_foreign(CARD, Placement(6, 1), 1)
    adopted, created = bench.ensure(pod="uid-1"), bench.ensure(pod="uid-2")
    again = bench.ensure(pod="uid-2")
    bench.keeper.undo(again)
    assert (len(bench.live), bench.marked) == (2, 2)
    bench.keeper.undo(created)
    assert (bench.live, bench.marked) == ([(6, 1)], 1)
    bench.keeper.undo(adopted)
    bench.keeper.undo(adopted)
    assert (bench.live, bench.marked) == ([(6, 1)], 0)


def test_a_crash_between_creating_and_marking_is_adopted_next_time(bench: Bench) -> None:
    offer = bench.cards.read(CARD).offer("1g.10gb")
    assert offer is not None
    made = bench.cards.create(CARD, offer, Placement(0, 1))
    assert bench.ensure().partition.uuid == made.uuid
    assert len(bench.live) == 1


def test_many_at_once_never_overlap(bench: Bench) -> None:
    refusals: list[str] = []

    def want(pod: str) -> None:
        try:
            bench.ensure("1g.10gb", pod)
        except PartitionRefused as refused:
            refusals.append(str(refused))

    threads = [threading.Thread(target=want, args=(f"uid-{n}",)) for n in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(bench.live) == [(n, 1) for n in range(7)]
    assert (len(refusals), bench.marked) == (2, 7)


@pytest.mark.parametrize(
    ("machine", "manufacturer", "profile", "count"),
    [
        ("nvidia-hgx-a100-80gb-mig-mixed", "nvidia", "1g.10gb", 7),
        ("nvidia-rtx-pro-6000-mig", "nvidia", "1g.24gb", 4),
        ("hygon-bw-mig", "hygon", "2g.15gb", 4),
    ],
)
def test_recorded_cards_take_as_many_as_their_driver_says(
    tmp_path: Path, machine: str, manufacturer: str, profile: str, count: int
) -> None:
    cards = simulate(RecordedDetector.load(RECORDED / f"{machine}.yaml").cards)
    keeper = Keeper(manufacturer, cards, Markers(TreeHost(tmp_path), PODS, manufacturer))
    one = cards.cards()[0]
    for number in range(count):
        keeper.ensure(PartitionClaim(f"uid-{number}", "main", one, profile))
    with pytest.raises(PartitionRefused, match="no free placement"):
        keeper.ensure(PartitionClaim("uid-x", "main", one, profile))
