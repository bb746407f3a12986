"""What becomes of a node's objects after its agent has written them (spec 06 §2.4, decision 0401).

For: `serve`. In: watches of the Node, its NodeFeature and its Devices. Out: agents that compare them with their cards.
Promises: an object that somebody edited or deleted is set right with the agent's next pass; what the cache tells is not
asked for again, so a settled node costs no request but its watches; a kubelet's heartbeat wakes nobody.
Trusts: what it reads is only compared; writes carry the version they were decided on.
State: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import ClassVar

from devicemanager.agent import Agent
from devicemanager.publisher.node_feature import PART_OF, PART_OF_VALUE, SUFFIX, node_feature_name
from devicemanager.publisher.publish import Known
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Selection, Watch
from nodefeature.fields import is_deleting, metadata, name_of, uid_of
from nodefeature.kinds import DEVICES, NODE, NODE_FEATURE, Kind
from nodefeature.labels import SYSTEM_NAMESPACE


def _of_node(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    """Wake the agent of a Node that came, went, goes, or took a namesake's place."""
    same = old is not None and new is not None and uid_of(old) == uid_of(new) and is_deleting(old) == is_deleting(new)
    return () if same else _of_devices(old, new, caches)


def _of_feature(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    name = name_of(new if new is not None else old)
    return (Key(name.removesuffix(SUFFIX)),) if name.endswith(SUFFIX) else ()


def _of_devices(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    return (Key(name_of(new if new is not None else old)),)


def selections(namespace: str, node: str = "") -> Mapping[Kind, Selection]:
    """Return what to follow for one node, or for all of a fleet when none is named."""

    def only(name: str) -> str:
        return f"metadata.name={name}" if node else ""

    return {
        NODE: Selection(field_selector=only(node), project=_metadata_alone),
        NODE_FEATURE: Selection(
            namespace=namespace,
            field_selector=only(f"{node}{SUFFIX}"),
            label_selector="" if node else f"{PART_OF}={PART_OF_VALUE}",
        ),
        DEVICES: Selection(field_selector=only(node)),
    }


def _metadata_alone(node: Object) -> Object:
    return {"metadata": dict(metadata(node))}


class OwnObjects:
    """Wakes agents whose objects changed."""

    NAME: ClassVar[str] = "own_objects"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(NODE, _of_node),
        Watch(NODE_FEATURE, _of_feature),
        Watch(DEVICES, _of_devices),
    )
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule(NODE.group, NODE.plural, ("list", "watch")),
        Rule(NODE_FEATURE.group, NODE_FEATURE.plural, ("list", "watch"), SYSTEM_NAMESPACE),
        Rule(DEVICES.group, DEVICES.plural, ("list", "watch")),
    )

    def __init__(self, caches: Caches, agents: Mapping[str, Agent], *, namespace: str) -> None:
        self.caches = caches
        self._agents = agents
        self._namespace = namespace

    async def reconcile(self, key: Key) -> Outcome:
        """Let a node's agent look at its objects again."""
        if agent := self._agents.get(key.name):
            agent.look_again(partial(self.known, key.name))
        return DONE

    def known(self, node_name: str) -> Known | None:
        """Return a node's objects from the cache; None while the Node is not in it."""
        node = self.caches[NODE].get(Key(node_name))
        if node is None:
            return None
        feature = self.caches[NODE_FEATURE].get(Key(node_feature_name(node_name), self._namespace))
        return Known(node, feature, self.caches[DEVICES].get(Key(node_name)))
