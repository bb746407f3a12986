"""Unit-resource presets: the CPU and RAM that one whole accelerator of a model brings along (spec 01 §11).

For: derived InstanceTypes.
In: the text of `presets.yaml`. Out: a frozen table and its lookup.
Promises:
  - `load_presets` reports all mistakes of a text at once, each with its path; a table that loads is unambiguous:
    the order of entries and of stripped words never matters, only the order within `by`;
  - a lookup never fails: what no entry covers is the fallback tier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodefeature.preset_decoding import Decoded, PresetsInvalid, Refinement, Tier, decode_presets
from nodefeature.preset_rules import FALLBACK, preset_errors
from nodefeature.product_names import normalize_product, tokens_of

Tokens = tuple[str, ...]

__all__ = ["Entry", "Presets", "PresetsInvalid", "Refinement", "Tier", "load_presets"]


@dataclass(frozen=True, slots=True)
class Entry:
    """The tier of the products that begin with some words."""

    prefix: Tokens
    family: str
    tier: str
    by: tuple[Refinement, ...] = ()


@dataclass(frozen=True, slots=True)
class Presets:
    """A checked table."""

    tiers: Mapping[str, Tier]
    strip: tuple[Tokens, ...]
    entries: Mapping[str, tuple[Entry, ...]]

    def lookup(self, manufacturer: str, product: str) -> Tier:
        """Return the unit of a product as its driver names it, or as a `.product` label does."""
        words = self._words(manufacturer, product)
        for entry in self.entries.get(manufacturer, ()):
            if words[: len(entry.prefix)] == entry.prefix:
                refined = next((by.tier for by in entry.by if by.token in words), entry.tier)
                return self.tiers[refined]
        return self.tiers[FALLBACK]

    def _words(self, manufacturer: str, product: str) -> Tokens:
        words = tokens_of(normalize_product(product, maker=manufacturer))
        while words:
            stripped = next((strip for strip in self.strip if words[: len(strip)] == strip), None)
            if stripped is None:
                break
            words = words[len(stripped) :]
        return words


def load_presets(text: str) -> Presets:
    """Return the table written in `text`; raises `PresetsInvalid` with all its mistakes."""
    decoded = decode_presets(text)
    errors = preset_errors(decoded)
    if errors:
        raise PresetsInvalid(errors)
    return _table(decoded)


def _table(decoded: Decoded) -> Presets:
    return Presets(
        tiers={tier.name: tier for tier in decoded.tiers},
        strip=tuple(tokens_of(strip) for strip in decoded.strip),
        entries={
            manufacturer: tuple(Entry(tokens_of(entry.prefix), entry.family, entry.tier, entry.by) for entry in entries)
            for manufacturer, entries in decoded.entries.items()
        },
    )
