"""What an Instance's status says, derived from its Pod.

For: the instance controller (spec 02 §6.5-6.6, spec 05 §10.1).
In: a raw Pod, host addresses, settings. Out: phase and message, whether Kueue holds it back, access addresses.
Promises: pure; a Pod that ran and ended, or whose container ended, is never `Ready` (case B044).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from api.instance_conditions import KUEUE_GATES
from api.instance_type import Phase
from nodefeature.fields import as_maps, as_str, at

INIT_HINT = (
    "One or more init containers are not initialized, they may be pulling images or performing other startup "
    "operations, please check events for more details."
)
HINT = (
    "One or more containers are not ready, they may be pulling images or performing other startup operations, "
    "please check events for more details."
)
_ORDER = ("PodScheduled", "Initialized", "Ready")
_CRASHING = "CrashLoopBackOff"
_ENDED = {"Failed": "the Pod failed", "Succeeded": "the Pod has finished"}


def pod_phase(pod: Mapping[str, Any]) -> Phase:
    """Return an Instance's phase from its Pod: the first of PodScheduled, Initialized, Ready that is not True decides.

    A condition that is absent counts as Unknown, or as True once a later one stands there. A waiting container's own
    words replace the hint.
    """
    status = at(pod, "status")
    ended = as_str(at(status, "phase"))
    if ended in _ENDED:
        return Phase("NotReady", _ended_message(status, ended))
    conditions = {as_str(c.get("type")): c for c in as_maps(at(status, "conditions"))}
    reached = _deciding(conditions)
    truth = as_str(conditions.get(reached, {}).get("status")) or "Unknown"
    if reached == "PodScheduled":
        return Phase("Pending" if truth == "False" else "Scheduling", _message(conditions, reached))
    if reached == "Initialized" and truth == "False":
        return _not_initialized(status, conditions)
    if reached == "Initialized":
        return Phase("Initializing", _message(conditions, reached))
    if truth == "False":
        return _not_ready(status, conditions)
    return Phase("Ready") if truth == "True" else Phase("Starting", _message(conditions, reached))


def access_addresses(*, static: str, wildcard_dns: str, host_ips: Sequence[str], stored: Sequence[str]) -> list[str]:
    """Return the addresses shown: the static one, else the first host IP (under the domain), else the stored ones."""
    if static:
        return [static]
    if not host_ips:
        return list(stored)
    if not wildcard_dns:
        return [host_ips[0]]
    return [f"{host_ips[0].replace('.', '-').replace(':', '-')}.{wildcard_dns}"]


def is_held_by_kueue(pod: Mapping[str, Any] | None) -> bool:
    """Say whether a scheduling gate of Kueue's holds a Pod back."""
    return any(as_str(gate.get("name")) in KUEUE_GATES for gate in as_maps(at(pod, "spec", "schedulingGates")))


def host_ips_of(node: Mapping[str, Any]) -> list[str]:
    """Return a Node's external addresses, then its internal ones, each once (the status lists them by address)."""
    addresses = as_maps(at(node, "status", "addresses"))
    found = [
        as_str(item.get("address"))
        for kind in ("ExternalIP", "InternalIP")
        for item in addresses
        if item.get("type") == kind
    ]
    return list(dict.fromkeys(filter(None, found)))


def _deciding(conditions: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the first condition that is not True, or the last of all."""
    for position, kind in enumerate(_ORDER):
        if kind not in conditions and any(later in conditions for later in _ORDER[position + 1 :]):
            continue
        if conditions.get(kind, {}).get("status") != "True":
            return kind
    return _ORDER[-1]


def _message(conditions: Mapping[str, Mapping[str, Any]], kind: str) -> str:
    condition = conditions.get(kind, {})
    return as_str(condition.get("message")) or as_str(condition.get("reason"))


def _not_initialized(status: Any, conditions: Mapping[str, Mapping[str, Any]]) -> Phase:
    if as_str(conditions["Initialized"].get("reason")) != "ContainersNotInitialized":
        return Phase("InitializeFailed", _message(conditions, "Initialized"))
    return _waiting(as_maps(at(status, "initContainerStatuses")), Phase("Initializing", INIT_HINT))


def _not_ready(status: Any, conditions: Mapping[str, Mapping[str, Any]]) -> Phase:
    if as_str(conditions["Ready"].get("reason")) != "ContainersNotReady":
        return Phase("NotReady", _message(conditions, "Ready"))
    containers = as_maps(at(status, "containerStatuses"))
    for container in containers:
        ended = at(container, "state", "terminated")
        if isinstance(ended, Mapping):
            return Phase("NotReady", _terminated_message(container, ended))
    return _waiting(containers, Phase("Starting", HINT))


def _waiting(containers: Iterable[Mapping[str, Any]], otherwise: Phase) -> Phase:
    """Let the first waiting container that says something speak; a crashing one is still starting."""
    for container in containers:
        text = as_str(at(container, "state", "waiting", "message"))
        if text:
            crashing = at(container, "state", "waiting", "reason") == _CRASHING
            return Phase("Starting" if crashing and otherwise.phase == "Starting" else "NotReady", text)
    return otherwise


def _ended_message(status: Any, ended: str) -> str:
    parts = [as_str(at(status, "reason")), as_str(at(status, "message"))]
    said = ": ".join(part for part in parts if part)
    return said or _ENDED[ended]


def _terminated_message(container: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    said = as_str(ended.get("message")) or as_str(ended.get("reason")) or "ended"
    code = ended.get("exitCode")
    return f"container {as_str(container.get('name'))!r}: {said} (exit code {code})" if code is not None else said
