"""Product names as published: readable text, whatever bytes the library handed over."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

NAMELESS = "unknown"
_MAX = 253


@dataclass(frozen=True, slots=True)
class Product:
    """A name fit to publish and what was done to make it so."""

    name: str
    findings: tuple[str, ...] = ()


def clean_product(reported: str | None) -> Product:
    """Return the product's name without blanks around it, control characters and bytes that are no UTF-8.

    Undecodable bytes are expected as lone surrogates (`surrogateescape`); they become the replacement character. A card
    without a name stays usable under the name `unknown` (design §8.1).
    """
    text = reported or ""
    findings = []
    if any(unicodedata.category(char) in ("Cs", "Cc") for char in text):
        findings.append("its product name holds bytes that are no text; they were replaced")
        text = "".join("\ufffd" if unicodedata.category(char) in ("Cs", "Cc") else char for char in text)
    text = text.strip(" \ufffd\t")[:_MAX].strip()
    if not text:
        findings.append(f'the library gives it no product name; published as "{NAMELESS}"')
        text = NAMELESS
    return Product(text, tuple(findings))
