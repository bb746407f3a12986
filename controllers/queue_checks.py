"""Which admission checks a queue refers to.

For: node_queue (spec 04 §8, spec 07 §4).
In: cached AdmissionChecks, the pool's kind, the setting. Out: references in their fixed order.
Promises: pure; a check that is not Active, or that another controller answers, is never referred to: Kueue would stop
the whole queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controllers.queue_state import Check
from nodefeature.fields import as_str, at, has_condition, name_of
from nodefeature.queue_names import NODE_DEVICES_CHECK

NODE_DEVICES_CONTROLLER = "worker.gpustack.ai/node-devices"
JOINT_CHECK = "gpustack-model-deployment-joint"
JOINT_CONTROLLER = "worker.gpustack.ai/model-deployment-joint"
_CONTROLLERS = {NODE_DEVICES_CHECK: NODE_DEVICES_CONTROLLER, JOINT_CHECK: JOINT_CONTROLLER}


def is_our_check(check: Mapping[str, Any]) -> bool:
    """Say whether one of our controllers answers this AdmissionCheck."""
    return as_str(at(check, "spec", "controllerName")) in _CONTROLLERS.values()


def is_active(check: Mapping[str, Any]) -> bool:
    """Say whether the check's controller declared it usable."""
    return has_condition(check, "Active")


def queue_checks(checks: Iterable[Mapping[str, Any]], *, accelerated: bool, derived: bool) -> tuple[Check, ...]:
    """Return the references of a queue.

    `derived` is setting `instance-type-derived-from-node`: it governs the per-card check only; the joint check is
    for every queue.
    """
    usable = {
        name_of(check)
        for check in checks
        if is_active(check) and _CONTROLLERS.get(name_of(check)) == as_str(at(check, "spec", "controllerName"))
    }
    wanted = ((NODE_DEVICES_CHECK, accelerated and derived), (JOINT_CHECK, True))
    return tuple(Check(name) for name, applies in wanted if applies and name in usable)
