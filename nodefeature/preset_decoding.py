"""The text of the unit-resource presets, decoded strictly.

For: `presets`.
In: YAML text. Out: records of text fields, unchecked against each other.
Promises: an unknown field, a missing one, a field of another type and a key given twice are all refused, each with its
path, all at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml


class PresetsInvalid(ValueError):
    """The table cannot be used; `errors` holds every mistake with its path."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = tuple(errors)
        super().__init__("unit-resources presets: " + "; ".join(self.errors))


@dataclass(frozen=True, slots=True)
class Tier:
    """CPU cores and RAM for one whole accelerator."""

    name: str
    cpu: str
    ram: str


@dataclass(frozen=True, slots=True)
class Refinement:
    """A tier for products of an entry that carry a word."""

    token: str
    family: str
    tier: str


@dataclass(frozen=True, slots=True)
class RawEntry:
    """An entry as written."""

    prefix: str
    family: str
    tier: str
    by: tuple[Refinement, ...]

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Give path, family and tier of the entry itself and of each refinement."""
        yield "", self.family, self.tier
        for index, refinement in enumerate(self.by):
            yield f".by[{index}]", refinement.family, refinement.tier


@dataclass(frozen=True, slots=True)
class Decoded:
    """The whole text as written."""

    tiers: tuple[Tier, ...]
    strip: tuple[str, ...]
    entries: Mapping[str, tuple[RawEntry, ...]]


def decode_presets(text: str) -> Decoded:
    """Return what `text` says; raises `PresetsInvalid` when its shape is wrong."""
    return _Decoder().decode(text)


class _StrictLoader(yaml.CSafeLoader):
    """A YAML loader that refuses a mapping key written twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                line = key.start_mark.line + 1
                raise yaml.constructor.ConstructorError(None, None, f"line {line}: key {key.value!r} is given twice")
            seen.add(str(key.value))
        return super().construct_mapping(node, deep=deep)


class _Decoder:
    """Turns text into records, collecting every field of the wrong name or type."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def decode(self, text: str) -> Decoded:
        try:
            # The loader is PyYAML's safe one; the subclass only refuses more.
            root = yaml.load(text, Loader=_StrictLoader)  # noqa: S506
        except yaml.YAMLError as malformed:
            raise PresetsInvalid([f"decoding unit-resources presets: {malformed}"]) from malformed
        fields = self._fields(root, "presets", required=("tiers", "strip", "manufacturers"))
        decoded = Decoded(
            tiers=tuple(self._tier(raw, f"tiers[{i}]") for i, raw in enumerate(self._list(fields, "tiers"))),
            strip=tuple(self._text(raw, f"strip[{i}]") for i, raw in enumerate(self._list(fields, "strip"))),
            entries=self._entries(fields.get("manufacturers")),
        )
        if self.errors:
            raise PresetsInvalid(self.errors)
        return decoded

    def _entries(self, raw: object) -> dict[str, tuple[RawEntry, ...]]:
        if not isinstance(raw, dict):
            self._refuse("manufacturers", "must be a mapping")
            return {}
        return {
            self._text(name, "manufacturers"): tuple(
                self._entry(entry, f"manufacturers.{name}[{index}]")
                for index, entry in enumerate(self._list(raw, name, path=f"manufacturers.{name}"))
            )
            for name in raw
        }

    def _tier(self, raw: object, path: str) -> Tier:
        fields = self._fields(raw, path, required=("name", "cpu", "ram"))
        return Tier(*(self._text(fields.get(name, ""), f"{path}.{name}") for name in ("name", "cpu", "ram")))

    def _entry(self, raw: object, path: str) -> RawEntry:
        fields = self._fields(raw, path, required=("prefix", "family", "tier"), optional=("by",))
        prefix, family, tier = (self._text(fields.get(n, ""), f"{path}.{n}") for n in ("prefix", "family", "tier"))
        by = self._list(fields, "by", path=f"{path}.by") if "by" in fields else []
        return RawEntry(
            prefix, family, tier, tuple(self._refinement(item, f"{path}.by[{i}]") for i, item in enumerate(by))
        )

    def _refinement(self, raw: object, path: str) -> Refinement:
        fields = self._fields(raw, path, required=("token", "family", "tier"))
        return Refinement(*(self._text(fields.get(n, ""), f"{path}.{n}") for n in ("token", "family", "tier")))

    def _fields(
        self, raw: object, path: str, *, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> Mapping[str, Any]:
        if not isinstance(raw, dict):
            self._refuse(path, "must be a mapping")
            return {}
        for name in raw:
            if name not in required + optional:
                self._refuse(path, f"unknown field {name!r}")
        for name in required:
            if name not in raw:
                self._refuse(path, f"field {name!r} is missing")
        return raw

    def _list(self, fields: Mapping[Any, Any], name: str, *, path: str = "") -> list[Any]:
        value = fields.get(name, [])
        if isinstance(value, list):
            return value
        self._refuse(path or name, "must be a list")
        return []

    def _text(self, raw: object, path: str) -> str:
        # A bare 910 or 4 in the file is a number to YAML and the same text to us.
        if isinstance(raw, str) or (isinstance(raw, int) and not isinstance(raw, bool)):
            return str(raw)
        self._refuse(path, f"{raw!r} must be text")
        return ""

    def _refuse(self, path: str, rule: str) -> None:
        self.errors.append(f"decoding unit-resources presets: {path}: {rule}")
