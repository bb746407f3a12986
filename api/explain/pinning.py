"""The node that an Instance insists on, of its pool or none of it.

For: the gates of the card check and the scheduler. In: evidence. Out: a sentence, and what would change it;
or the node of the pool whose figures alone count.
Promises: pure; nothing is claimed of a node or a pool that was not read; a node of the pool is never called a stranger:
what is compared are the labels that every flavor of the pool puts on its Pods. Admission takes such an Instance, since
the node may join the pool later (spec 05 §7.1, decision 0532).
"""

from __future__ import annotations

from api.explain.evidence import Evidence, listed, quoted
from nodefeature.fields import as_str, at, labels_of, name_of
from nodefeature.pool import kept_out_by

ELSEWHERE = "stop the Instance, set spec.nodeName to another node or to nothing, start it"


def stranger(evidence: Evidence) -> str:
    """Return why the pinned node can never run the Instance as both stand; empty when it can, or nobody knows."""
    pin = as_str(at(evidence.instance, "spec", "nodeName"))
    if not pin or evidence.node is None or name_of(evidence.node) != pin:
        return ""
    faults = kept_out_by(labels_of(evidence.node), labels_of(evidence.cluster_queue))
    if not faults:
        return ""
    pool = quoted(name_of(evidence.cluster_queue))
    return f"Node {quoted(pin)}, which spec.nodeName names, is none of pool {pool}: {listed(faults)}"


def pinned(evidence: Evidence) -> str:
    """Return the node of the pool that alone may run the Instance; empty when any may, or it is a stranger."""
    return "" if stranger(evidence) else as_str(at(evidence.instance, "spec", "nodeName"))


def remedy(evidence: Evidence) -> str:
    """Return what lets an Instance with a strange node run."""
    pin = quoted(as_str(at(evidence.instance, "spec", "nodeName")))
    another = "set spec.nodeName to a node of the pool or to nothing"
    return f"Stop the Instance, {another}, start it; or let {pin} join the pool"
