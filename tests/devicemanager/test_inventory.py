"""Bad cards, names, ids and profiles: left out or repaired, always named; neighbours stay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.models.devices import DevicesSpec
from devicemanager.answers import Bus, RawCard, RawProfile
from devicemanager.detection import Detection
from devicemanager.identity import card_id
from devicemanager.inventory import Inventory, take_inventory
from devicemanager.product import clean_product
from devicemanager.publisher.node_feature import device_labels
from nodefeature.manufacturers import MANUFACTURER_NAMES
from tests.builders.cards import ONE_SLICE, T4, cards
from tests.builders.rows import Row, case_json


def take(*listed: RawCard, maker: str = "nvidia", **options: Any) -> Inventory:
    return take_inventory(maker, listed, Bus(), **options)


@pytest.mark.parametrize(
    ("uuid", "want"),
    [
        ("GPU-7fb27c22-dbcd-cc28-6062-8440c2885339", "GPU-7fb27c22-dbcd-cc28-6062-8440c2885339"),
        ("GPU-2", "GPU-2"),
        ("GPU-gb10-0", "GPU-gb10-0"),
        ("07a816dc-10fa-8718-d06a-cf5bb50c03bb", "07a816dc-10fa-8718-d06a-cf5bb50c03bb"),
        ("F5AB5DAB 056B1E D2B68B14", "F5AB5DAB-056B1E-D2B68B14"),
        ("0x375A1D6115413E5B", "0x375A1D6115413E5B"),
        ("GPU-XX", ""),
        ("GPU-00000000-0000-0000-0000-000000000000", ""),
        ("0x0000000000000000", ""),
        ("0x747e", ""),
        ("ffffffff-ffff-ffff", ""),
        ("GPU-", ""),
        ("  ", ""),
        (None, ""),
        ("a:b:c", "a-b-c"),
        ("x" * 64, ""),
    ],
)
def test_what_identifies_a_card(uuid: str | None, want: str) -> None:
    assert card_id(uuid) == want


def test_a_card_without_identity_is_left_out_and_named() -> None:
    inventory = take(replace(T4, uuid="GPU-XX", bus_id="0000:0a:00.0"), replace(T4, index=1, uuid="GPU-1"))
    (group,) = inventory.groups
    assert [(card["id"], card["index"]) for card in group["accelerators"]] == [("GPU-1", 0)]
    assert inventory.findings == (
        "nvidia card 0 at 0000:0a:00.0: left out: its uuid 'GPU-XX' does not tell it from other cards",
    )


def test_two_cards_with_one_uuid_are_both_left_out() -> None:
    twins = [replace(T4, index=n, uuid="GPU-same", pci_address=f"0000:0{n}:00.0") for n in range(2)]
    inventory = take(*twins, replace(T4, index=2, uuid="GPU-other"))
    assert [card["id"] for card in inventory.groups[0]["accelerators"]] == ["GPU-other"]
    assert all("another card has the same uuid GPU-same" in finding for finding in inventory.findings)
    assert len(inventory.findings) == 2


def test_eight_entries_of_one_partitioned_card_are_one_card() -> None:
    entries = [replace(T4, index=n, uuid="0x375A1D6115413E5B", pci_address="0000:1b:00.0") for n in range(8)]
    inventory = take(*entries, maker="amd")
    assert len(inventory.groups[0]["accelerators"]) == 1
    assert len(inventory.findings) == 7


def test_a_virtual_device_is_skipped_without_a_word() -> None:
    assert take(replace(T4, virtual=True)) == Inventory((), ())


def test_a_card_without_a_name_is_unknown() -> None:
    (group,) = take(replace(T4, product="  ")).groups
    assert (group["id"], group["name"]) == ("unknown", "unknown")


@pytest.mark.parametrize(
    ("reported", "want"),
    [
        ("AMD Radeon™ RX 7600 XT           ", "AMD Radeon™ RX 7600 XT"),
        ("Tesla\udcff T4", "Tesla\ufffd T4"),
        ("Tesla T4\x00\x01", "Tesla T4"),
        ("\udcff", "unknown"),
        (None, "unknown"),
        ("x" * 300, "x" * 253),
    ],
)
def test_clean_product(reported: str | None, want: str) -> None:
    product = clean_product(reported)
    assert product.name == want
    product.name.encode()


def test_negative_memory_is_unknown_memory() -> None:
    inventory = take(replace(T4, memory_mib=-5))
    assert inventory.groups[0]["memory"] == 0
    assert inventory.findings == ("nvidia card 0: memory of -5 MiB is impossible; published as unknown (0)",)


def test_no_cores_are_left_out() -> None:
    assert "cores" not in take(replace(T4, cores=0)).groups[0]


def test_equal_name_and_unequal_memory_are_two_groups() -> None:
    inventory = take(*cards(1, memory_mib=8192), replace(T4, index=1, uuid="GPU-b", memory_mib=12288))
    assert [(g["id"], g["memory"]) for g in inventory.groups] == [("tesla-t4", 8192), ("tesla-t4-12g", 12288)]
    assert inventory.findings == (
        "nvidia 'Tesla T4' (12288 MiB) has the key tesla-t4 of 'Tesla T4' (8192 MiB): published as tesla-t4-12g",
    )


def test_which_group_keeps_its_key_does_not_depend_on_the_order_of_cards() -> None:
    small, large = replace(T4, index=1, uuid="GPU-s", memory_mib=8192), replace(T4, uuid="GPU-l", memory_mib=12288)
    assert {g["id"]: g["memory"] for g in take(small, large).groups} == {"tesla-t4": 8192, "tesla-t4-12g": 12288}


def test_two_names_with_one_key_are_told_apart_by_memory() -> None:
    one = replace(T4, manufacturer="hygon", product="K100_AI", memory_mib=65520)
    other = replace(one, index=1, uuid="GPU-o", product="K100-AI", memory_mib=32760)
    groups = take(one, other, maker="hygon").groups
    assert {g["id"]: g["name"] for g in groups} == {"k100-ai": "K100-AI", "k100-ai-64g": "K100_AI"}


def test_what_cannot_be_told_apart_is_left_out_and_named() -> None:
    one, other = replace(T4, product="T4 (R)", uuid="GPU-1"), replace(T4, index=1, product="T4 [R]", uuid="GPU-2")
    inventory = take(one, other, id_with_memory=True)
    assert [g["id"] for g in inventory.groups] == ["t4-r-15g"]
    assert inventory.findings[0].endswith("also with its memory: left out: GPU-2")


def test_memory_in_the_id_when_asked_for() -> None:
    assert take(T4, id_with_memory=True).groups[0]["id"] == "tesla-t4-15g"


def test_a_partitioned_card_without_profiles_must_not_look_free() -> None:
    inventory = take(replace(T4, partition_mode="enabled"))
    assert inventory.groups[0]["accelerators"][0]["status"] == {
        "unhealthy": True,
        "logicalSliced": {},
        "physicalSliced": {},
    }
    assert "no profile is usable" in inventory.findings[0]


PROFILES = [row for row in case_json("B037-partition-profiles")["rows"] if row["manufacturer"] in ("nvidia", "thead")]


@pytest.mark.parametrize("row", PROFILES, ids=lambda row: row["driver"] or "no name")
def test_b037_partition_profiles(row: Row) -> None:
    maker = row["manufacturer"]
    odd = replace(ONE_SLICE, name=row["driver"])
    sound = replace(ONE_SLICE, name="9g.99gb", count=3)
    card = replace(T4, manufacturer=maker, partition_mode="enabled", profiles=(odd, sound))
    inventory = take(card, replace(card, index=1, uuid="GPU-9"), maker=maker)
    offered = inventory.groups[0]["accelerators"][0]["status"]["physicalSliced"]["profiles"]
    names = [profile["name"] for profile in offered]
    assert offered[-1]["count"] == 3
    if row["key"] is None:
        assert names == ["9g.99gb"]
        assert len(inventory.notes) == 1
    else:
        assert names == [row["driver"].removeprefix("MIG "), "9g.99gb"]
        assert not inventory.notes


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"starts": ()}, "no legal placement"),
        ({"memory_slices": 0}, "no legal placement"),
        ({"count": 0}, "none can be made"),
        ({"memory_mib": None}, "could not be charged"),
    ],
)
def test_unusable_profiles_are_named(change: dict[str, Any], reason: str) -> None:
    profiles = (ONE_SLICE, replace(ONE_SLICE, **{"name": "2g.20gb", **change}))
    inventory = take(replace(T4, partition_mode="enabled", profiles=profiles))
    assert reason in inventory.notes[0]
    assert inventory.groups[0]["acceleratorSlicedDetail"]["physical"]["count"] == 7


def test_a_second_profile_of_one_name_is_left_out() -> None:
    inventory = take(replace(T4, partition_mode="enabled", profiles=(ONE_SLICE, replace(ONE_SLICE, count=1))))
    assert inventory.groups[0]["acceleratorSlicedDetail"]["physical"]["profiles"] == [
        {"name": "1g.10gb", "count": 7, "memoryMib": 9856}
    ]


def test_b036_unified_memory() -> None:
    case = case_json("B036-unified-memory")
    told, expect = case["card"], case["expect"]
    card = RawCard("nvidia", 0, product=told["name"], uuid=told["uuid"], bus_id=told["bus"], compute_capability="12.1")
    (group,) = take(card).groups
    assert (group["id"], group["memory"]) == (expect["groupId"], expect["memoryMib"])
    assert group["family"] == "Blackwell"


texts = st.none() | st.text(max_size=80)
numbers = st.none() | st.integers(-(2**40), 2**40)
raw_profiles = st.builds(
    RawProfile,
    name=st.text(max_size=20),
    count=st.integers(-3, 9),
    memory_mib=numbers,
    compute_slices=st.integers(-1, 9),
    memory_slices=st.integers(-1, 9),
    starts=st.lists(st.integers(-2, 9), max_size=3).map(tuple),
)
raw_cards = st.builds(
    RawCard,
    manufacturer=st.just("nvidia"),
    index=st.integers(-5, 100),
    product=texts,
    uuid=texts,
    memory_mib=numbers,
    cores=numbers,
    compute_capability=texts,
    soc=texts,
    driver_version=texts,
    runtime_version=texts,
    memory_bus_bits=numbers,
    ecc_enabled=st.none() | st.booleans() | st.text(max_size=5),
    ecc_uncorrected=numbers,
    health=st.sampled_from(["", "healthy", "unhealthy", "lost"]),
    bus_id=st.text(max_size=15),
    numa=numbers,
    physical_indexes=st.lists(st.integers(-2, 300), max_size=3).map(tuple),
    partition_mode=st.sampled_from([None, "enabled", "disabled", "unsupported", "what"]),
    profiles=st.lists(raw_profiles, max_size=3).map(tuple),
)


@settings(max_examples=30, deadline=None)
@given(maker=st.sampled_from(MANUFACTURER_NAMES), listed=st.lists(raw_cards, max_size=5), bus=st.just(Bus()))
def test_whatever_a_library_says_gives_a_legal_inventory(maker: str, listed: list[RawCard], bus: Bus) -> None:
    inventory = take_inventory(maker, listed, bus)
    ids = [group["id"] for group in inventory.groups]
    assert len(set(ids)) == len(ids)
    published = [card for group in inventory.groups for card in group["accelerators"]]
    assert sorted(card["index"] for card in published) == sorted({card["index"] for card in published})
    assert len({card["id"] for card in published}) == len(published)
    assert len(published) <= len(listed)
    DevicesSpec.model_validate({"groups": list(inventory.groups)})
    assert device_labels(Detection({maker: inventory.groups}))[1] == ()
