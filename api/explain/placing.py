"""Gates 4 and 5: the scheduler, which finds a node, and the device plugin, which hands out the cards on it.

For: `verdicts`. In: evidence. Out: two verdicts.
Promises: pure; the kubelet's and the scheduler's own words are repeated, at most 500 characters of them; a Pod that
the kubelet refused is a refusal; an annotation that cannot be read is no allocation, and no error either.
"""

from __future__ import annotations

from api.explain.asking import demands, described
from api.explain.evidence import Evidence, Gate, Numbers, State, Verdict, listed, quoted, words
from api.explain.pinning import remedy, stranger
from api.instance_status import is_held_by_kueue
from api.ledger.modes import Mode, mode_name
from api.ledger.transport import transport_of
from nodefeature.fields import as_list, as_maps, as_str, at, condition_of, has_condition, has_ended, name_of
from nodefeature.kinds import NODE

_REBUILD = "The Instance's controller makes it anew while the Instance is young; later stop and start it"


def judge_scheduler(evidence: Evidence) -> Verdict:
    """Return the scheduler's verdict."""
    pod = evidence.pod
    node = quoted(as_str(at(pod, "spec", "nodeName")))
    if node:
        return _scheduler(State.PASSED, f"The Pod is on node {node}")
    reached = pod is not None and not is_held_by_kueue(pod)
    never = stranger(evidence)
    if never:
        return _scheduler(State.REFUSED, never, remedy(evidence), reached=reached)
    if not reached:
        return _scheduler(State.WAITING, "", reached=False)
    gates = [as_str(gate.get("name")) for gate in as_maps(at(pod, "spec", "schedulingGates"))]
    if gates:
        reason = f"Scheduling gates hold the Pod back: {quoted(listed(gates))}"
        return _scheduler(State.WAITING, reason, "Whoever set those gates must take them away")
    said = condition_of(pod, "PodScheduled")
    if said.get("status") == "False":
        advice = _pinned(evidence) or "What the scheduler misses becomes free, or nodes that have it join"
        return _scheduler(State.WAITING, f"No node takes the Pod: {words(said) or 'no reason is given'}", advice)
    name = quoted(as_str(at(pod, "spec", "schedulerName"))) or "default-scheduler"
    return _scheduler(State.WAITING, f"The scheduler {name} has not looked at the Pod yet", "The scheduler must run")


def _scheduler(state: State, reason: str, advice: str = "", *, reached: bool = True) -> Verdict:
    return Verdict(gate=Gate.SCHEDULER, state=state, reason=reason, advice=advice, reached=reached)


def _pinned(evidence: Evidence) -> str:
    """Say what is wrong with the node that an Instance insists on."""
    pin = quoted(as_str(at(evidence.instance, "spec", "nodeName")))
    if not pin:
        return ""
    if evidence.node is None:
        return evidence.unread_reason(NODE) or f"Node {pin}, which spec.nodeName names, must exist"
    return f"The Instance is pinned to node {pin}" + _node_fault(evidence)


def _node_fault(evidence: Evidence) -> str:
    node = evidence.node
    if node is None:
        return ""
    if at(node, "spec", "unschedulable") is True:
        return f", and node {name_of(node)} is cordoned"
    ready = condition_of(node, "Ready")
    if ready and ready.get("status") != "True":
        return f", and node {name_of(node)} is not ready"
    return ""


def judge_device_plugin(evidence: Evidence) -> Verdict:
    """Return the device plugin's verdict."""
    pod = evidence.pod
    wanted = demands(evidence)
    numbers = Numbers(unit="cards", asked=sum(demand.cards for demand in wanted)) if wanted else Numbers()
    if pod is None or not at(pod, "spec", "nodeName"):
        return _plugin(State.WAITING, "", numbers, reached=False)
    refused = _refused(evidence, numbers)
    if refused:
        return refused
    if not wanted:
        return _plugin(State.PASSED, "The Pod asks for no card")
    transport = transport_of(pod)
    held = [record for record in transport.records if record.mode is not Mode.VISIBILITY]
    if held:
        cards = listed(dict.fromkeys(f"{quoted(record.card_id)} ({mode_name(int(record.mode))})" for record in held))
        return _plugin(State.PASSED, f"The Pod holds {cards}", numbers)
    if not transport.readable:
        reason = "What the node's agent wrote on the Pod about its cards cannot be read"
        return _plugin(State.UNKNOWN, reason, numbers, "Stop and start it; only the agents may write that annotation")
    return _unanswered(evidence, numbers)


def _plugin(
    state: State, reason: str, numbers: Numbers | None = None, advice: str = "", *, reached: bool = True
) -> Verdict:
    shown = numbers if numbers is not None else Numbers()
    return Verdict(gate=Gate.DEVICE_PLUGIN, state=state, reason=reason, advice=advice, numbers=shown, reached=reached)


def _refused(evidence: Evidence, numbers: Numbers) -> Verdict | None:
    """Judge a Pod that failed before it ran: nobody started a container of it."""
    pod = evidence.pod
    status = at(pod, "status")
    if at(status, "phase") != "Failed" or as_list(at(status, "containerStatuses")):
        return None
    why = quoted(as_str(at(status, "reason"))) or "no reason is given"
    said = quoted(as_str(at(status, "message")))
    reason = f"The kubelet of {quoted(as_str(at(pod, 'spec', 'nodeName')))} refused the Pod: {why}"
    advice = _REBUILD if evidence.instance is not None else "Delete the Pod and create it anew"
    return _plugin(State.REFUSED, reason + (f" ({said})" if said else ""), numbers, advice)


def _unanswered(evidence: Evidence, numbers: Numbers) -> Verdict:
    """Judge a bound Pod that asks for cards and has none written on it."""
    pod = evidence.pod
    node = quoted(as_str(at(pod, "spec", "nodeName")))
    if has_condition(pod, "Ready") or has_ended(pod):
        return _plugin(State.PASSED, "The Pod has run; no record of its cards stands on it", numbers)
    asked = listed(described(demand) for demand in demands(evidence))
    unread = evidence.unread_reason(NODE)
    if evidence.node is None:
        reason = unread or f"Node {node} is gone"
        return _plugin(State.UNKNOWN if unread else State.REFUSED, reason, numbers, "Stop and start it")
    fault = _node_fault(evidence)
    if "not ready" in fault:
        return _plugin(
            State.WAITING, f"Node {node} is not ready, so nobody hands out {asked}", numbers, "It comes back"
        )
    reason = f"The agent on node {node} has not handed out {asked} yet"
    return _plugin(State.WAITING, reason, numbers, f"The device manager on {node} must run")
