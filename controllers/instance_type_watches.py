"""What wakes an InstanceType, and where its parts are found in the caches.

For: instance_type (spec 04 §7, "Watches").
In: changed objects. Out: keys of InstanceTypes; the declared indexes.
Promises: pure; a change that cannot show in a type wakes none; every function takes null and wrong-typed fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from controllers.instance_type_queue import PoolIdentity, identity_of
from controllers.node_view import cached_labels, is_ready, is_usable, node_of_feature
from controllers.ownership import is_our_flavor, we_made_queue
from kube.reconciler import Caches, Index, Key, Object
from nodefeature.fields import annotations_of, as_bool, as_map, as_maps, at, is_deleting, labels_of, name_of, str_map
from nodefeature.fit_labels import equal_but_fit_labels
from nodefeature.keys import clean_key
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, INSTANCE_TYPE, NODE
from nodefeature.labels import ARCH, DEVICE_PREFIX, NOTE_PREFIX, OS, TRUE, is_managed
from nodefeature.pool import is_feature_key, matches, pool_flavor_selector

DEVICES_BY_POOL = "instance-type-pool"
TYPES_BY_FEATURE = "instance-type-feature"
TYPES_BY_PLATFORM = "instance-type-platform"
UNSETTLED_NODES = "instance-type-unsettled"


def _place(*parts: str) -> str:
    return "|".join(parts)


def _features_of(labels: Mapping[str, str]) -> list[str]:
    """Return the feature keys as pools spell them; older agents wrote what the vendor calls a card."""
    return [_clean(key) for key, value in labels.items() if value == TRUE and is_feature_key(key)]


def _clean(key: str) -> str:
    if not key.startswith(DEVICE_PREFIX):
        return key
    return DEVICE_PREFIX + clean_key(key.removeprefix(DEVICE_PREFIX))


def device_pools(devices: Object) -> Collection[str]:
    """Return where a managed Devices object is filed, once for each model of its cards."""
    labels = labels_of(devices)
    if not is_managed(labels):
        return ()
    os, arch = labels.get(OS, ""), labels.get(ARCH, "")
    return [_place(key, os, arch) for key in _features_of(labels) if key.startswith(DEVICE_PREFIX)]


def _type_features(instance_type: Object) -> Iterable[str]:
    """File a type under its labels, and under its own accelerator, which a webhook may not have stamped yet."""
    pool = identity_of(instance_type)
    keys = set(_features_of(labels_of(instance_type)))
    if pool.acceleratable and pool.accelerator_group:
        keys.add(DEVICE_PREFIX + pool.accelerator_group)
    return [_place(key, pool.os, pool.arch) for key in keys]


def _type_platform(instance_type: Object) -> Iterable[str]:
    pool = identity_of(instance_type)
    return (_place(pool.os, pool.arch),)


def _node_platform(node: object) -> str:
    labels = labels_of(node)
    return _place(labels.get(OS, ""), labels.get(ARCH, ""))


def _unsettled(node: Object) -> Iterable[str]:
    """File only nodes that some pool may have to do without, so that a refresh looks at few nodes."""
    return () if is_usable(node, ()) else (_node_platform(node),)


def types_changed(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    """Run a type for what people wrote, not for its own status."""
    if new is None:
        return ()
    same = old is not None and _written(old) == _written(new)
    return () if same else (Key(name_of(new)),)


def _written(instance_type: Object) -> tuple[object, ...]:
    metadata = as_map(instance_type.get("metadata"))
    return metadata.get("generation"), is_deleting(instance_type), metadata.get("finalizers")


def type_of_queue(old: Object | None, new: Object | None, _: Caches) -> Iterable[Key]:
    """Run the type of any changed queue of ours, also of one that is gone."""
    shown = new if new is not None else old
    return (Key(name_of(shown)),) if shown is not None and we_made_queue(shown) else ()


def types_of_devices(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Return the types whose labels, or own accelerator, a managed Devices object carries."""
    found: set[Key] = set()
    for devices in (old, new):
        labels = labels_of(devices)
        if devices is None or not is_managed(labels):
            continue
        for key in _features_of(labels):
            place = _place(key, labels.get(OS, ""), labels.get(ARCH, ""))
            found.update(Key(name_of(it)) for it in caches[INSTANCE_TYPE].by(TYPES_BY_FEATURE, place))
    return found


