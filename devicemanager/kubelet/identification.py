"""Which container an Allocate is for: the kubelet's call names none (spec 06 §7.1, case B007).

For: the allocator and the preferred allocation. In: the node's Pods, what is recorded, the kubelet's listing.
Out: one container, or a refusal.
What is known: the kubelet serves the containers of a Pod in order (init containers first), and a container it has
served stands in its listing with the ids. So a Pod offers one candidate: its first container that waits for the
resource.
Promises:
  - candidates whose demands differ are never guessed between: the call is refused, and asking again may help;
  - candidates with equal demands are served oldest first; either choice gives both Pods the same;
  - a container that was recorded and still waits (the kubelet lost its checkpoint, or our answer) is served again;
  - Pods the kubelet does not list, ended Pods and running containers wait for nothing (case B035).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from api.pod_requests import Claim
from devicemanager.kubelet.refusal import Code, Refused, Unclear
from devicemanager.ledger.accounts import Account, Entry, containers_of
from devicemanager.ledger.kubelet_word import KubeletWord
from nodefeature.fields import annotations_of, as_map, as_maps, as_str, at, name_of, namespace_of

_WITHOUT_WORD = ("", "Pending")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A container that waits for devices of the resource."""

    pod: Mapping[str, Any]
    container: Mapping[str, Any]
    """Raw entry of `spec.containers[]` or `spec.initContainers[]`."""
    recorded: bool

    @property
    def name(self) -> str:
        """Return the container's name."""
        return as_str(self.container.get("name"))

    @property
    def where(self) -> str:
        """Return the container's place in words."""
        return f'container "{self.name}" of pod {namespace_of(self.pod)}/{name_of(self.pod)}'

    @property
    def demand(self) -> tuple[object, ...]:
        """Return everything that the answer depends on besides the devices: equal demands get equal answers."""
        spec = as_map(self.pod.get("spec"))
        limits = as_map(at(self.container, "resources", "limits"))
        env = sorted(as_str(variable.get("name")) for variable in as_maps(self.container.get("env")))
        device = sorted((k, v) for k, v in annotations_of(self.pod).items() if ".preferred-" in k)
        return (
            sorted((name, str(value)) for name, value in limits.items() if "/" in name),
            env,
            as_str(spec.get("runtimeClassName")),
            device,
        )


def identify(
    resource: str,
    count: int,
    *,
    accounts: Iterable[tuple[Mapping[str, Any], Account]],
    entries: Callable[[Mapping[str, Any]], Mapping[str, Entry]],
    word: KubeletWord | None,
    pods_differ: bool = False,
) -> Waiting:
    """Return the container that waits for `count` devices of `resource`; `accounts` stand oldest Pod first.

    `pods_differ`: containers of two Pods are never interchangeable, however equal their demands.
    """
    fresh: list[Waiting] = []
    again: list[Waiting] = []
    for pod, known in accounts:
        asking = _asking(known, resource, word)
        if not asking or not _may_wait(pod, known, word):  # nearly every Pod of a full node ends here
            continue
        waiting = _waiting(pod, asking, entries)
        again += [one for one in waiting if one.recorded and asking[one.name] == count]
        foremost = next((one for one in waiting if not one.recorded), None)
        if foremost is not None and asking[foremost.name] == count:
            fresh.append(foremost)
    candidates = fresh + again if word is not None else fresh or again
    if not candidates:
        raise Unclear(f"cannot find pending pod with resource request {resource}={count}")
    first, others = candidates[0], candidates[1:]
    if any(o.demand != first.demand or (pods_differ and o.pod is not first.pod) for o in others):
        names = ", ".join(candidate.where for candidate in candidates[:4])
        raise Unclear(
            f"{len(candidates)} containers wait for {resource}={count} and ask for different things, so it cannot be "
            f"told which of them this call is for: {names}"
        )
    return first


def claim_of(waiting: Waiting, claims: Iterable[Claim], manufacturer: str, family: str) -> Claim:
    """Return the claim of a container on a family."""
    for claim in claims:
        same = claim.manufacturer == manufacturer and claim.family == family
        if same and claim.container.name == waiting.name:
            return claim
    raise Refused(Code.INTERNAL, f"{waiting.where} does not ask for {family} cards of {manufacturer}")


def _asking(account: Account, resource: str, word: KubeletWord | None) -> dict[str, int]:
    """Return the containers that ask for the resource and that the kubelet lists none of, with their limits."""
    asks = account.asks.get(resource)
    if not asks:
        return {}
    if word is None or account.pod in word.doubled:
        return dict(asks)
    held = word.pods.get(account.pod)
    if held is None:
        return {}  # not admitted
    if len(asks) == 1 and held.get(asks[0][0], {}).get(resource):
        return {}  # served; on a full node that is everybody
    return {container: count for container, count in asks if not held.get(container, {}).get(resource)}


def _may_wait(pod: Mapping[str, Any], account: Account, word: KubeletWord | None) -> bool:
    if account.charge.terminated:
        return False
    if word is not None:
        return word.lists(account.pod)
    return as_str(at(pod, "status", "phase")) in _WITHOUT_WORD


def _waiting(
    pod: Mapping[str, Any],
    asking: Mapping[str, int],
    entries: Callable[[Mapping[str, Any]], Mapping[str, Entry]],
) -> list[Waiting]:
    started, held = _started(pod), entries(pod)
    return [
        Waiting(pod, container, recorded=name in held)
        for container in containers_of(pod)
        if (name := as_str(container.get("name"))) in asking and name not in started
    ]


def _started(pod: Mapping[str, Any]) -> set[str]:
    """Return the containers that run, and the init containers that have ended."""
    started = {
        as_str(status.get("name"))
        for part in ("initContainerStatuses", "containerStatuses")
        for status in as_maps(at(pod, "status", part))
        if at(status, "state", "running") is not None
    }
    return started | {
        as_str(status.get("name"))
        for status in as_maps(at(pod, "status", "initContainerStatuses"))
        if at(status, "state", "terminated") is not None
    }
