"""Worker labels: what the worker's NodeFeature says about a node (spec 01 §5.3).

For: `node_feature`.
In: the Node's labels, annotations and CPU capacity, and settings. Out: the labels of `<node>-gpustack-worker`.
Promises: somebody's word on `gpustack.ai/managed` is kept as it is; device labels add nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodefeature import labels as keys
from nodefeature.destinations import CheckedLabels, legal_labels
from nodefeature.device_labels import is_accelerated
from nodefeature.keys import general_key, manufacturer_of
from nodefeature.quantity import QuantityInvalid, parse_amount
from nodefeature.topology import DEFAULT_PROFILE


def worker_labels(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    *,
    cpu_capacity: object,
    manual: bool = False,
    mixed: bool = True,
    profile: str = DEFAULT_PROFILE,
) -> CheckedLabels:
    """Return the labels for a node.

    `cpu_capacity` is `status.capacity.cpu` as it stands (absent: None); `manual` is setting `node-management-manual`,
    `mixed` is `instance-type-mixed-on-node`; an empty `profile` adds no topology label.
    """
    wanted: dict[str, str] = {}
    managed = labels.get(keys.MANAGED, "") or ("" if manual else keys.TRUE)
    if managed:
        wanted[keys.MANAGED] = managed
    key = general_key(labels, annotations)
    wanted[keys.GENERAL_PREFIX + manufacturer_of(key)] = keys.TRUE
    wanted[keys.GENERAL_PREFIX + key] = keys.TRUE
    cores, problems = _cores(cpu_capacity)
    if cores > 0:
        wanted[f"{keys.GENERAL_PREFIX}{key}.count"] = str(cores)
    if not mixed and not is_accelerated(labels):
        wanted[keys.CPU_ONLY] = keys.TRUE
    if profile:
        wanted[keys.TOPOLOGY_PROFILE] = profile
    checked = legal_labels(wanted, about="worker labels")
    return CheckedLabels(checked.labels, (*problems, *checked.problems))


def _cores(capacity: object) -> tuple[int, tuple[str, ...]]:
    if capacity is None:
        return 0, ()
    try:
        return parse_amount(capacity, field="status.capacity.cpu").ceil(), ()
    except QuantityInvalid as refused:
        return 0, (str(refused),)
