"""Keys: spec 01 §3.3, §4; design §8.1-8.2; cases B001 and B002."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodefeature import labels as names
from nodefeature.destinations import is_object_name, is_qualified_name
from nodefeature.keys import (
    MAX_KEY,
    KeyCollision,
    clean_key,
    cpu_annotation,
    cpu_detail,
    device_group_id,
    device_key,
    general_key,
    group_memory_suffix,
    key_collisions,
    manufacturer_of,
)
from nodefeature.manufacturers import MANUFACTURER_NAMES
from tests.builders.node_labels import cpu_annotations, cpu_labels
from tests.builders.rows import recorded

KEY = re.compile(r"[a-z0-9]+(?:[-.][a-z0-9]+)*")
LONG = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("hygon-k100_ai", "hygon-k100-ai"),
        ("ascend-910_9391", "ascend-910-9391"),
        ("ibm_s390-0DBBF8-8561", "ibm-s390-0dbbf8-8561"),
        ("a..b", "a.b"),
        ("a.-b-.c", "a.b-c"),
        ("-a-", "a"),
        ("a/b@c (R)", "a-b-c-r"),
        ("", "unknown"),
        ("___", "unknown"),
        ("昇腾", "unknown"),
        ("x" * 54, "x" * 54),
        ("x" * 44 + "-" + "y" * 20, "x" * 44 + "-52411323"),
    ],
)
def test_clean_key(text: str, want: str) -> None:
    assert clean_key(text) == want


@given(st.text(max_size=300))
def test_a_key_is_legal_and_cleans_to_itself(text: str) -> None:
    key = clean_key(text)
    assert KEY.fullmatch(key)
    assert len(key) <= MAX_KEY
    assert clean_key(key) == key


def test_a_long_key_keeps_45_characters_and_a_hash_of_the_whole() -> None:
    key = clean_key("a" * 60)
    assert key[:46] == "a" * 45 + "-"
    assert len(key) == MAX_KEY == 54
    assert key != clean_key("a" * 61)


@pytest.mark.parametrize(
    ("mib", "suffix"),
    [
        (0, "0g"),
        (1, "1g"),
        (1024, "1g"),
        (1025, "1g"),
        (15360, "15g"),
        (43693, "43g"),
        (44280, "43g"),
        (143771, "140g"),
    ],
)
def test_group_memory_suffix(mib: int, suffix: str) -> None:
    assert group_memory_suffix(mib) == suffix


@pytest.mark.parametrize(
    ("manufacturer", "product", "group"),
    [
        ("nvidia", "NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("nvidia", "NVIDIA  A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("hygon", "K100_AI", "k100-ai"),
        ("ascend", "Ascend910_9391", "910-9391"),
        ("nvidia", "", "unknown"),
        ("nvidia", "NVIDIA", "unknown"),
        ("amd", "AMD64 Accelerator", "64-accelerator"),
        ("nvidia", "NVIDIA GeForce RTX 4090 @ 24GB/s (R)", "geforce-rtx-4090-24gb-s-r"),
    ],
)
def test_device_group_id(manufacturer: str, product: str, group: str) -> None:
    assert device_group_id(manufacturer, product) == group
    assert device_key(manufacturer, product) == f"{manufacturer}-{group}"


@pytest.mark.parametrize("memory_mib", [None, 97887], ids=["B002 without memory", "B002 with memory"])
def test_case_b002_the_id_is_cut_at_the_source(memory_mib: int | None) -> None:
    key = device_key("nvidia", LONG, memory_mib=memory_mib)
    assert key.startswith("nvidia-rtx-pro-6000-blackwell-max-q-workstati-")
    assert len(key) == MAX_KEY
    assert device_group_id("nvidia", LONG, memory_mib=memory_mib) == key.removeprefix("nvidia-")
    for suffix in (".product", ".memory", ".cores", ".count", ".family", ".comcap", ".capacity"):
        assert is_qualified_name(names.DEVICE_PREFIX + key + suffix)
    assert clean_key(key) == key


def test_memory_tells_equal_names_apart() -> None:
    assert device_key("nvidia", "NVIDIA A100", memory_mib=40960) == "nvidia-a100-40g"
    assert device_key("nvidia", "NVIDIA A100", memory_mib=81559) == "nvidia-a100-80g"


# vendor, cpu-name, family, id: key (spec 01 §4.2; the last long one is cut as design §8.2 says)
GENERAL = [
    ("", None, "", "", "generic"),
    ("AMD", None, "25", "1", "amd-25-1"),
    ("Intel", None, "6", "143", "intel-6-143"),
    ("AMD", "AMD EPYC 7763 64-Core Processor", "25", "1", "amd-epyc-7763"),
    ("AMD", "@cpu.model.name", "25", "1", "amd-25-1"),
    ("Intel", "Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz", "", "", "intel-xeon-platinum-8358"),
    ("VendorUnknown", "Kunpeng 920", "", "", "generic-kunpeng-920"),
    ("AMD", None, "", "1", "amd"),
    ("AMD", None, "25", "", "amd"),
    ("AMD", "(TM)", "25", "1", "amd"),
    ("AMD", "epyc-9654-96-core-processor-" * 4, "", "", "amd-epyc-9654-96-core-processor-epyc-9654-96-02a13b49"),
    ("Hygon", "Hygon C86 7285 32-core Processor", "", "", "hygon-c86-7285"),
    ("IBM_S390", None, "0DBBF8", "8561", "ibm-s390-0dbbf8-8561"),
    ("日本", None, "1", "2", "unknown-1-2"),
]


@pytest.mark.parametrize(("vendor", "name", "family", "model", "want"), GENERAL)
def test_general_key(vendor: str, name: str | None, family: str, model: str, want: str) -> None:
    assert general_key(cpu_labels(vendor, family, model), cpu_annotations(name=name)) == want


@given(st.text(max_size=100), st.text(max_size=200), st.text(max_size=20), st.text(max_size=20))
def test_a_general_key_is_legal(vendor: str, name: str, family: str, model: str) -> None:
    key = general_key(cpu_labels(vendor, family, model), cpu_annotations(name=name))
    assert KEY.fullmatch(key)
    assert len(key) <= MAX_KEY
    assert is_qualified_name(names.GENERAL_PREFIX + key + ".capacity")


@pytest.mark.parametrize("entry", recorded("names")["names"], ids=lambda entry: entry["name"].strip())
def test_recorded_names_make_legal_keys(entry: dict[str, str]) -> None:
    if entry["kind"] == "cpu":
        key = general_key(cpu_labels(entry["owner"]), cpu_annotations(name=entry["name"]))
    else:
        key = device_key(entry["owner"], entry["name"])
        assert manufacturer_of(key) == entry["owner"]
    assert KEY.fullmatch(key)
    assert len(key) <= MAX_KEY
    assert is_object_name(f"gpustack-{key}-linux-amd64-8d")


def test_recorded_names_collide_only_where_the_hardware_is_the_same() -> None:
    devices = [entry for entry in recorded("names")["names"] if entry["kind"] == "accelerator"]
    found = key_collisions((device_key(entry["owner"], entry["name"]), entry["name"]) for entry in devices)
    assert [collision.products for collision in found] == []


def test_products_that_clean_to_one_key_are_reported() -> None:
    pairs = [(device_key("hygon", name), name) for name in ("K100_AI", "K100-AI", "K100 AI", "Z100L", "Z100L")]
    (collision,) = key_collisions(pairs)
    assert collision == KeyCollision("hygon-k100-ai", ("K100 AI", "K100-AI", "K100_AI"))
    assert "'K100_AI'" in str(collision)
    assert "hygon-k100-ai" in str(collision)


def test_cpu_annotation() -> None:
    annotations = cpu_annotations(name="@cpu.model.name", stepping="1")
    assert cpu_annotation(annotations, "name") == ""
    assert cpu_annotation(annotations, "stepping") == "1"
    assert cpu_annotation(annotations, "hz") == ""


def test_cpu_detail() -> None:
    annotations = {
        names.CPU_ANNOTATION_PREFIX + attribute: value
        for attribute, value in {
            "name": "AMD EPYC 7763 64-Core Processor",
            "family": "25",
            "physical-cores": "64",
            "threads-per-core": "2",
            "logical-cores": "128",
            "stepping": "1",
            "cache-line": "64",
            "hz": "2450000000",
            "boost-freq": "3500000000",
            "cache-l1i": "32768",
            "cache-l1d": "32768",
            "cache-l2": "524288",
            "cache-l3": "@cpu.cache.l3",
        }.items()
    }
    detail = cpu_detail(cpu_labels("AMD"), annotations)
    want = {
        "physicalCores": "64",
        "threadsPerPhysicalCore": "2",
        "logicalCores": "128",
        "stepping": "1",
        "clockSpeed": "2450000000",
        "maxClockSpeed": "3500000000",
        "cacheLine": "64",
        "cache": {"l1i": "32768", "l1d": "32768", "l2": "524288", "l3": ""},
    }
    assert detail.note(with_identity=False) == want
    identity = {"manufacturer": "amd", "product": "AMD EPYC 7763 64-Core Processor", "family": "25"}
    assert detail.note(with_identity=True) == identity | want


def test_manufacturers_are_keys() -> None:
    assert all(clean_key(name) == name for name in MANUFACTURER_NAMES)
