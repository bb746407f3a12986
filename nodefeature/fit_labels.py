"""Fit labels: how much of a device model is free on a node's best card.

For: `node_fit`, gate 3's pin (spec 01 §5.7, design §8.10).
In: figures per model. Out: labels `<population>.fit.gpustack.ai/<aKey>`.
Promises: 0 is written when all cards are full; a model without cards of a population has no label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodefeature.destinations import is_qualified_name
from nodefeature.labels import EXCLUSIVE_FIT_PREFIX, SHARED_FIT_PREFIX, SLICED_FIT_PREFIX

_PREFIXES = (SLICED_FIT_PREFIX, SHARED_FIT_PREFIX, EXCLUSIVE_FIT_PREFIX)


@dataclass(frozen=True, slots=True)
class Fit:
    """Free room of one device model on one node; None where it has no card of that population."""

    sliced_max_free_units: int | None = None
    shared_free_cards: int | None = None
    exclusive_free_cards: int | None = None


def fit_labels(fits: Mapping[str, Fit]) -> dict[str, str]:
    """Return the labels for figures by device key."""
    labels: dict[str, str] = {}
    for key, fit in fits.items():
        figures = (fit.sliced_max_free_units, fit.shared_free_cards, fit.exclusive_free_cards)
        for prefix, figure in zip(_PREFIXES, figures, strict=True):
            if figure is not None and is_fit_key(prefix + key):
                labels[prefix + key] = str(max(figure, 0))
    return labels


def is_fit_key(label: str) -> bool:
    """Say whether a label tells free room."""
    return label.startswith(_PREFIXES) and is_qualified_name(label)


def only_fit_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Return the fit labels alone."""
    return {label: value for label, value in (labels or {}).items() if is_fit_key(label)}


def equal_but_fit_labels(left: Mapping[str, str] | None, right: Mapping[str, str] | None) -> bool:
    """Say whether two label maps differ in fit labels at most."""
    return _without_fit(left) == _without_fit(right)


def _without_fit(labels: Mapping[str, str] | None) -> dict[str, str]:
    return {label: value for label, value in (labels or {}).items() if not is_fit_key(label)}
