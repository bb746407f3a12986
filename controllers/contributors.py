"""Which nodes stand behind a flavor.

For: `node_flavor`, which counts them (spec 04 §6).
In: cached Nodes and our NodeFeatures. Out: the flavors of a node, the nodes of a flavor.
Promises: the nodes of one flavor are kept, never looked for among all nodes; a node whose labels NFD took away stands
behind the flavors that our NodeFeatures give it (design §8.4); nothing kept here depends on a setting, so a flipped one
needs no new reading.
Trusts: Node labels (NFD, kubelet, administrators), NodeFeatures in our namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from controllers.node_filing import NodeFiling
from controllers.node_view import FEATURES_BY_NODE, cached_labels, cpu_key, effective_labels, node_of_feature
from kube.reconciler import Caches, Index, Key, Object
from nodefeature.device_labels import is_accelerated
from nodefeature.fields import annotations_of, as_map, as_str, at, labels_of, name_of
from nodefeature.flavor import NodeFlavor, extract_node_flavors
from nodefeature.kinds import NODE, NODE_FEATURE
from nodefeature.labels import (
    ACCELERATABLE,
    ARCH,
    CPU_ANNOTATION_PREFIX,
    CPU_FAMILY,
    CPU_ID,
    CPU_VENDOR,
    DEVICE_PREFIX,
    GENERAL_PREFIX,
    MANAGED,
    OS,
    TOPOLOGY_PROFILE,
    TRUE,
    is_managed,
)
from nodefeature.topology import flavor_object_name

# What a flavor's name is made of, among a node's labels and annotations.
_TELLING = (
    MANAGED,
    TOPOLOGY_PROFILE,
    ACCELERATABLE,
    GENERAL_PREFIX,
    DEVICE_PREFIX,
    CPU_VENDOR,
    CPU_FAMILY,
    CPU_ID,
    OS,
    ARCH,
)
_CPU_NAME = CPU_ANNOTATION_PREFIX + "name"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a node is to flavors; nodes of one shape share it, and a fleet has few shapes."""

    flavors: tuple[str, ...]
    """Names while CPUs are not told apart."""
    aware_flavors: tuple[str, ...]
    """Names while they are."""
    accelerated: bool

    def names(self, *, cpu_aware: bool) -> tuple[str, ...]:
        """Return the names of the flavors under a setting."""
        return self.aware_flavors if cpu_aware else self.flavors


@dataclass(frozen=True, slots=True)
class Contributor:
    """One node behind a flavor. `added` are labels that only our NodeFeatures carry."""

    node: Object
    shape: Shape
    added: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> Mapping[str, str]:
        """Return all effective labels; walks the node's labels, so not for loops over thousands."""
        own = labels_of(self.node)
        return {**self.added, **own} if self.added else own

    def label(self, key: str) -> str:
        """Return one effective label, empty when it is absent."""
        return as_str(at(self.node, "metadata", "labels", key)) or self.added.get(key, "")

    def annotation(self, key: str) -> str:
        """Return one annotation, empty when it is absent."""
        return as_str(at(self.node, "metadata", "annotations", key))


def flavors_of(labels: Mapping[str, str], annotations: Mapping[str, str], *, cpu_aware: bool) -> dict[str, NodeFlavor]:
    """Return a managed node's flavors by ResourceFlavor name; none without a topology profile."""
    profile = labels.get(TOPOLOGY_PROFILE, "")
    if not profile or not is_managed(labels):
        return {}
    key = cpu_key(labels, annotations)
    found = extract_node_flavors(labels, annotations, cpu_aware=cpu_aware, cpu_key=key)
    return {flavor_object_name(flavor.name, profile): flavor for flavor in found.flavors}


def shape_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Shape:
    """Return the shape of a node with these effective labels."""
    told = tuple((key, value) for key, value in labels.items() if key.startswith(_TELLING))
    return _shape(told, annotations.get(_CPU_NAME, ""))


@lru_cache(maxsize=4096)
def _shape(told: tuple[tuple[str, str], ...], cpu_name: str) -> Shape:
    labels, annotations = dict(told), {_CPU_NAME: cpu_name}
    plain, aware = (tuple(flavors_of(labels, annotations, cpu_aware=cpu_aware)) for cpu_aware in (False, True))
    return Shape(plain, aware, is_accelerated(labels))


def flavor_names(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of all flavors a node has, whether CPUs are told apart or not."""
    shape = shape_of(labels, annotations)
    return tuple(dict.fromkeys((*shape.flavors, *shape.aware_flavors)))


def _names_of_node(node: Object) -> Iterable[str]:
    return flavor_names(labels_of(node), annotations_of(node))


def _without_profile(node: Object) -> Iterable[str]:
    return () if at(node, "metadata", "labels", TOPOLOGY_PROFILE) else (TRUE,)


NODES_BY_FLAVOR = Index(NODE, "flavor", _names_of_node)
NODES_WITHOUT_PROFILE = Index(NODE, "without-profile", _without_profile)
INDEXES = (NODES_BY_FLAVOR, NODES_WITHOUT_PROFILE, FEATURES_BY_NODE)


class Contributors:
    """Contributors per flavor, kept from one question to the next."""

    def __init__(self, caches: Caches) -> None:
        self._filing = NodeFiling(caches, contributor_of, _filed_under)

    async def of(self, flavor_name: str, *, cpu_aware: bool) -> tuple[Contributor, ...]:
        """Return the nodes behind a flavor under the setting in force."""
        return await self._filing.under((flavor_name, cpu_aware))


def contributor_of(node: Object, labels: Mapping[str, str]) -> Contributor:
    """Return a node with these effective labels as a contributor."""
    own = as_map(at(node, "metadata", "labels"))
    added = {key: value for key, value in labels.items() if own.get(key) != value}
    return Contributor(node, shape_of(labels, annotations_of(node)), added)


def _filed_under(contributor: Contributor) -> Iterator[tuple[str, bool]]:
    for cpu_aware in (False, True):
        yield from ((name, cpu_aware) for name in contributor.shape.names(cpu_aware=cpu_aware))


def names_under_any_setting(caches: Caches) -> Iterable[str]:
    """Return the names of all flavors that the nodes have, whatever the settings; without reading every node.

    NFD copies all NodeFeatures of a node at once: one whose labels it took away has no topology profile either.
    """
    names = dict.fromkeys(caches[NODE].values(NODES_BY_FLAVOR.name))
    for node in caches[NODE].by(NODES_WITHOUT_PROFILE.name, TRUE):
        names |= dict.fromkeys(flavor_names(cached_labels(node, caches), annotations_of(node)))
    return names


def names_through_feature(feature: Object | None, new: Object | None, caches: Caches) -> tuple[str, ...]:
    """Return the flavors that a node has or had while `feature` (an old or the new state of one) speaks for it."""
    shown = feature if feature is not None else new
    node = caches[NODE].get(Key(node_of_feature(shown)))
    if node is None:
        return ()
    others = [
        other
        for other in caches[NODE_FEATURE].by(FEATURES_BY_NODE.name, name_of(node))
        if name_of(other) != name_of(shown)
    ]
    labels = effective_labels(node, [*others, *([feature] if feature is not None else [])])
    return flavor_names(labels, annotations_of(node))
