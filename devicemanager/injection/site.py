"""Where things lie on this node, and how a claim's figures are read.

For: the manufacturers' modules beside this one.
In: configuration, a claim, a card. Out: host paths, percentages, MiB.
Promises: exact integers; a claim without a memory figure, or a card without memory, is refused by name (case B036);
a name that would leave the Pod's own folder is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from devicemanager.injection.request import Card, ContainerClaim, InjectionRefused, Request
from nodefeature.manufacturers import DEFAULT_MANUFACTURERS, Manufacturers
from nodefeature.resource_names import SLICED_MEMORY_MIB, SLICED_MEMORY_PERCENTAGE

LIBRARY_ROOT = "/var/lib/gpustack/operator/lib"
PODS_ROOT = "/var/lib/gpustack/operator/pods"
CONTAINERD_FOLDER = "/etc/containerd"
WHOLE = 100
_SEGMENT = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """This node's folders and names.

    `library_root` is where the slicing libraries are expected, `containerd` where the engine's `config.toml` is.
    """

    library_root: str = LIBRARY_ROOT
    pods_root: str = PODS_ROOT
    containerd: str = CONTAINERD_FOLDER
    registry: Manufacturers = field(default=DEFAULT_MANUFACTURERS)

    def library(self, *parts: str) -> str:
        """Return a path under the root of the slicing libraries."""
        return "/".join((self.library_root, *parts))

    def work(self, claim: ContainerClaim, *parts: str) -> str:
        """Return a path in the container's own working folder."""
        for segment in (claim.pod_uid, claim.container):
            if not _SEGMENT.match(segment):
                raise InjectionRefused(f"{who(claim)}: {segment!r} cannot be part of a path")
        return "/".join((self.pods_root, claim.pod_uid, f"c-{claim.container}", *parts))


def who(claim: ContainerClaim) -> str:
    """Name a container for people."""
    return f'container "{claim.container}" of pod {claim.namespace}/{claim.pod}'


def granted(request: Request) -> tuple[Card, ...]:
    """Return the granted cards in order; refused when there is none."""
    if not request.cards:
        family = request.claim.family
        raise InjectionRefused(f'no allocated accelerator found for {family} container "{request.claim.container}"')
    return request.by_index


def only_card(request: Request, rule: str) -> Card:
    """Return the one granted card; refused with `rule` when there are several."""
    cards = granted(request)
    if len(cards) != 1:
        raise InjectionRefused(f"{who(request.claim)}: {rule}, {len(cards)} accelerators were granted")
    return cards[0]


def physical_index(card: Card, position: int, missing: str) -> int:
    """Return one of the driver's numbers of a card."""
    if len(card.physical_indexes) <= position:
        raise InjectionRefused(f"accelerator {card.id} {missing}; restart the agent so that it is detected anew")
    return card.physical_indexes[position]


def memory_mib(request: Request, card: Card, site: Site) -> int:
    """Return the memory limit of a slice on a card, in MiB (spec 06 §8)."""
    claim, whole = request.claim, card.memory_mib
    base = site.registry.base(request.manufacturer)
    if claim.memory_percentage <= 0 and claim.memory_mib <= 0:
        raise InjectionRefused(
            f'derive sliced memory limit: container "{claim.container}" has no {base}{SLICED_MEMORY_PERCENTAGE} or '
            f"{base}{SLICED_MEMORY_MIB} request"
        )
    if whole <= 0:
        raise InjectionRefused(
            f"derive sliced memory limit: accelerator {card.id} has no per-card memory, so a share of it cannot be "
            "limited; ask for a whole accelerator"
        )
    if claim.memory_percentage > 0:
        return min(whole * claim.memory_percentage // 100, whole)
    return min(claim.memory_mib, whole)


def cores_percentage(claim: ContainerClaim, card: Card) -> int:
    """Return the compute share of a slice in percent (design §8.12).

    What names none gets all where compute is overcommitted, elsewhere its share of the memory, rounded up.
    """
    if claim.cores_percentage > 0:
        return claim.cores_percentage
    percent = claim.memory_percentage
    if percent <= 0 and card.memory_mib > 0:
        percent = -(-claim.memory_mib * 100 // card.memory_mib)
    if card.overcommits_cores or percent <= 0:
        return WHOLE
    return min(percent, WHOLE)


def unless_declared(claim: ContainerClaim, **variables: str) -> dict[str, str]:
    """Return the variables that the container's own `env` does not name."""
    return {name: value for name, value in variables.items() if name not in claim.declared}


def runtime_major(cards: tuple[Card, ...], default: int) -> int:
    """Return the first component of the cards' runtime version; refused when they differ."""
    majors = {card.id: _major(card.runtime_version, default) for card in cards}
    if len(set(majors.values())) > 1:
        listed = ", ".join(f"{card}: {major}" for card, major in sorted(majors.items()))
        raise InjectionRefused(f"the accelerators' runtimes have different major versions ({listed})")
    return next(iter(majors.values()))


def _major(version: str, default: int) -> int:
    word = version.partition(".")[0].strip()
    return int(word) if word.isascii() and word.isdecimal() else default
