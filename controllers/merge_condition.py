"""Node condition `GPUStackLabelsMerged`: does NFD copy our labels? (design §8.4, decision 0182)

For: `node_feature`.
In: a Node's labels, those of our NodeFeatures, the Node's conditions. Out: the condition to write, or none.
Promises: pure; healthy nodes have no condition; a report is taken back, never left to rot; the text is stable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controllers.node_view import LABELS_MERGED
from nodefeature.fields import as_list, as_maps, at
from nodefeature.labels import ACCELERATABLE

NEVER_SEEN_S = 120.0
"""A node whose labels this process never saw merged is told of sooner: nothing was lost, something is set up wrong."""
SEEN_S = 600.0
NOT_MERGED = "LabelsNotMerged"
MERGED = "LabelsMerged"
_NAMED = 3


def wait_for_merge(*, seen_merged: bool) -> float:
    """Return for how many seconds missing labels are no news."""
    return SEEN_S if seen_merged else NEVER_SEEN_S


def unmerged_keys(labels: Mapping[str, str], features: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the keys that our NodeFeatures carry and the Node lacks or holds with another value, sorted."""
    wanted: dict[str, set[str]] = {}
    for feature in features:
        for key, value in feature.items():
            wanted.setdefault(key, set()).add(value)
    if ACCELERATABLE in labels:
        # Our NodeFeatureRule speaks last here, and under WSL no card stands on the bus that it looks at.
        wanted.pop(ACCELERATABLE, None)
    return tuple(sorted(key for key, values in wanted.items() if labels.get(key) not in values))


def merge_condition(node: object, missing: tuple[str, ...], *, now: str) -> dict[str, str] | None:
    """Return the condition to write; None when the Node already says so, or has nothing to say."""
    shown = next((c for c in as_maps(at(node, "status", "conditions")) if c.get("type") == LABELS_MERGED), None)
    if missing:
        wanted = _condition("False", NOT_MERGED, _message(missing), now)
    elif shown is not None:
        wanted = _condition("True", MERGED, "the node carries the labels of our NodeFeatures", now)
    else:
        return None
    same = shown is not None and all(shown.get(field) == wanted[field] for field in ("status", "reason", "message"))
    return None if same else wanted


def condition_operations(node: object, condition: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the JSON patch that puts one condition among a live Node's, failing if they moved meanwhile."""
    conditions = as_list(at(node, "status", "conditions"))
    for position, shown in enumerate(conditions):
        if isinstance(shown, Mapping) and shown.get("type") == condition["type"]:
            path = f"/status/conditions/{position}"
            return [
                {"op": "test", "path": f"{path}/type", "value": condition["type"]},
                {"op": "replace", "path": path, "value": dict(condition)},
            ]
    if not conditions:
        return [{"op": "add", "path": "/status/conditions", "value": [dict(condition)]}]
    return [{"op": "add", "path": "/status/conditions/-", "value": dict(condition)}]


def _condition(status: str, reason: str, message: str, now: str) -> dict[str, str]:
    return {
        "type": LABELS_MERGED,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
        "lastHeartbeatTime": now,
    }


def _message(missing: tuple[str, ...]) -> str:
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    return (
        f"labels of our NodeFeatures are not on the node: {', '.join(missing[:_NAMED])}{more}; see whether "
        "node-feature-discovery's master runs and may write labels of gpustack.ai"
    )