def types_of_flavor(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Run the types whose details a flavor tells."""
    if old is not None and new is not None and _shown(old) == _shown(new):
        return ()
    shown = [labels_of(flavor) for flavor in (old, new) if flavor is not None and is_our_flavor(flavor)]
    keys = []
    for queue in caches[CLUSTER_QUEUE].list():
        selector = pool_flavor_selector(labels_of(queue))
        if selector and any(matches(selector, labels) for labels in shown):
            keys.append(Key(name_of(queue)))
    return keys


def _shown(flavor: Object) -> tuple[object, ...]:
    notes = {key: value for key, value in annotations_of(flavor).items() if key.startswith(NOTE_PREFIX)}
    return labels_of(flavor), notes, is_deleting(flavor), at(flavor, "spec", "tolerations")


def types_of_node(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Run the pools of a platform when a node of it stops or starts taking work, its own when its labels change."""
    shown = [node for node in (old, new) if node is not None]
    found: set[Key] = set()
    if _standing(old) != _standing(new):
        for place in {_node_platform(node) for node in shown}:
            found.update(Key(name_of(it)) for it in caches[INSTANCE_TYPE].by(TYPES_BY_PLATFORM, place))
    if not equal_but_fit_labels(labels_of(old), labels_of(new)):
        found |= _types_with_cards([labels_of(node) for node in shown], caches)
    return found


def types_of_feature(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Run the accelerated pools of a node that one of our NodeFeatures says something else about."""
    shown = [str_map(at(feature, "spec", "labels")) for feature in (old, new)]
    node = caches[NODE].get(Key(node_of_feature(new if new is not None else old)))
    if node is None or shown[0] == shown[1]:
        return ()
    own = cached_labels(node, caches)
    return _types_with_cards([{**labels, **own} for labels in shown], caches)


def _types_with_cards(shown: Iterable[Mapping[str, str]], caches: Caches) -> set[Key]:
    places = {
        _place(key, labels.get(OS, ""), labels.get(ARCH, ""))
        for labels in shown
        for key in _features_of(labels)
        if key.startswith(DEVICE_PREFIX)
    }
    return {Key(name_of(it)) for place in places for it in caches[INSTANCE_TYPE].by(TYPES_BY_FEATURE, place)}


def _standing(node: Object | None) -> tuple[object, ...]:
    """Return what decides about new work; an absent node and one without any trouble stand the same."""
    if node is None:
        return (True, False, ())
    taints = as_maps(at(node, "spec", "taints"))
    cordoned = as_bool(at(node, "spec", "unschedulable")) or is_deleting(node)
    return is_ready(node), cordoned, tuple((t.get("key"), t.get("value"), t.get("effect")) for t in taints)


def all_types(caches: Caches) -> Iterable[Key]:
    """Return every type."""
    return [Key(name_of(instance_type)) for instance_type in caches[INSTANCE_TYPE].list()]


def device_place(pool: PoolIdentity) -> str:
    """Return where DEVICES_BY_POOL files the Devices of an accelerated pool."""
    return _place(DEVICE_PREFIX + pool.accelerator_group, pool.os, pool.arch)


def platform_place(pool: PoolIdentity) -> str:
    """Return where UNSETTLED_NODES files the nodes that may be out of the pool's promise."""
    return _place(pool.os, pool.arch)


INDEXES = (
    Index(DEVICES, DEVICES_BY_POOL, device_pools),
    Index(INSTANCE_TYPE, TYPES_BY_FEATURE, _type_features),
    Index(INSTANCE_TYPE, TYPES_BY_PLATFORM, _type_platform),
    Index(NODE, UNSETTLED_NODES, _unsettled),
)
