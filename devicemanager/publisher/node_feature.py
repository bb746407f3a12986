"""The NodeFeature `<node>-gpustack-device-manager`: labels of the detected groups (spec 06 §3.1, design §7).

In: the object as stored, the Node, what is believed about the cards. Out: a plan.
Promises (cases B015, B029):
  - labels of a manufacturer that answered are exactly those of its groups: a group that is gone takes its labels along;
  - labels of a manufacturer that has not answered since the start, of another agent, and everything else stay;
  - a node without cards gets no object of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from devicemanager.detection import Detection
from devicemanager.publisher.plan import LEAVE, Plan, owned_by, patch_of, references_of
from kube.reconciler import Object
from nodefeature import labels as keys
from nodefeature.destinations import object_name
from nodefeature.device_labels import acceleratable_labels, device_group
from nodefeature.fields import at, name_of, str_map
from nodefeature.kinds import NODE_FEATURE

SUFFIX = "-gpustack-device-manager"
PART_OF = "app.kubernetes.io/part-of"
PART_OF_VALUE = "gpustack-operator-device-manager"
_MAKER_END = re.compile(r"[-.]")


def node_feature_name(node: str) -> str:
    """Return the object's name; NameInvalid when the node's name is too long for it."""
    return object_name(node + SUFFIX, field=f"NodeFeature of node {node!r}")


def device_labels(detection: Detection) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the labels of everything believed to be there, and what had to be left out."""
    made = acceleratable_labels(device_group(group) for group in detection.all_groups())
    return dict(made.labels), made.problems


def maker_of_key(key: str) -> str:
    """Return the manufacturer a device label speaks of; empty for any other label."""
    if not key.startswith(keys.DEVICE_PREFIX):
        return ""
    return _MAKER_END.split(key.removeprefix(keys.DEVICE_PREFIX), maxsplit=1)[0]


def plan_node_feature(
    stored: Object | None, node: Object, detection: Detection, *, namespace: str, create_empty: bool = False
) -> Plan:
    """Decide the write that brings the NodeFeature to what is believed."""
    wanted, _problems = device_labels(detection)
    own = {keys.NFD_NODE_NAME: name_of(node), PART_OF: PART_OF_VALUE}
    if stored is None:
        if not wanted and not create_empty:
            return LEAVE
        return Plan(create=_object(node, wanted, own, namespace))
    labels = _changed_labels(str_map(at(stored, "spec", "labels")), wanted, detection.answered)
    return patch_of(
        stored,
        metadata={"labels": own, "ownerReferences": owned_by(node, references_of(stored))},
        content={"spec": {"labels": labels}},
    )


def _changed_labels(
    have: Mapping[str, str], wanted: Mapping[str, str], answered: frozenset[str]
) -> dict[str, str | None]:
    changed: dict[str, str | None] = dict(wanted)
    kept = False
    for key in have:
        maker = maker_of_key(key)
        if maker in answered and key not in wanted:
            changed[key] = None
        kept = kept or (bool(maker) and maker not in answered)
    if not wanted and not kept and have.get(keys.ACCELERATABLE) == keys.TRUE:
        changed[keys.ACCELERATABLE] = None
    return changed


def _object(node: Object, labels: Mapping[str, str], own: Mapping[str, str], namespace: str) -> Object:
    return {
        "apiVersion": NODE_FEATURE.api_version,
        "kind": NODE_FEATURE.kind,
        "metadata": {
            "name": node_feature_name(name_of(node)),
            "namespace": namespace,
            "labels": dict(own),
            "ownerReferences": owned_by(node),
        },
        "spec": {"features": {"flags": {}, "attributes": {}, "instances": {}}, "labels": dict(labels)},
    }
