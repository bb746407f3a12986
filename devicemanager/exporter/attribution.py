"""Whose processes run on a card (spec 06 §14).

In: a card's processes, what /proc says of each, the containers of this node's Pods. Out: shares, or why there are none.
Promises: one process that cannot be placed blanks its whole card: a part of the figures would be a wrong figure; host
process numbers leave this module in no form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devicemanager.monitor import CardSample
from nodefeature.fields import as_maps, as_str, at, uid_of

_POD = re.compile(r"pod([0-9a-f]{8}[-_](?:[0-9a-f]{4}[-_]){3}[0-9a-f]{12})")
_CONTAINER = re.compile(r"([0-9a-f]{64})(?:\.scope)?$")
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


@dataclass(frozen=True, slots=True)
class Owner:
    """One container of one Pod."""

    pod_uid: str
    container: str


@dataclass(frozen=True, slots=True)
class Share:
    """What one container uses of one card; None where it was not measured. Compute is percent of the whole card."""

    owner: Owner
    card_id: str
    memory_mib: int | None
    cores: int | None


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether a card's shares were measured: an empty reason says yes."""

    card_id: str
    manufacturer: str
    memory: str
    cores: str


@dataclass(frozen=True, slots=True)
class Shares:
    """All shares of a node."""

    shares: tuple[Share, ...] = ()
    capabilities: tuple[Capability, ...] = ()

    def of(self, owner: Owner, card_id: str) -> Share | None:
        """Return a container's share of a card; one that runs nothing there uses nothing, where that was measured."""
        found = next((share for share in self.shares if share.owner == owner and share.card_id == card_id), None)
        if found is not None:
            return found
        able = next((one for one in self.capabilities if one.card_id == card_id), None)
        if able is None:
            return None
        return Share(owner, card_id, None if able.memory else 0, None if able.cores else 0)


NO_SHARES = Shares()


def container_owners(pods: Iterable[Mapping[str, Any]]) -> dict[str, Owner]:
    """Return who runs under each container id, from Pods' statuses."""
    owners = {}
    for pod in pods:
        for field in _STATUSES:
            for status in as_maps(at(pod, "status", field)):
                number = as_str(status.get("containerID")).rpartition("//")[2]
                if number:
                    owners[number] = Owner(uid_of(pod), as_str(status.get("name")))
    return owners


def attribute(
    cards: Iterable[CardSample], cgroups: Mapping[int, str | None], containers: Mapping[str, Owner]
) -> Shares:
    """Return the shares of all cards. `cgroups` holds a process' cgroup text, None for one that has ended."""
    shares: list[Share] = []
    capabilities: list[Capability] = []
    for card in cards:
        found, reason = _card_shares(card, cgroups, containers)
        memory, cores = card.usage.process_memory or reason, card.usage.process_cores or reason
        capabilities.append(Capability(card.card_id, card.manufacturer, memory, cores))
        if not reason and not card.usage.process_memory:
            shares += found if not cores else [Share(s.owner, s.card_id, s.memory_mib, None) for s in found]
    return Shares(tuple(shares), tuple(capabilities))


def read_cgroups(cards: Iterable[CardSample], root: Path = Path("/")) -> dict[int, str | None]:
    """Return the cgroup text of every process on the cards; blocks on small files."""
    texts: dict[int, str | None] = {}
    for card in cards:
        for process in card.usage.processes:
            try:
                texts[process.pid] = (root / f"proc/{process.pid}/cgroup").read_text(encoding="utf-8", errors="replace")
            except OSError:
                texts[process.pid] = None
    return texts


def _card_shares(
    card: CardSample, cgroups: Mapping[int, str | None], containers: Mapping[str, Owner]
) -> tuple[list[Share], str]:
    memory: dict[Owner, int] = {}
    cores: dict[Owner, int] = {}
    for process in card.usage.processes:
        text = cgroups.get(process.pid)
        if text is None:
            return [], "exited"
        owner, reason = _owner(text, containers)
        if owner is None:
            return [], reason
        memory[owner] = memory.get(owner, 0) + (process.memory_mib or 0)
        cores[owner] = cores.get(owner, 0) + (process.cores or 0)
    return [Share(owner, card.card_id, memory[owner], min(cores[owner], 100)) for owner in memory], ""


def _owner(text: str, containers: Mapping[str, Owner]) -> tuple[Owner | None, str]:
    for line in text.splitlines():
        path = line.rpartition(":")[2] if line.count(":") >= 2 else line
        container = _CONTAINER.search(path)
        if _POD.search(path) and container:
            owner = containers.get(container[1])
            return owner, "" if owner else "unknown_pod"
    return None, "no_pod_component"
