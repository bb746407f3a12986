"""Gate 1, the webhook: is there a Pod, and was it looked at?

For: `verdicts`. In: evidence. Out: a verdict.
Promises: pure; an Instance without a Pod gets the reason why none was made, which its controller wrote on it; slices
and partitions without units are a Pod that nobody looked at, since only the webhook writes them.
"""

from __future__ import annotations

from api.explain.asking import demands, described, unfolded
from api.explain.evidence import Evidence, Gate, State, Verdict, listed, quoted, words
from api.instance_conditions import ConditionType
from api.instance_type import HOLD_AND_DRAIN
from api.ledger.fit import detail_ready
from nodefeature.fields import as_map, as_str, at, condition_of, is_deleting, labels_of
from nodefeature.kinds import CLUSTER_QUEUE, INSTANCE_TYPE, POD
from nodefeature.labels import QUEUE_NAME


def judge(evidence: Evidence) -> Verdict:
    """Return the webhook's verdict."""
    if evidence.pod is not None:
        return _of_pod(evidence)
    unread = evidence.unread_reason(POD)
    if unread:
        return _verdict(State.UNKNOWN, unread)
    return _without_pod(evidence)


def _verdict(state: State, reason: str, advice: str = "", *, reached: bool = True) -> Verdict:
    return Verdict(gate=Gate.WEBHOOK, state=state, reason=reason, advice=advice, reached=reached)


def _of_pod(evidence: Evidence) -> Verdict:
    missing = unfolded(evidence)
    if missing:
        bases = listed(dict.fromkeys(f"{claim.base}.{claim.family}" for claim in missing))
        return _verdict(
            State.REFUSED,
            f"The Pod asks for {bases} and carries no units: the webhook that writes them has not seen it",
            "Create the Pod anew while MutatingWebhookConfiguration gpustack-worker-mutation is installed",
        )
    asked = listed(described(demand) for demand in demands(evidence)) or "no accelerator"
    if not labels_of(evidence.pod).get(QUEUE_NAME):
        return _verdict(State.PASSED, f"The Pod names no queue, so it was not sent to the webhook; it asks for {asked}")
    return _verdict(State.PASSED, f"The Pod was admitted; it asks for {asked}")


def _without_pod(evidence: Evidence) -> Verdict:
    if at(evidence.instance, "spec", "stop") is True:
        advice = "Set spec.stop to false to start it"
        return _verdict(State.WAITING, "The Instance is stopped and asks for nothing", advice, reached=False)
    wanted = quoted(as_str(at(evidence.instance, "spec", "type")))
    unread = evidence.unread_reason(INSTANCE_TYPE)
    if unread:
        return _verdict(State.UNKNOWN, unread)
    choose = "Set spec.type to one that `kubectl get instancetypes` shows as Active"
    if evidence.instance_type is None:
        return _verdict(State.REFUSED, f"There is no InstanceType {wanted!r}", choose)
    if is_deleting(evidence.instance_type):
        return _verdict(State.REFUSED, f"InstanceType {wanted} is being deleted", choose)
    if at(evidence.cluster_queue, "spec", "stopPolicy") == HOLD_AND_DRAIN:
        reason = f"InstanceType {wanted} is draining: its Instances are stopped"
        return _verdict(State.REFUSED, reason, choose + ", or wait until this one is Active again and start anew")
    return _unbuilt(evidence, wanted)


def _unbuilt(evidence: Evidence, wanted: str) -> Verdict:
    status = as_map(at(evidence.instance_type, "status"))
    if at(evidence.instance_type, "spec", "acceleratable") is True and not detail_ready(as_map(status.get("detail"))):
        reason = f"What cards InstanceType {wanted} has is not known yet"
        return _verdict(State.WAITING, reason, "A node agent publishes the cards of a node of this pool")
    if not as_str(status.get("entrance")):
        reason = f"InstanceType {wanted} has published no entrance yet"
        return _verdict(State.WAITING, reason, "The controllers must run; they write it within seconds")
    said = words(condition_of(evidence.instance, ConditionType.ADMITTED)) or quoted(
        as_str(at(evidence.instance, "status", "phaseMessage"))
    )
    if said:
        return _verdict(State.WAITING, f"There is no Pod yet: {said}", "What is said there must change")
    queue = evidence.unread_reason(CLUSTER_QUEUE)
    return _verdict(State.WAITING, "There is no Pod yet", queue or "The controllers must run; they make it in seconds")
