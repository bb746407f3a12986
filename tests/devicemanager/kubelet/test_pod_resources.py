"""A kubelet's listing is cut as the library reads it."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from devicemanager.kubelet.pod_resources import entries_of
from devicemanager.proto import podresources_pb2 as resources


def pod(name: str, *ids: str) -> resources.PodResources:
    made = resources.PodResources(name=name, namespace="default")
    made.containers.add(name="main").devices.add(resource_name="nvidia.com/gpu", device_ids=ids)
    return made


def listing(*pods: resources.PodResources) -> bytes:
    return resources.ListPodResourcesResponse(pod_resources=pods).SerializeToString()


UNKNOWN = b"\x10\x07"  # field 2, a number
LISTINGS: dict[str, bytes] = {
    "no Pod": b"",
    "one": listing(pod("a", "GPU-0")),
    "an empty entry": listing(resources.PodResources(), pod("a")),
    "two": listing(pod("a", "GPU-0"), pod("b")),
    "127 bytes": listing(pod("a" * 127)),
    "128 bytes and more": listing(pod("a", "x" * 128), pod("b", "x" * 200), pod("c")),
    "16 KiB less one": listing(pod("a", "x" * 16_330)),
    "over 16 KiB": listing(pod("a", *(f"GPU-{n:04d}" for n in range(4000))), pod("b")),
    "a field of a later kubelet before": UNKNOWN + listing(pod("a"), pod("b")),
    "and behind": listing(pod("a"), pod("b")) + UNKNOWN,
    "two listings in one": listing(pod("a")) + listing(pod("b")),
}


@pytest.mark.parametrize("raw", LISTINGS.values(), ids=LISTINGS.keys())
def test_entries(raw: bytes) -> None:
    want = list(resources.ListPodResourcesResponse.FromString(raw).pod_resources)
    assert [resources.PodResources.FromString(entry) for entry in entries_of(raw)] == want


BROKEN: dict[str, bytes] = {
    "a key alone": b"\x0a",
    "a length that goes on": b"\x0a\x80",
    "an entry cut short": listing(pod("a", "GPU-0"))[:-1],
    "a long one cut short": listing(pod("a", "x" * 300))[:-1],
    "nonsense": b"\xff\xff\xff nonsense",
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN.keys())
def test_what_is_no_listing_is_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        entries_of(raw)
