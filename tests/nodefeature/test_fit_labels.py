"""Fit labels: spec 01 §5.7, design §8.10."""

from __future__ import annotations

import pytest

from nodefeature.fit_labels import Fit, equal_but_fit_labels, fit_labels, is_fit_key, only_fit_labels

SLICED = "sliced-max-free-units.fit.gpustack.ai/"
SHARED = "shared-free-cards.fit.gpustack.ai/"
EXCLUSIVE = "exclusive-free-cards.fit.gpustack.ai/"


def test_a_label_a_population() -> None:
    fits = {
        "nvidia-t4": Fit(sliced_max_free_units=800000, shared_free_cards=2, exclusive_free_cards=1),
        "amd-mi300x": Fit(exclusive_free_cards=0),
        "ascend-910b2": Fit(),
    }
    assert fit_labels(fits) == {
        SLICED + "nvidia-t4": "800000",
        SHARED + "nvidia-t4": "2",
        EXCLUSIVE + "nvidia-t4": "1",
        EXCLUSIVE + "amd-mi300x": "0",
    }


@pytest.mark.parametrize(
    ("label", "want"),
    [
        (SLICED + "nvidia-t4", True),
        (SHARED + "a" * 63, True),
        (EXCLUSIVE + "nvidia-t4", True),
        (SLICED, False),
        ("fit.gpustack.ai/x", False),
        ("other.fit.gpustack.ai/x", False),
        ("sliced-max-free-units.fit.gpustack.ai.evil/x", False),
        (SLICED + "Bad Group", False),
        (SLICED + "a/b", False),
        (SLICED + "a" * 64, False),
        ("acceleratable.feature.gpustack.ai/nvidia-t4.count", False),
    ],
)
def test_is_fit_key(label: str, want: bool) -> None:
    assert is_fit_key(label) is want


def test_a_model_that_is_no_key_has_no_label() -> None:
    assert fit_labels({"Bad Group": Fit(1, 1, 1)}) == {}


def test_equal_but_fit_labels() -> None:
    assert equal_but_fit_labels({"a": "1", SLICED + "x": "1"}, {"a": "1", SHARED + "x": "2"})
    assert equal_but_fit_labels(None, {SLICED + "x": "1"})
    assert not equal_but_fit_labels({"a": "1"}, {"a": "2"})


def test_only_fit_labels() -> None:
    assert only_fit_labels({"a": "1", SLICED + "x": "1"}) == {SLICED + "x": "1"}
    assert only_fit_labels(None) == {}
