"""What a question is answered from, and what an answer is made of.

For: the gates' modules, which judge; `apiserver.subresources.explain_reading`, which reads the objects.
In: raw objects, each possibly absent, half written or hostile. Out: frozen values.
Promises: pure, nothing here raises on any field; an object that could not be read is told apart from one that is not
there (`unread`), so that an answer never claims what nobody looked at.
Trusts: only as much as it shows: every word of a Pod or an Instance is a tenant's, and is shown to that tenant alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nodefeature.fields import as_str
from nodefeature.kinds import Kind
from nodefeature.manufacturers import Manufacturers

Object = Mapping[str, Any]
MAX_WORDS = 500
"""Characters of somebody else's message that an answer repeats."""


class Gate(StrEnum):
    """The gates, in the order in which a Pod meets them."""

    WEBHOOK = "Webhook"
    QUOTA = "Quota"
    CARD_CHECK = "CardCheck"
    SCHEDULER = "Scheduler"
    DEVICE_PLUGIN = "DevicePlugin"


TITLES = {
    Gate.WEBHOOK: "webhook",
    Gate.QUOTA: "quota",
    Gate.CARD_CHECK: "card check",
    Gate.SCHEDULER: "scheduler",
    Gate.DEVICE_PLUGIN: "device plugin",
}


class State(StrEnum):
    """A gate's answer. `Refused`: it does not pass until somebody changes something; `Unknown`: it cannot be read."""

    PASSED = "Passed"
    WAITING = "Waiting"
    REFUSED = "Refused"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The figures behind an answer; None where there is no such figure. `unit` says what is counted.

    `largest` is what fits at most in one place: one node, or, for quota, one flavor.
    """

    unit: str = ""
    asked: int | None = None
    free: int | None = None
    largest: int | None = None
    largest_at: str = ""
    ahead: int | None = None
    pending: int | None = None
    at_least: bool = False
    """Only a part of the cluster was looked at: the figures are lower bounds."""


NO_NUMBERS = Numbers()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One gate's answer."""

    gate: Gate
    state: State
    reason: str
    advice: str = ""
    numbers: Numbers = NO_NUMBERS
    reached: bool = True
    """False: an earlier gate decides first, whatever this one finds."""
    because: Gate | None = None
    """The gate that this one waits for in truth: quota is given back when the card check asks for another try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything a question is answered from. Absent objects are None; `unread` says which kinds nobody could read."""

    registry: Manufacturers
    instance: Object | None = None
    pod: Object | None = None
    instance_type: Object | None = None
    cluster_queue: Object | None = None
    local_queue: Object | None = None
    workload: Object | None = None
    node: Object | None = None
    """The node that the Pod is bound to or that the Instance is pinned to."""
    flavors: Sequence[Object] = ()
    """The ResourceFlavors that the Workload was given."""
    devices: Sequence[Object] = ()
    """The Devices of the pool, or a part of them."""
    rivals: Sequence[Object] = ()
    """The Workloads that wait at the same queue, or a part of them; the asking one may be among them."""
    partial: frozenset[str] = frozenset()
    """Plurals of the kinds of which only a part was looked at."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Plural -> why it could not be read."""

    def unread_reason(self, *kinds: Kind) -> str:
        """Return a sentence when one of the kinds could not be read; empty when all were."""
        for kind in kinds:
            if kind.plural in self.unread:
                return f"The {kind.plural} could not be read: {quoted(self.unread[kind.plural])}"
        return ""


def words(obj: Mapping[str, Any]) -> str:
    """Return what a condition or a state says: its message, else its reason."""
    return quoted(as_str(obj.get("message")) or as_str(obj.get("reason")))


def quoted(text: str) -> str:
    """Return somebody else's words as one line of bounded length, without a full stop and what moves a cursor."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return (line if len(line) <= MAX_WORDS else line[: MAX_WORDS - 3] + "...").rstrip(".")


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: `1 card`, `2 cards`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def in_units(count: int, unit: str) -> str:
    """Return a number with its unit, whose first word stands in the plural: `1 card with 50 % free`."""
    noun, _, rest = unit.partition(" ")
    one = noun.removesuffix("s") if count == 1 else noun
    return " ".join(part for part in (str(count), one, rest) if part)


def listed(names: Iterable[str]) -> str:
    """Return names in one line, at most eight of them."""
    known = list(names)
    return ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
