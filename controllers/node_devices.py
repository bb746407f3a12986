"""node_devices: the labels on a Devices object that the worker owns (spec 04 §5).

For: instance_type, gate 3 and whoever selects Devices by pool labels.
In: a Devices object and the Node of the same name. Out: its labels `gpustack.ai/managed`, the node's CPU key, the
topology profile; deletion of a Devices whose Node is gone.
Promises: the agent's labels (os, arch, accelerator keys) are never touched; a Devices is deleted only when its Node is
absent from the cache and from a live read, and only the object that was judged (uid); a settled object gets no write.
Trusts: Node labels, our NodeFeatures.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import ClassVar

from controllers.node_view import FEATURES_BY_NODE, cached_labels, cpu_key, node_of_feature
from kube.client import Client
from kube.errors import NotFound
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import annotations_of, at, is_deleting, labels_of, name_of, str_map, uid_of
from nodefeature.kinds import DEVICES, NODE, NODE_FEATURE, Kind
from nodefeature.labels import (
    CPU_ANNOTATION_PREFIX,
    CPU_FAMILY,
    CPU_ID,
    CPU_VENDOR,
    GENERAL_PREFIX,
    MANAGED,
    TOPOLOGY_PROFILE,
    TRUE,
)

log = logging.getLogger(__name__)

WINDOW_S = 5.0


def _devices_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    if new is None:
        return ()
    same = old is not None and worker_owned(labels_of(old)) == worker_owned(labels_of(new))
    return () if same else (Key(name_of(new)),)


def _node_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    same = old is not None and new is not None and _inputs(old) == _inputs(new)
    return () if same else (Key(name_of(new if new is not None else old)),)


def _feature_keys(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    node = node_of_feature(new if new is not None else old)
    before, after = (worker_owned(str_map(at(obj, "spec", "labels"))) for obj in (old, new))
    return (Key(node),) if node and before != after else ()


class NodeDevices:
    """Keeps the worker-owned labels of one Devices object."""

    NAME: ClassVar[str] = "node_devices"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(DEVICES, _devices_keys),
        Watch(NODE, _node_keys, WINDOW_S),
        Watch(NODE_FEATURE, _feature_keys, WINDOW_S),
    )
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = (FEATURES_BY_NODE,)
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule("worker.gpustack.ai", "devices", ("get", "list", "watch", "patch", "delete")),
        Rule("", "nodes", ("get", "list", "watch")),
        Rule("nfd.k8s-sigs.io", "nodefeatures", ("get", "list", "watch")),
    )

    def __init__(self, client: Client, caches: Caches) -> None:
        self.client = client.as_manager("gpustack-node-devices")
        self.caches = caches

    async def reconcile(self, key: Key) -> Outcome:
        """Align the labels, or delete what no Node stands behind."""
        devices = self.caches[DEVICES].get(key)
        if devices is None or is_deleting(devices):
            return DONE
        node = self.caches[NODE].get(key)
        if node is None:
            await self._delete_orphan(devices)
            return DONE
        wanted = control_labels(cached_labels(node, self.caches), annotations_of(node))
        patch = labels_patch(labels_of(devices), wanted)
        if patch:
            version = at(devices, "metadata", "resourceVersion")
            body = {"metadata": {"labels": patch, "resourceVersion": version}}
            await self.client.patch(DEVICES, key.name, body)
            log.info("devices labels aligned", extra={"kind": "Devices", "object": key.name, "labels": sorted(patch)})
        return DONE

    async def _delete_orphan(self, devices: Object) -> None:
        """A cache may lag behind: only the API server's own word deletes a ledger."""
        name = name_of(devices)
        try:
            await self.client.get(NODE, name)
        except NotFound:
            try:
                await self.client.delete(DEVICES, name, uid=uid_of(devices))
                log.info("devices deleted", extra={"kind": "Devices", "object": name, "reason": "its node is gone"})
            except NotFound:
                return


def worker_owned(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that are the worker's to write: the mark, the profile, every CPU key with its siblings."""
    return {k: v for k, v in labels.items() if k in (MANAGED, TOPOLOGY_PROFILE) or k.startswith(GENERAL_PREFIX)}


def control_labels(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the worker-owned labels that a Devices should carry, from its node's effective labels."""
    wanted = {key: labels[key] for key in (MANAGED, TOPOLOGY_PROFILE) if labels.get(key)}
    return wanted | {GENERAL_PREFIX + cpu_key(labels, annotations): TRUE}


def labels_patch(labels: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return the merge patch of `metadata.labels`; empty when the worker-owned ones are in sync."""
    owned = worker_owned(labels)
    patch: dict[str, str | None] = {key: value for key, value in wanted.items() if owned.get(key) != value}
    return patch | dict.fromkeys(key for key in owned if key not in wanted)


def _inputs(node: object) -> tuple[object, ...]:
    labels = labels_of(node)
    return (
        worker_owned(labels),
        tuple(labels.get(key) for key in (CPU_VENDOR, CPU_FAMILY, CPU_ID)),
        annotations_of(node).get(CPU_ANNOTATION_PREFIX + "name"),
    )
