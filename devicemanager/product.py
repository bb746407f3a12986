"""Product names as published: readable text, whatever bytes the library handed over."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

NAMELESS = "unknown"
_MAX = 253
_TRIMMED = " \ufffd\t\n\r"


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
    text = clean_text(reported)
    findings = []
    if _unreadable(reported or ""):
        findings.append("its product name holds bytes that are no text; they were replaced")
    if not text:
        findings.append(f'the library gives it no product name; published as "{NAMELESS}"')
        text = NAMELESS
    return Product(text, tuple(findings))


def clean_text(reported: str | None) -> str:
    """Return a library's text fit to publish: no blanks around it, nothing unreadable, at most 253 characters."""
    text = reported or ""
    if not text.isprintable():
        text = "".join("\ufffd" if _is_odd(char) else char for char in text)
    return text.strip(_TRIMMED)[:_MAX].strip(_TRIMMED)


def _unreadable(text: str) -> bool:
    return not text.isprintable() and any(_is_odd(char) for char in text)


def _is_odd(char: str) -> bool:
    return unicodedata.category(char) in ("Cs", "Cc")
