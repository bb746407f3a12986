"""The status of an InstanceType: phase, detail, the four views, the CPU view and the printed summary.

For: instance_type (spec 04 §7, spec 02 §4; design §8.5, §8.6, §8.11).
In: `PoolFacts`: the type's spec, its queue, the pool's flavors, the folded contributions of its nodes.
Out: the whole `status`, ready to be compared and written.
Promises: pure; exact integers; every field the kind declares as always emitted is there; equal facts give equal status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from api.instance_type import HOLD_AND_DRAIN, INACTIVE, InstanceTypeSpec, InstanceTypeStatus, phase_of_queue
from api.ledger.views import EMPTY_VIEWS, FourViews, View, sliced_detail, status_of
from api.summary import instance_type_summary
from controllers.queue_state import MIGRATION_PHASE, NONE, SWITCHED, QueueState
from nodefeature.fields import annotations_of, as_map, as_str, at
from nodefeature.labels import EMPTY_PLAN_HOLD, NOTE_PREFIX, TRUE
from nodefeature.quantity import NANO, of
from nodefeature.queue_names import local_queue_name

CPU_FIELDS = (
    "physicalCores",
    "threadsPerPhysicalCore",
    "logicalCores",
    "stepping",
    "clockSpeed",
    "maxClockSpeed",
    "cacheLine",
)
CACHE_FIELDS = ("l1i", "l1d", "l2", "l3")

# An Instance of a CPU type requests 800m for each core it may use (spec 01 §12.3).
_OVERCOMMIT_NUMERATOR, _OVERCOMMIT_DENOMINATOR = 10, 8


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """Everything a status is made of."""

    instance_type: Mapping[str, Any]
    state: QueueState
    flavors: Sequence[Mapping[str, Any]] = ()
    """The pool's live ResourceFlavors, by name."""
    views: FourViews = EMPTY_VIEWS
    """Of the nodes that may take new work."""
    capability: FourViews = EMPTY_VIEWS
    """Of all nodes: what the pool is, whoever is cordoned today."""
    compute_capability: str = ""
    cpu_reserved_nano: int = 0
    unusable: Mapping[str, int] = field(default_factory=dict)
    """Nodes per flavor that may not take new work."""
    aware: bool = False
    overcommit: bool = False


def build_status(facts: PoolFacts) -> dict[str, Any]:
    """Return the status a type should have."""
    spec = as_map(at(facts.instance_type, "spec"))
    phase, message = phase_of(facts.state, has_flavors=bool(facts.flavors))
    draining = facts.state.stop_policy == HOLD_AND_DRAIN
    accelerated = spec.get("acceleratable") is True
    views = facts.views if accelerated and not draining else EMPTY_VIEWS
    cpu = View() if accelerated or draining else cpu_view(facts)
    status = {
        **status_of(views),
        "cpu": _resource(cpu),
        "detail": build_detail(facts),
        "entrance": local_queue_name(facts.state.name),
        "phase": phase,
    }
    if message:
        status["phaseMessage"] = message
    status["summary"] = instance_type_summary(cast(InstanceTypeSpec, spec), cast(InstanceTypeStatus, status))
    return status


def terminating_status(name: str) -> dict[str, Any]:
    """Return the status of a type whose queue is being taken down."""
    return {
        **status_of(EMPTY_VIEWS),
        "cpu": _resource(View()),
        "entrance": local_queue_name(name),
        "phase": INACTIVE,
        "phaseMessage": "instance type is terminating",
    }


def foreign_queue_status(name: str) -> dict[str, Any]:
    """Return the status of a type whose name is taken by somebody else's queue."""
    message = f"ClusterQueue {name} exists and is not managed by this operator; delete it, or use another name"
    return {**terminating_status(name), "phaseMessage": message}


def phase_of(state: QueueState, *, has_flavors: bool = True) -> tuple[str, str]:
    """Return phase and message of a queue (spec 04 §7, spec 02 §4.5); a hold of ours says what it waits for."""
    known = phase_of_queue(
        state.stop_policy, reserving=state.reserved, active=state.active.status, message=state.active.message
    )
    held = known.phase == INACTIVE and state.stop_policy != NONE
    return known.phase, known.message + (_why_held(state, has_flavors=has_flavors) if held else "")


