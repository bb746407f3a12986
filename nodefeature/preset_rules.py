"""The rules a table of unit-resource presets must keep (spec 01 §11.5).

For: `presets`.
In: a decoded table. Out: one sentence for each mistake, with its path.
Promises: pure; finds all mistakes; a table without any gives the same answers in any order of entries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from nodefeature.manufacturers import MANUFACTURER_NAMES
from nodefeature.preset_decoding import Decoded, RawEntry, Tier
from nodefeature.product_names import tokens_of

LADDER = ("fallback", "small", "medium", "large", "xlarge")
FALLBACK = LADDER[0]
_FALLBACK_UNIT = (4, 16)
_MAX_INT32 = 2**31 - 1
_CPU = re.compile(r"[1-9][0-9]{0,9}")
_RAM = re.compile(r"([1-9][0-9]{0,9})Gi")
_TOKEN = re.compile(r"[a-z0-9]+")
_PREFIX = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")


def preset_errors(decoded: Decoded) -> list[str]:
    """Return every mistake of a table."""
    errors = [*_tier_errors(decoded.tiers), *_strip_errors(decoded.strip)]
    names = {tier.name for tier in decoded.tiers}
    families: set[str] = set()
    strips = [tokens_of(strip) for strip in decoded.strip]
    for manufacturer, entries in decoded.entries.items():
        path = f"manufacturers.{manufacturer}"
        if manufacturer not in MANUFACTURER_NAMES:
            errors.append(f"{path}: {_quoted(manufacturer)} is not a manufacturer the operator can detect")
        errors += _sibling_errors(path, entries)
        for index, entry in enumerate(entries):
            at = f"{path}[{index}]"
            errors += _prefix_errors(f"{at}.prefix", entry.prefix, manufacturer, strips)
            errors += _by_errors(at, entry)
            for where, family, tier in entry.rows():
                errors += _row_errors(f"{at}{where}", family, tier, names, families)
    return errors


def _tier_errors(tiers: Sequence[Tier]) -> list[str]:
    errors: list[str] = []
    if len(tiers) != len(LADDER):
        errors.append(f"tiers: must define exactly {len(LADDER)} tiers ({', '.join(LADDER)}), found {len(tiers)}")
    units: dict[str, tuple[int, int]] = {}
    for index, tier in enumerate(tiers):
        cpu, ram = _CPU.fullmatch(tier.cpu), _RAM.fullmatch(tier.ram)
        if cpu is None or int(tier.cpu) > _MAX_INT32:
            errors.append(f"tiers[{index}].cpu: {_quoted(tier.cpu)} must be a positive integer with no unit suffix")
        if ram is None:
            errors.append(
                f"tiers[{index}].ram: {_quoted(tier.ram)} must be a positive integer and "
                'must carry a case-sensitive "Gi" suffix'
            )
        if cpu and ram:
            units[tier.name] = (int(tier.cpu), int(ram[1]))
    present = {tier.name for tier in tiers}
    errors += [f"tiers: {_quoted(name)} is missing" for name in LADDER if name not in present]
    return errors + _ladder_errors(units)


def _ladder_errors(units: Mapping[str, tuple[int, int]]) -> list[str]:
    errors: list[str] = []
    if FALLBACK in units and units[FALLBACK] != _FALLBACK_UNIT:
        errors.append("tiers.fallback: must stay 4 CPU / 16Gi, what unknown models have always had")
    for lower, upper in pairwise(LADDER):
        if lower not in units or upper not in units:
            continue
        (cpu, ram), (more_cpu, more_ram) = units[lower], units[upper]
        if lower == FALLBACK and not (more_cpu > cpu and more_ram > ram):
            errors.append(f"tiers.{upper}: must be strictly larger than {lower} in CPU and in RAM")
        elif more_cpu < cpu or more_ram < ram:
            errors.append(f"tiers.{upper}: must not be smaller than {lower} in CPU or in RAM")
    return errors


def _strip_errors(strip: Sequence[str]) -> list[str]:
    errors: list[str] = []
    for index, text in enumerate(strip):
        path = f"strip[{index}]"
        errors += _words_errors(path, text)
        words = tokens_of(text)
        for earlier in strip[:index]:
            other = tokens_of(earlier)
            shorter = min(len(words), len(other))
            if words == other:
                errors.append(f"{path}: {_quoted(text)} is listed twice")
            elif words and other and words[:shorter] == other[:shorter]:
                errors.append(
                    f"{path}: what {_quoted(text)} and {_quoted(earlier)} remove would depend on the order the two are "
                    "listed in"
                )
    return errors


def _sibling_errors(path: str, entries: Sequence[RawEntry]) -> list[str]:
    errors: list[str] = []
    for index, entry in enumerate(entries):
        words = tokens_of(entry.prefix)
        for other in entries[:index]:
            if words and words == tokens_of(other.prefix):
                errors.append(f"{path}[{index}].prefix: prefix {_quoted(entry.prefix)} is used twice")
        for other in entries:
            longer = tokens_of(other.prefix)
            if words and words != longer and longer[: len(words)] == words:
                errors.append(
                    f"{path}[{index}].prefix: {_quoted(entry.prefix)} is a token-prefix of {_quoted(other.prefix)}"
                )
    return errors


def _words_errors(path: str, text: str) -> list[str]:
    if not tokens_of(text):
        return [f"{path}: {_quoted(text)} must carry at least one token"]
    if text != text.lower():
        return [f"{path}: {_quoted(text)} must be lowercase"]
    if _PREFIX.fullmatch(text) is None:
        return [f"{path}: {_quoted(text)} must be lowercase letters and digits with single separators"]
    return []


def _prefix_errors(path: str, prefix: str, manufacturer: str, strips: Sequence[tuple[str, ...]]) -> list[str]:
    errors = _words_errors(path, prefix)
    words = tokens_of(prefix)
    errors += [
        f"{path}: {_quoted(prefix)} starts with the stripped sequence {_quoted('-'.join(strip))}, so nothing matches it"
        for strip in strips
        if strip and words[: len(strip)] == strip
    ]
    if prefix.startswith(manufacturer):
        errors.append(f"{path}: {_quoted(prefix)} starts with its own manufacturer name, which products lose")
    return errors


def _by_errors(path: str, entry: RawEntry) -> list[str]:
    errors: list[str] = []
    seen: set[str] = set()
    for index, refinement in enumerate(entry.by):
        at, token = f"{path}.by[{index}].token", refinement.token
        if not token:
            errors.append(f"{at}: must not be empty")
        elif _TOKEN.fullmatch(token) is None:
            errors.append(f"{at}: {_quoted(token)} must be a single lowercase word without separators")
        elif token in seen:
            errors.append(f"{at}: {_quoted(token)} is listed twice")
        elif token in tokens_of(entry.prefix):
            errors.append(f"{at}: {_quoted(token)} is part of the prefix and makes the entry's own tier unreachable")
        seen.add(token)
    return errors


def _row_errors(path: str, family: str, tier: str, names: set[str], families: set[str]) -> list[str]:
    errors: list[str] = []
    if tier not in names:
        errors.append(f"{path}.tier: {_quoted(tier)} is not a defined tier")
    if not family:
        errors.append(f"{path}.family: must not be empty")
    elif family in families:
        errors.append(f"{path}.family: {_quoted(family)} is already claimed elsewhere")
    families.add(family)
    return errors


def _quoted(text: str) -> str:
    return f'"{text}"'
