"""Which nodes stand behind a flavor.

For: `node_flavor`, which counts them (spec 04 §6).
In: cached Nodes and our NodeFeatures. Out: the flavors of a node, the nodes of a flavor.
Promises: the nodes of one flavor are found by index, never by looking at all nodes; a node whose labels NFD took away
is found through our NodeFeature (design §8.4); nothing here depends on a setting, so a flipped one needs no new index.
Trusts: Node labels (NFD, kubelet, administrators), NodeFeatures in our namespace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from controllers.node_view import (
    FEATURES_BY_NODE,
    cached_labels,
    cpu_key,
    effective_labels,
    node_of_feature,
    stored_key,
)
from kube.pace import in_steps
from kube.reconciler import Caches, Index, Key, Object
from nodefeature.device_labels import device_models, label_count
from nodefeature.fields import annotations_of, as_map, as_str, at, labels_of, name_of, str_map
from nodefeature.flavor import NodeFlavor, extract_node_flavors
from nodefeature.kinds import NODE, NODE_FEATURE
from nodefeature.labels import (
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
from nodefeature.queue_names import PREFIX
from nodefeature.topology import flavor_object_name

# What a flavor's name is made of, among a node's labels and annotations.
_TELLING = (MANAGED, TOPOLOGY_PROFILE, GENERAL_PREFIX, DEVICE_PREFIX, CPU_VENDOR, CPU_FAMILY, CPU_ID, OS, ARCH)
_COUNT = ".count"
_CPU_NAME = CPU_ANNOTATION_PREFIX + "name"
_PROFILE = re.compile(r"-fnv64-[0-9a-f]{16}$")


@dataclass(frozen=True, slots=True)
class Contributor:
    """One node behind a flavor. `added` are labels that only our NodeFeatures carry."""

    node: Object
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


def flavor_names(
    labels: Mapping[str, str], annotations: Mapping[str, str], *, groupings: tuple[bool, ...] = (False, True)
) -> tuple[str, ...]:
    """Return the names of all flavors a node has, whether CPUs are told apart or not."""
    told = tuple((key, value) for key, value in labels.items() if key.startswith(_TELLING))
    return _flavor_names(told, annotations.get(_CPU_NAME, ""), groupings)


@lru_cache(maxsize=4096)
def _flavor_names(told: tuple[tuple[str, str], ...], cpu_name: str, groupings: tuple[bool, ...]) -> tuple[str, ...]:
    """Nodes of one shape share their names, and a fleet has few shapes."""
    labels, annotations = dict(told), {_CPU_NAME: cpu_name}
    names: dict[str, None] = {}
    for cpu_aware in groupings:
        names |= dict.fromkeys(flavors_of(labels, annotations, cpu_aware=cpu_aware))
    return tuple(names)


def _names_of_node(node: Object) -> Iterable[str]:
    return flavor_names(labels_of(node), annotations_of(node))


def tokens_of_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return `<key>=<count>` of everything countable in a label map: all a NodeFeature knows of a flavor's name."""
    tokens = [f"{model.key}={model.count}" for model in device_models(labels) if model.count > 0]
    key = stored_key(labels)
    cores = label_count(labels, f"{GENERAL_PREFIX}{key}.count") if key else 0
    return (*tokens, f"{key}={cores}") if cores > 0 else tuple(tokens)


def token_of(flavor_name: str) -> str:
    """Return the token inside a flavor's name; empty for a name that is not built like ours."""
    parts = _PROFILE.sub("", flavor_name).removeprefix(PREFIX).rsplit("-", 3)
    count = parts[-1][:-1] if parts[-1][-1:] in ("c", "d") else ""
    if len(parts) != 4 or not count.isdigit():
        return ""
    return f"{parts[0].rpartition('--')[2]}={count}"


def _tokens_of_feature(feature: Object) -> Iterable[str]:
    return tokens_of_labels(str_map(at(feature, "spec", "labels"))) if node_of_feature(feature) else ()


def _without_profile(node: Object) -> Iterable[str]:
    return () if at(node, "metadata", "labels", TOPOLOGY_PROFILE) else (TRUE,)


NODES_BY_FLAVOR = Index(NODE, "flavor", _names_of_node)
NODES_WITHOUT_PROFILE = Index(NODE, "without-profile", _without_profile)
FEATURES_BY_TOKEN = Index(NODE_FEATURE, "token", _tokens_of_feature)
INDEXES = (NODES_BY_FLAVOR, NODES_WITHOUT_PROFILE, FEATURES_BY_TOKEN, FEATURES_BY_NODE)


async def contributors(flavor_name: str, caches: Caches, *, cpu_aware: bool) -> list[Contributor]:
    """Return the nodes behind a flavor under the setting in force."""
    found: list[Contributor] = []
    async for nodes in in_steps(caches[NODE].by(NODES_BY_FLAVOR.name, flavor_name)):
        if not found and flavor_name not in _flavors(Contributor(nodes[0]), cpu_aware):
            # The name is one of the other setting: all nodes of one name agree on that.
            return []
        found += map(Contributor, nodes)
    token = token_of(flavor_name)
    silent: dict[str, Contributor] = {}
    async for features in in_steps(caches[NODE_FEATURE].by(FEATURES_BY_TOKEN.name, token) if token else ()):
        for node in _silent_nodes(features, token, caches):
            contributor = _spoken_for(node, caches)
            if flavor_name in _flavors(contributor, cpu_aware):
                silent[name_of(node)] = contributor
    known = {name_of(contributor.node) for contributor in found} if silent else ()
    return [*found, *(each for name, each in silent.items() if name not in known)]


def names_under_any_setting(caches: Caches) -> Iterable[str]:
    """Return the names of all flavors that the nodes have, whatever the settings; without reading every node.

    NFD copies all NodeFeatures of a node at once: one whose labels it took away has no topology profile either.
    """
    names = dict.fromkeys(caches[NODE].values(NODES_BY_FLAVOR.name))
    for node in caches[NODE].by(NODES_WITHOUT_PROFILE.name, TRUE):
        names |= dict.fromkeys(flavor_names(cached_labels(node, caches), annotations_of(node)))
    return names


def _silent_nodes(features: Iterable[Object], token: str, caches: Caches) -> Iterator[Object]:
    """Return the nodes that these NodeFeatures speak for and that do not carry all labels of a token themselves."""
    key, _, count = token.partition("=")
    device, cpu = DEVICE_PREFIX + key, GENERAL_PREFIX + key
    nodes = caches[NODE]
    for feature in features:
        node = nodes.get(Key(node_of_feature(feature)))
        if node is None:
            continue
        # Single looks instead of `labels_of`, which walks all labels: this is a loop over thousands.
        labels = as_map(at(node, "metadata", "labels"))
        said = labels.get(device) == TRUE and labels.get(device + _COUNT) == count
        said = said or (labels.get(cpu) == TRUE and labels.get(cpu + _COUNT) == count)
        if not (said and labels.get(TOPOLOGY_PROFILE) and is_managed(labels)):
            yield node


def _spoken_for(node: Object, caches: Caches) -> Contributor:
    own = labels_of(node)
    return Contributor(node, {key: value for key, value in cached_labels(node, caches).items() if key not in own})


def _flavors(contributor: Contributor, cpu_aware: bool) -> dict[str, NodeFlavor]:
    return flavors_of(contributor.labels, annotations_of(contributor.node), cpu_aware=cpu_aware)


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
