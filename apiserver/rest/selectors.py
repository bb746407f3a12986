"""Label and field selectors.

For: lists, watches and deletecollection of every storage.
In: the text of `labelSelector` or `fieldSelector`. Out: a frozen selector with `matches`, or a Refusal 400.
Promises: the whole of Kubernetes' label grammar (`=`, `==`, `!=`, `in`, `notin`, `exists`, `!exists`, `gt`, `lt`); a
field a resource did not declare is refused, never ignored; parsing is cached, matching allocates nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from apiserver.rest import status
from apiserver.rest.remembering import remembered

_KEY = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_TERM = re.compile(
    rf"\s*+(?:(?P<absent>!)\s*+)?(?P<key>{_KEY})\s*+"  # possessive: blanks are never given back and counted anew
    r"(?:(?P<set>notin|in)\s*+\((?P<values>[^()]*)\)|(?P<op>==|=|!=|>|<)\s*+(?P<value>[-A-Za-z0-9_.]*+))?\s*+(?:,|$)"
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether the labels fulfil this term; `!=` and `notin` hold for an absent key."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
            case _:
                return value is not None and _compare(value, self.operator, next(iter(self.values)))


def _compare(value: str, operator: str, bound: str) -> bool:
    try:
        return int(value) > int(bound) if operator == ">" else int(value) < int(bound)
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All terms must hold; no terms select everything."""

    requirements: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether the labels fulfil every term."""
        return all(requirement.matches(labels) for requirement in self.requirements)


@remembered(1024)
def parse_labels(text: str) -> LabelSelector:
    """Parse a `labelSelector`; raises Refusal 400."""
    requirements = []
    position = 0
    while position < len(text):
        found = _TERM.match(text, position)
        if found is None or found.end() == position:
            raise status.bad_request(f"unable to parse label selector {text!r} at {text[position : position + 32]!r}")
        requirements.append(_requirement(found, text))
        position = found.end()
    return LabelSelector(tuple(requirements))


def _requirement(found: re.Match[str], text: str) -> Requirement:
    key, operator = found["key"], found["op"] or found["set"]
    if found["absent"]:
        if operator:
            raise status.bad_request(f"unable to parse label selector {text!r}: '!' takes a key alone")
        return Requirement(key, "!")
    if operator is None:
        return Requirement(key, "exists")
    if found["set"]:
        return Requirement(key, operator, frozenset(value.strip() for value in found["values"].split(",")))
    if operator in (">", "<"):
        if not found["value"].removeprefix("-").isdigit():
            raise status.bad_request(f"label selector {text!r}: {operator} needs an integer")
        return Requirement(key, operator, frozenset({found["value"]}))
    return Requirement(key, "notin" if operator == "!=" else "in", frozenset({found["value"]}))


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector."""

    field: str
    value: str
    equal: bool


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All terms must hold; no terms select everything."""

    terms: tuple[FieldTerm, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, read: Callable[[str], str]) -> bool:
        """Say whether every term holds; `read` gives a field's text, empty when absent."""
        return all((read(term.field) == term.value) is term.equal for term in self.terms)

    def required(self, field: str) -> str:
        """Return the value a field is pinned to, or the empty string."""
        return next((term.value for term in self.terms if term.field == field and term.equal), "")


@remembered(1024)
def parse_fields(text: str) -> FieldSelector:
    """Parse a `fieldSelector`, in whose values commas and backslashes are escaped; raises Refusal 400."""
    terms = []
    for part in filter(None, re.split(r"(?<!\\),", text)):
        found = re.fullmatch(r"([A-Za-z0-9_.\-/]+)(==|!=|=)(.*)", part, re.DOTALL)
        if found is None:
            raise status.bad_request(f"invalid field selector {text!r}: can't understand {part!r}")
        terms.append(FieldTerm(found[1], re.sub(r"\\(.)", r"\1", found[3]), found[2] != "!="))
    return FieldSelector(tuple(terms))


def check_fields(selector: FieldSelector, supported: Collection[str]) -> None:
    """Refuse (400) a field that the resource did not declare."""
    for term in selector.terms:
        if term.field not in supported:
            raise status.bad_request(f"field label not supported: {term.field}")


ALL_LABELS = LabelSelector()
ALL_FIELDS = FieldSelector()
