"""The whole answer: five gates in order, and where it waits.

For: the sub-resource `instances/explain`, the command `explain`. In: evidence. Out: an explanation.
Promises: pure; always five verdicts in the order of the gates; once a gate does not pass, a later one that nobody
asked yet says whom it comes after; what a later gate will refuse for certain is said before an earlier one that only
waits, since that wait is for nothing; the summary is one sentence that a person can act on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from api.explain import cards, placing, quota, webhook
from api.explain.evidence import TITLES, Evidence, Gate, Object, State, Verdict, quoted
from api.instance_status import pod_phase
from nodefeature.fields import as_list, as_str, at, is_deleting

_NOT_ASKED = "Not asked: the Instance is stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """An answer. `waiting_at` is the gate that decides now; None when all passed or nothing is asked for."""

    phase: str
    summary: str
    waiting_at: Gate | None
    gates: tuple[Verdict, ...]


def explain(evidence: Evidence) -> Explanation:
    """Judge all gates and say in one sentence where it waits."""
    stopped = at(evidence.instance, "spec", "stop") is True
    verdicts = _in_order(
        (
            webhook.judge(evidence),
            quota.judge(evidence),
            cards.judge(evidence),
            placing.judge_scheduler(evidence),
            placing.judge_device_plugin(evidence),
        ),
        stopped=stopped and evidence.pod is None,
    )
    deciding = _deciding(verdicts)
    phase = _phase(evidence)
    if is_deleting(evidence.instance) or is_deleting(evidence.pod) or stopped:
        return Explanation(phase=phase, summary=_leaving(evidence, stopped=stopped), waiting_at=None, gates=verdicts)
    if deciding is None:
        return Explanation(phase=phase, summary=_through(evidence), waiting_at=None, gates=verdicts)
    summary = f"{_HOW[deciding.state]} the {TITLES[deciding.gate]}: {deciding.reason}."
    return Explanation(phase=phase, summary=summary, waiting_at=deciding.gate, gates=verdicts)


_HOW = {State.WAITING: "Waiting at", State.REFUSED: "Refused by", State.UNKNOWN: "Not known at"}


def _in_order(verdicts: tuple[Verdict, ...], *, stopped: bool) -> tuple[Verdict, ...]:
    """Let a gate that was not asked yet say whom it comes after."""
    shown: list[Verdict] = []
    before: Verdict | None = None
    for verdict in verdicts:
        told = _told(verdict, before, stopped=stopped)
        if before is None and told.state is not State.PASSED:
            before = told
        shown.append(told)
    return tuple(shown)


def _told(verdict: Verdict, before: Verdict | None, *, stopped: bool) -> Verdict:
    if stopped and verdict.gate is not Gate.WEBHOOK:
        return replace(verdict, state=State.WAITING, reason=_NOT_ASKED, advice="", reached=False)
    if verdict.reached or verdict.reason:
        return verdict
    after = before.gate if before is not None else Gate.WEBHOOK
    return replace(verdict, reason=f"Comes after the {TITLES[after]}")


def _deciding(verdicts: tuple[Verdict, ...]) -> Verdict | None:
    """Return the first gate that did not pass, or the later one that it waits for in truth or in vain."""
    first = next((verdict for verdict in verdicts if verdict.state is not State.PASSED), None)
    if first is not None and first.state is State.WAITING:
        in_vain = next((each for each in verdicts if each.state is State.REFUSED and not each.reached), None)
        first = in_vain or first
    if first is None or first.because is None:
        return first
    return next(
        (verdict for verdict in verdicts if verdict.gate is first.because and verdict.state is not State.PASSED), first
    )


def _phase(evidence: Evidence) -> str:
    if evidence.instance is not None:
        return quoted(as_str(at(evidence.instance, "status", "phase")))
    return quoted(as_str(at(evidence.pod, "status", "phase")))


def _leaving(evidence: Evidence, *, stopped: bool) -> str:
    if evidence.instance is None:
        return _going("Pod", evidence.pod)
    if is_deleting(evidence.instance):
        if evidence.pod is not None:
            return "The Instance is being deleted; its Pod must go first."
        return _going("Instance", evidence.instance)
    if not stopped:
        return "Its Pod is being deleted; a new one is made when it is gone."
    if evidence.pod is not None:
        return "Stopping: its Pod must go first."
    return "Stopped: it asks for nothing until spec.stop is false."


def _going(what: str, obj: Object | None) -> str:
    held = quoted(", ".join(as_str(each) for each in as_list(at(obj, "metadata", "finalizers"))))
    return f"The {what} is being deleted" + (f"; finalizers hold it: {held}." if held else ".")


def _through(evidence: Evidence) -> str:
    """Say how far a Pod is that all gates let pass."""
    node = quoted(as_str(at(evidence.pod, "spec", "nodeName")))
    state = pod_phase(evidence.pod or {})
    if state.phase == "Ready":
        return f"Ready on node {node}: it waits for nothing."
    said = quoted(state.message)
    return f"All gates passed, on node {node}; {state.phase}" + (f": {said}." if said else ".")