def _why_held(state: QueueState, *, has_flavors: bool) -> str:
    ours = state.annotation(EMPTY_PLAN_HOLD) == TRUE or state.annotation(MIGRATION_PHASE) == SWITCHED
    if not ours:
        return ""
    if not has_flavors:
        return ": no resource flavor offers this hardware; no managed node has it, or the pool was renamed"
    refused = state.topology_ready
    if refused.status == "False" and refused.message:
        return f": {refused.reason}: {refused.message}"
    return ""


def count_in_name(flavor: str) -> int:
    """Return what one node of a flavor offers, read from its name; 0 when no segment says so.

    A topology profile may follow the count (`...-4c-fnv64-<16 hex>`); its digits are no count.
    """
    head, separator, profile = flavor.rpartition("-fnv64-")
    segments = (head if separator and "-" not in profile else flavor).split("-")
    for segment in reversed(segments):
        if segment[-1:] in ("c", "d") and segment[:-1].isascii() and segment[:-1].isdigit():
            return int(segment[:-1])
    return 0


def cpu_view(facts: PoolFacts) -> View:
    """Return the CPU view in whole cores: what the queue has and what its workloads leave.

    Nodes that may not take new work are taken out; what runs on them cannot be told from the queue, so all
    reservations count against the others: the view promises too little rather than too much.
    """
    capacity = largest = 0
    for group in facts.state.groups:
        for quotas in group.flavors:
            count = count_in_name(quotas.flavor)
            nominal = sum(max(quota.nano, 0) for quota in quotas.resources if quota.resource == "cpu") // NANO
            usable = max(0, nominal - facts.unusable.get(quotas.flavor, 0) * count)
            capacity += usable
            largest = max(largest, count if usable else 0)
    reserved = facts.cpu_reserved_nano
    if facts.overcommit:
        reserved = reserved * _OVERCOMMIT_NUMERATOR // _OVERCOMMIT_DENOMINATOR
    remaining = max(0, (capacity * NANO - reserved) // NANO)
    return View(min(largest, remaining), remaining, capacity)


def build_detail(facts: PoolFacts) -> dict[str, Any]:
    """Return what the pool's hardware is, from the notes of one flavor and the capability of its cards."""
    accelerated = at(facts.instance_type, "spec", "acceleratable") is True
    detail: dict[str, Any] = {"cache": {}, "cpu": {"cache": {}}, "slicedDetail": sliced_detail(EMPTY_VIEWS)}
    if not facts.flavors or (not accelerated and not facts.aware):
        return detail
    notes = _notes(facts.flavors[0])
    detail |= _present({key: notes.get(key, "") for key in ("manufacturer", "product", "family")})
    cpu = _cpu_note(notes.get("cpuDetail", ""))
    if not accelerated:
        return detail | _cpu_fields(cpu)
    versions = list(facts.capability.runtime_versions)
    detail |= _present({"memory": notes.get("memory", ""), "cores": notes.get("cores", "")})
    detail |= _present({"computeCapability": facts.compute_capability})
    detail["slicedDetail"] = sliced_detail(facts.capability)
    if versions:
        detail |= {"runtimeVersion": versions[0], "runtimeVersions": versions}
    if facts.aware:
        identity = {key: as_str(cpu.get(key)) for key in ("manufacturer", "product", "family")}
        detail["cpu"] = _cpu_fields(cpu) | _present(identity)
    return detail


def _notes(flavor: Mapping[str, Any]) -> dict[str, str]:
    return {
        key.removeprefix(NOTE_PREFIX): value
        for key, value in annotations_of(flavor).items()
        if key.startswith(NOTE_PREFIX)
    }


def _cpu_note(text: str) -> Mapping[str, Any]:
    try:
        return as_map(json.loads(text)) if text else {}
    except ValueError:
        return {}


def _cpu_fields(cpu: Mapping[str, Any]) -> dict[str, Any]:
    cache = as_map(cpu.get("cache"))
    return {
        **_present({key: as_str(cpu.get(key)) for key in CPU_FIELDS}),
        "cache": _present({key: as_str(cache.get(key)) for key in CACHE_FIELDS}),
    }


def _present(pairs: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in pairs.items() if value}


def _resource(view: View) -> dict[str, str]:
    return {
        "onceMaxRequest": str(of(view.once)),
        "remaining": str(of(view.remaining)),
        "capacity": str(of(view.capacity)),
    }
