"""What makes `node_flavor` look at a flavor again (spec 04 §6).

For: `node_flavor`.
In: old and new state of a Node, NodeFeature, ResourceFlavor, Topology or InstanceType. Out: names of flavors.
Promises: pure but for cached reads; null and wrong-typed fields are legal; a heartbeat asks for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from controllers.contributors import flavor_names, names_through_feature, names_under_any_setting
from controllers.node_view import cached_labels, node_of_feature
from controllers.ownership import is_our_flavor
from kube.reconciler import Caches, Key, Object
from nodefeature.fields import annotations_of, at, is_deleting, labels_of, name_of
from nodefeature.fit_labels import equal_but_fit_labels
from nodefeature.kinds import RESOURCE_FLAVOR
from nodefeature.labels import DERIVED_FROM_NODE, NOTE_PREFIX, TRUE
from nodefeature.queue_names import PREFIX


def flavor_changed(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Ask for a flavor of ours that came, went, or says something else, and for one that no longer has our name."""
    if not is_our_flavor(old) and not is_our_flavor(new):
        freed = new is None and name_of(old).startswith(PREFIX)
        return (Key(name_of(old)),) if freed else ()
    if new is not None and (is_deleting(new) or (old is not None and _meaning(old) == _meaning(new))):
        return ()
    return (Key(name_of(new if new is not None else old)),)


def _meaning(flavor: Object) -> tuple[object, ...]:
    notes = {key: value for key, value in annotations_of(flavor).items() if key.startswith(NOTE_PREFIX)}
    return (flavor.get("spec"), labels_of(flavor), notes)


def flavors_of_node(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Ask for the flavors a node had and has, when what they are made of changed."""
    if old is not None and new is not None and _same_inputs(old, new):
        return ()
    names: dict[str, None] = {}
    for node in (old, new):
        if node is not None:
            names |= dict.fromkeys(flavor_names(cached_labels(node, caches), annotations_of(node)))
    return [Key(name) for name in names]


def _same_inputs(old: Object, new: Object) -> bool:
    """Say whether flavors are made of the same; fit labels change with every card that is taken, and make none."""
    same = all(at(old, *path) == at(new, *path) for path in (("metadata", "annotations"), ("spec", "taints")))
    return same and equal_but_fit_labels(labels_of(old), labels_of(new))


def flavors_of_feature(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Ask for the flavors of the node that a changed NodeFeature of ours speaks of."""
    if not node_of_feature(new if new is not None else old):
        return ()
    if old is not None and new is not None and at(old, "spec", "labels") == at(new, "spec", "labels"):
        return ()
    names = (*names_through_feature(old, new, caches), *names_through_feature(new, old, caches))
    return [Key(name) for name in dict.fromkeys(names)]


def all_flavors(caches: Caches) -> list[Key]:
    """Return all flavors of ours."""
    return [Key(name_of(flavor)) for flavor in caches[RESOURCE_FLAVOR].list() if is_our_flavor(flavor)]


def flavors_of_setting(caches: Caches) -> Iterable[Key]:
    """Ask for all flavors of ours and all that the nodes have under any setting."""
    return dict.fromkeys([*all_flavors(caches), *map(Key, names_under_any_setting(caches))])


def flavors_of_deleted_type(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Ask for all flavors when a derived type is gone, so that it is authored again."""
    derived = new is None and labels_of(old).get(DERIVED_FROM_NODE) == TRUE
    return all_flavors(caches) if derived else ()


def flavors_of_topology(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """A Topology that goes, or comes back with other levels, is looked at by every flavor that names it."""
    if old is None:
        return ()
    name = name_of(old)
    flavors = caches[RESOURCE_FLAVOR].list()
    return [Key(name_of(f)) for f in flavors if is_our_flavor(f) and at(f, "spec", "topologyName") == name]
