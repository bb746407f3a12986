"""The last check of everything that leaves us: one function per destination.

For: writers of object names, label keys, label values and resource names (design §8.2).
In: text that some rule of ours, a driver or a person produced. Out: the same text, or `NameInvalid`.
Promises:
  - what passes is accepted by the API server at that destination;
  - nothing is rewritten here: one bad item is left out and named, its neighbours go on (`legal_labels`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_NAME_PART = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_MAX_SUBDOMAIN = 253
_MAX_NAME_PART = 63


class NameInvalid(ValueError):
    """A name, key or value cannot be written where it was meant to go; the message says which rule it breaks."""


@dataclass(frozen=True, slots=True)
class CheckedLabels:
    """The labels that may be written, and one sentence for each that may not."""

    labels: Mapping[str, str]
    problems: tuple[str, ...] = ()


def is_object_name(text: str) -> bool:
    """Say whether `text` is a DNS-1123 subdomain of at most 253 characters."""
    return len(text) <= _MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None


def is_dns_label(text: str) -> bool:
    """Say whether `text` is a DNS-1123 label of at most 63 characters."""
    return len(text) <= _MAX_NAME_PART and _LABEL.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Say whether `text` is `[<dns subdomain>/]<name>`, the form of label keys and resource names."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_object_name(prefix):
        return False
    return len(name) <= _MAX_NAME_PART and _NAME_PART.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Say whether `text` is a label value: empty, or at most 63 characters that begin and end alphanumeric."""
    return not text or (len(text) <= _MAX_NAME_PART and _NAME_PART.fullmatch(text) is not None)


def object_name(text: str, *, field: str = "metadata.name") -> str:
    """Return `text` when it may name an object."""
    return _checked(text, is_object_name, field, "a DNS-1123 subdomain of at most 253 characters")


def label_key(text: str, *, field: str = "metadata.labels") -> str:
    """Return `text` when it may be a label's key."""
    return _checked(text, is_qualified_name, field, "a qualified name with a name part of 1 to 63 characters")


def label_value(text: str, *, field: str = "metadata.labels") -> str:
    """Return `text` when it may be a label's value."""
    return _checked(text, is_label_value, field, "a label value of at most 63 characters")


def resource_name(text: str, *, field: str = "resources") -> str:
    """Return `text` when it may name an extended resource."""
    return _checked(
        text,
        lambda name: "/" in name and is_qualified_name(name),
        field,
        "a domain-qualified resource name with a name part of 1 to 63 characters",
    )


def legal_labels(labels: Mapping[str, str], *, about: str) -> CheckedLabels:
    """Return the pairs of `labels` the API server takes; a bad pair is left out and named, after `about`."""
    legal: dict[str, str] = {}
    problems: list[str] = []
    for key, value in labels.items():
        try:
            legal[label_key(key, field=f"{about}: label key")] = label_value(value, field=f"{about}: label {key}")
        except NameInvalid as refused:
            problems.append(str(refused))
            legal.pop(key, None)
    return CheckedLabels(legal, tuple(problems))


def _checked(text: str, legal: Callable[[str], bool], field: str, rule: str) -> str:
    if not legal(text):
        raise NameInvalid(f"{field}: {text[:300]!r} must be {rule}")
    return text
