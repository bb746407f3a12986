"""What the kubelet says that containers hold: its pod-resources listing.

For: finding the container an Allocate is for; checking the ledger (spec 06 §6.7, §7.1). In: one listing.
Out: who holds which ids, by Pod name and container.
Trusts: the kubelet, over a socket that only root reaches. It names Pods without their uid, so a name that is listed
twice (a Pod and its successor) says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

PodName = tuple[str, str]
"""(namespace, name)."""
Held = Mapping[str, Mapping[str, frozenset[str]]]
"""container -> resource -> ids."""


@dataclass(frozen=True, slots=True)
class KubeletWord:
    """One listing."""

    pods: Mapping[PodName, Held]
    doubled: frozenset[PodName] = frozenset()

    def lists(self, pod: PodName) -> bool:
        """Say whether the kubelet knows the Pod."""
        return pod in self.pods

    def ids(self, pod: PodName, container: str, resource: str) -> frozenset[str]:
        """Return the ids a container holds of a resource."""
        return self.pods.get(pod, {}).get(container, {}).get(resource, frozenset())


class Kubelet(Protocol):
    """Whoever can ask the kubelet."""

    async def word(self) -> KubeletWord | None:
        """Return a listing of now, or None when the kubelet cannot be asked."""

    async def close(self) -> None:
        """Hang up; a later question dials again."""


def word_of(listed: Iterable[tuple[PodName, Held]]) -> KubeletWord:
    """Return a listing's word; of a name listed twice the union of ids is kept, and the name is marked."""
    pods: dict[PodName, Held] = {}
    doubled = set()
    for name, held in listed:
        if name in pods:
            doubled.add(name)
            held = _union(pods[name], held)  # noqa: PLW2901 - the same listing, joined
        pods[name] = held
    return KubeletWord(pods, frozenset(doubled))


def _union(a: Held, b: Held) -> Held:
    return {
        container: {
            resource: a.get(container, {}).get(resource, frozenset()) | b.get(container, {}).get(resource, frozenset())
            for resource in {*a.get(container, {}), *b.get(container, {})}
        }
        for container in {*a, *b}
    }
