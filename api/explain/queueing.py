"""The place in the queue: how many Workloads come first.

For: `quota`. In: evidence. Out: two counts. Promises: pure; by priority, then by age, then by name, as Kueue orders a
queue; a Workload that was put out for slow Pods is younger there than it looks here, so the place is an estimate then.
"""

from __future__ import annotations

from api.explain.evidence import Evidence, Numbers, Object
from nodefeature.fields import as_int, as_str, at, has_condition, is_deleting, name_of, namespace_of, uid_of
from nodefeature.kinds import WORKLOAD


def place_in_queue(evidence: Evidence) -> Numbers:
    """Return how many Workloads wait, and how many of them come before this one; nothing without a Workload."""
    own = evidence.workload
    if own is None or evidence.unread_reason(WORKLOAD):
        return Numbers()
    others = [each for each in evidence.rivals if is_pending(each) and not _same(each, own)]
    mine = rank(own)
    ahead = sum(1 for each in others if rank(each) < mine)
    shown = as_int(at(evidence.cluster_queue, "status", "pendingWorkloads"))
    partial = WORKLOAD.plural in evidence.partial
    return Numbers(ahead=ahead, pending=max(shown, len(others) + 1), at_least=partial)


def is_pending(workload: Object) -> bool:
    """Say whether a Workload waits for quota."""
    return (
        not is_deleting(workload)
        and at(workload, "spec", "active") is not False
        and not has_condition(workload, "QuotaReserved")
        and not has_condition(workload, "Finished")
    )


def rank(workload: Object) -> tuple[int, str, str, str]:
    """Return what waiting Workloads are ordered by."""
    return (
        -as_int(at(workload, "spec", "priority")),
        as_str(at(workload, "metadata", "creationTimestamp")),
        namespace_of(workload),
        name_of(workload),
    )


def _same(one: Object, other: Object) -> bool:
    if uid_of(one) or uid_of(other):
        return uid_of(one) == uid_of(other)
    return (namespace_of(one), name_of(one)) == (namespace_of(other), name_of(other))
