"""What gate 3 says to people about a verdict (spec 04 §10.5).

For: the admission check's message, and whoever explains it.
In: groups of Pods, the nearest miss, who else was promised cards. Out: one sentence.
Promises: pure; names the model, the family, the role when there are several, and the nearest miss in numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from api.ledger.modes import CARD_UNITS
from api.ledger.pod_fit import Cards, Need, largest_slice, room
from api.ledger.workload_fit import Miss, PodGroup
from nodefeature.fields import as_str, at, str_map
from nodefeature.labels import HOSTNAME
from nodefeature.resource_names import Family

LIMIT = 1024


def roles_clause(roles: Iterable[str]) -> str:
    """Return ` for role "x"` or ` for roles "a", "b"`, sorted; empty without a role."""
    named = sorted({role for role in roles if role})
    if not named:
        return ""
    return f" for role{'s' if len(named) > 1 else ''} {', '.join(_quoted(role) for role in named)}"


def ready_message(groups: Sequence[PodGroup]) -> str:
    """Return the message of a Ready; the last group's family speaks."""
    if not groups:
        return "the workload asks for no accelerator"
    need, clause = groups[-1].needs[0], roles_clause(group.role for group in groups)
    if need.family is Family.PARTITIONED:
        return f"the pool has a free placement of partition profile {_quoted(need.profile)}{clause}"
    return f"the pool has enough free cards{clause}"


def unassigned_message(roles: Iterable[str]) -> str:
    """Return the message for Pods whose admission names no accelerator flavor, or several."""
    return f"the admission does not resolve to a single accelerator flavor{roles_clause(roles)}"


def unresolved_message(flavors: Iterable[str], roles: Iterable[str]) -> str:
    """Return the message for flavors that reach nodes but name no one model."""
    named = ", ".join(_quoted(flavor) for flavor in sorted(set(flavors)))
    return f"flavor {named} pins no single accelerator key{roles_clause(roles)}; fix its node labels"


def vanished_message(flavors: Iterable[str], roles: Iterable[str]) -> str:
    """Return the message for flavors that are gone since quota was reserved in them."""
    named = ", ".join(_quoted(flavor) for flavor in sorted(set(flavors)))
    return f"flavor {named} is gone since quota was reserved in it{roles_clause(roles)}"


def miss_message(miss: Miss, promised: int = 0) -> str:
    """Return the message of a Retry.

    `promised` counts the Workloads that were promised cards on the node that came nearest. A tenant reads the
    message on its own Workload, so it names none of theirs.
    """
    group, need = miss.group, miss.group.needs[0]
    head = _head(miss, need) + roles_clause((group.role,))
    tail = f"; {miss.placed} of {group.count} Pods would find a place" if group.count > 1 else ""
    return f"{head}: {_nearest(miss, need)}{tail}{_promised(promised)}"[:LIMIT]


def _head(miss: Miss, need: Need) -> str:
    model = need.key or need.manufacturer
    if need.family is not Family.PARTITIONED:
        return f"no node has enough free cards of {model}, {need.family.value}"
    profile = _quoted(need.profile)
    partitioned = [card for card in miss.cards if card.partitions is not None and need.covers(card)]
    if not partitioned:
        return f"no partitioned card of {model} offers profile {profile}; partition a card"
    if not any(card.partitions.ready for card in partitioned if card.partitions is not None):
        return f"the placement ledger of the partitioned cards of {model} is not ready, profile {profile}"
    return f"no node has a free placement of partition profile {profile}"


def _nearest(miss: Miss, need: Need) -> str:
    if not miss.node:
        pin = as_str(str_map(at(miss.group.pod_spec, "nodeSelector")).get(HOSTNAME))
        if pin:
            return f"it insists on node {_quoted(pin)}, which is no usable node of flavor {_quoted(miss.group.flavor)}"
        return f"no usable node of flavor {_quoted(miss.group.flavor)} has such cards"
    if not miss.known:
        return f"node {miss.node}, which was chosen for it, is gone, takes no Pods or has no cards"
    asked, found = _asked_and_found(miss.cards, need)
    if miss.group.hosts is not None:
        return f"needs {asked} on node {miss.node}, which was chosen for it and has {found}"
    return f"needs {asked} on one node; best node {miss.node} has {found}"


def _asked_and_found(cards: Cards, need: Need) -> tuple[str, str]:
    found = room(cards, need)
    if need.family is Family.EXCLUSIVE:
        return f"{need.cards} free {_cards(need.cards)}", str(found)
    if need.family is Family.SHARED:
        return f"{need.cards} {_cards(need.cards)} with a free share", str(found)
    if need.family is Family.PARTITIONED:
        return f"{need.cards} free placement{'s' if need.cards > 1 else ''} of {_quoted(need.profile)}", str(found)
    asked = f"{need.cards} cards" if need.cards > 1 else "a card"
    return f"{asked} with {_units(need.units)} free", f"at most {_units(largest_slice(cards, need))} on a card"


def _promised(workloads: int) -> str:
    if not workloads:
        return ""
    whose = "1 Workload whose Pods do" if workloads == 1 else f"{workloads} Workloads whose Pods do"
    return f"; cards there are promised to {whose} not hold them yet"


def _units(units: int) -> str:
    percent = units * 1000 // CARD_UNITS / 10
    return f"{units} units ({percent:g} %)"


def _cards(count: int) -> str:
    return "card" if count == 1 else "cards"


def _quoted(text: str) -> str:
    return f'"{text}"'
