"""Names of queues and types: spec 01 §8, design §8.3."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodefeature.destinations import is_label_value, is_object_name
from nodefeature.keys import clean_key
from nodefeature.queue_names import catalogue_flavor_name, local_queue_name, queue_name

NAMES = [
    ("generic", "", "gpustack-generic"),
    ("generic", "nvidia-tesla-t4", "gpustack-generic--nvidia-tesla-t4"),
    ("amd-epyc-7763", "", "gpustack-amd-epyc-7763"),
    ("amd-epyc-7763", "nvidia-tesla-t4", "gpustack-amd-epyc-7763--nvidia-tesla-t4"),
    ("", "nvidia-a10g", "gpustack-nvidia-a10g"),
    ("", "", "gpustack-generic"),
]


@pytest.mark.parametrize(("general", "accelerator", "want"), NAMES)
def test_names(general: str, accelerator: str, want: str) -> None:
    assert catalogue_flavor_name(general_group=general, accelerator_group=accelerator) == want
    queue = queue_name(general_group=general, accelerator_group=accelerator, os="linux", arch="amd64")
    assert queue == f"{want}-linux-amd64"


@pytest.mark.parametrize(
    ("queue", "want"),
    [
        ("gpustack-generic-linux-amd64", "gpustack-fnv64-7aa0010633cb3725"),
        ("gpustack-nvidia-a10g-linux-amd64", "gpustack-fnv64-7bc37bef52624161"),
        ("gpustack-ascend-910b-linux-arm64", "gpustack-fnv64-6f6c3bb35df85e85"),
    ],
)
def test_local_queue_name(queue: str, want: str) -> None:
    assert local_queue_name(queue) == want


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_the_products_every_name_is_legal(cpu: str, card: str) -> None:
    queue = queue_name(general_group=clean_key(cpu), accelerator_group=clean_key(card), os="linux", arch="arm64")
    assert is_object_name(queue)
    assert re.fullmatch(r"gpustack-fnv64-[0-9a-f]{16}", local_queue_name(queue))
    assert len(local_queue_name(queue)) == 31
    assert is_label_value(local_queue_name(queue))
