"""Whose a ResourceFlavor or a ClusterQueue is.

For: every reconciler of the chain, which touches nothing of somebody else's (decision 0201).
In: a cached object. Out: yes or no.
Promises: pure; never raises on null or wrong-typed fields.
Trusts: whoever may write flavors and queues (us, Kueue, administrators); tenants may not.

Two questions. `is_our_...`: does it carry our type label, so that the chain works with it? `we_made_...`: did we make
it, though a hand took the label away, so that the label may be put back? A namesake with neither is somebody else's.
"""

from __future__ import annotations

from controllers.queue_state import QUEUE_ANNOTATIONS
from nodefeature.fields import annotations_of, labels_of
from nodefeature.labels import NOTE_PREFIX, RESOURCE_TYPE, TYPE_INSTANCE_TYPES, TYPE_NODES


def is_our_flavor(flavor: object) -> bool:
    """Say whether a ResourceFlavor carries our type label."""
    return labels_of(flavor).get(RESOURCE_TYPE) == TYPE_NODES


def we_made_flavor(flavor: object) -> bool:
    """Say whether a ResourceFlavor carries our type label or a note of ours."""
    return is_our_flavor(flavor) or any(key.startswith(NOTE_PREFIX) for key in annotations_of(flavor))


def is_our_queue(queue: object) -> bool:
    """Say whether a ClusterQueue carries our type label."""
    return labels_of(queue).get(RESOURCE_TYPE) == TYPE_INSTANCE_TYPES


def we_made_queue(queue: object) -> bool:
    """Say whether a ClusterQueue carries our type label, or an annotation of ours as it does from its first moment."""
    return is_our_queue(queue) or any(key in annotations_of(queue) for key in QUEUE_ANNOTATIONS)
