"""The naming hash: spec 01 §3.5."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodefeature.hashing import fnv64

HASHES = {
    "gpustack-nvidia-a10g-linux-amd64": "7bc37bef52624161",
    "gpustack-nvidia-geforce-rtx-4090-linux-amd64": "abc230dbab6e5300",
    "gpustack-generic-linux-amd64": "7aa0010633cb3725",
    "gpustack-generic-linux-arm64": "fa718fcaa467d489",
    "gpustack-nvidia-tesla-t4-linux-amd64": "199cb01104a7efc8",
    "gpustack-nvidia-h100-80gb-hbm3-linux-amd64": "b474ad6840bc194e",
    "gpustack-ascend-910b2-linux-arm64": "388f1aad38b4da05",
    "gpustack-ascend-910b-linux-arm64": "6f6c3bb35df85e85",
    "gpustack-amd-epyc-7763--nvidia-tesla-t4-linux-amd64": "ab727418c2e15e7c",
    "gpustack-intel-6-143-12c-48g--nvidia-rtx-6000-ada-generation-1d-8s": "8d83b6cca9a540bc",
    "gpustack-amd-25-1-1c-2g": "770a986e83f01991",
    "kubernetes.io/hostname": "87bf574bea2a4f23",
    "": "cbf29ce484222325",
}


@pytest.mark.parametrize(("text", "want"), HASHES.items())
def test_fnv64(text: str, want: str) -> None:
    assert fnv64(text) == want


@given(st.text())
def test_always_sixteen_digits(text: str) -> None:
    assert len(fnv64(text)) == 16
    assert set(fnv64(text)) <= set("0123456789abcdef")


def test_a_lone_surrogate_still_has_a_hash() -> None:
    assert len(fnv64("\ud800")) == 16
