"""Acts out the plans: one node's NodeFeature and Devices, brought to what is believed.

For: the agent. In: a node's name and its Detection. Out: writes, only where the meaning differs.
Promises:
  - every write is decided on what was just read and refused when that changed; a conflict is decided again, a bounded
    number of times;
  - nothing is written for a node that is gone or going;
  - a refusal is raised as `PublishRefused` naming verb, kind, object and, for 403, the right that is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from devicemanager.detection import Detection
from devicemanager.publisher.devices import plan_devices, plan_status
from devicemanager.publisher.node_feature import device_labels, node_feature_name, plan_node_feature
from devicemanager.publisher.plan import Plan
from kube.client import Client
from kube.clock import Clock
from kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, OperatorError
from kube.reconciler import Object, Rule
from nodefeature.destinations import NameInvalid
from nodefeature.fields import at, is_deleting, str_map
from nodefeature.kinds import DEVICES, NODE, NODE_FEATURE, Kind

log = logging.getLogger(__name__)

FIELD_MANAGER = "gpustack-device-manager"
_ATTEMPTS = 5

RBAC: tuple[Rule, ...] = (
    Rule(NODE.group, NODE.plural, ("get",)),
    Rule(NODE_FEATURE.group, NODE_FEATURE.plural, ("get", "create", "patch"), namespace="gpustack-system"),
    Rule(DEVICES.group, DEVICES.plural, ("get", "create", "patch")),
    Rule(DEVICES.group, f"{DEVICES.plural}/status", ("patch",)),
)


class PublishRefused(OperatorError):
    """A node's objects could not be written; the text says what, and who must act."""


@dataclass(frozen=True, slots=True)
class Known:
    """Objects read in bulk before, to spare the first reads; None means "known to be absent"."""

    node: Object
    node_feature: Object | None
    devices: Object | None


@dataclass(slots=True)
class Published:
    """What a publish did."""

    writes: int = 0
    skipped: str = ""


class Publisher:
    """Writes the objects of any node."""

    def __init__(self, client: Client, clock: Clock, *, namespace: str) -> None:
        self._client = client.as_manager(FIELD_MANAGER)
        self._clock = clock
        self._namespace = namespace

    async def publish(
        self, node_name: str, detection: Detection, *, create_empty: bool = False, known: Known | None = None
    ) -> Published:
        """Bring a node's objects to `detection`; labels first, then inventory, then ledger (spec 06 §3)."""
        done = Published()
        try:
            feature_name = node_feature_name(node_name)
        except NameInvalid as refused:
            raise PublishRefused(str(refused)) from refused
        node = known.node if known else await self._read(NODE, node_name)
        if node is None:
            raise PublishRefused(f"node {node_name} not found: the kubelet has not registered it, or it was deleted")
        if is_deleting(node):
            done.skipped = f"skip deleted node {node_name}"
            return done
        feature = await self._settle(
            _Target(NODE_FEATURE, feature_name, self._namespace),
            lambda stored: plan_node_feature(
                stored, node, detection, namespace=self._namespace, create_empty=create_empty
            ),
            done,
            _first(known, "node_feature"),
        )
        labels = str_map(at(feature, "spec", "labels")) if feature else device_labels(detection)[0]
        devices = await self._settle(
            _Target(DEVICES, node_name),
            lambda stored: plan_devices(stored, node, labels, detection, create_empty=create_empty),
            done,
            _first(known, "devices"),
        )
        if devices is not None:
            await self._settle(
                _Target(DEVICES, node_name, subresource="status"),
                lambda stored: plan_status(stored, detection, self._clock.time()) if stored else Plan(),
                done,
                _Read(devices),
            )
        return done

    async def _settle(
        self, target: _Target, plan: Callable[[Object | None], Plan], done: Published, first: _Read | None
    ) -> Object | None:
        """Decide and write until it holds; return the object as it then stands."""
        last: Exception | None = None
        for _attempt in range(_ATTEMPTS):
            stored = first.obj if first else await self._read(target.kind, target.name, target.namespace)
            first = None
            decided = plan(stored)
            if decided.idle:
                return stored
            try:
                written = await self._write(target, decided)
            except (Conflict, AlreadyExists, _Vanished) as changed:
                last = changed
                continue
            done.writes += 1
            return written
        raise PublishRefused(
            f"{target}: changed {_ATTEMPTS} times while it was being written; the next pass tries again"
        ) from last

    async def _write(self, target: _Target, plan: Plan) -> Object:
        verb: Literal["create", "patch"] = "create" if plan.create is not None else "patch"
        try:
            if plan.create is not None:
                return await self._client.create(target.kind, plan.create)
            return await self._client.patch(
                target.kind, target.name, plan.patch, target.namespace, subresource=target.subresource
            )
        except (Conflict, AlreadyExists):
            raise
        except ApiError as refused:
            if verb == "patch" and isinstance(refused, NotFound):
                raise _Vanished from refused
            raise _refusal(verb, target, refused) from refused

    async def _read(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        try:
            return await self._client.get(kind, name, namespace)
        except NotFound:
            return None
        except ApiError as refused:
            raise _refusal("get", _Target(kind, name, namespace), refused) from refused


class _Vanished(Exception):
    """The object went away between reading and patching."""


@dataclass(frozen=True, slots=True)
class _Target:
    kind: Kind
    name: str
    namespace: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.resource} {place}"

    @property
    def resource(self) -> str:
        return f"{self.kind.group_resource}/{self.subresource}" if self.subresource else self.kind.group_resource


@dataclass(frozen=True, slots=True)
class _Read:
    obj: Object | None


def _first(known: Known | None, field: Literal["node_feature", "devices"]) -> _Read | None:
    return _Read(getattr(known, field)) if known else None


def _refusal(verb: str, target: _Target, refused: ApiError) -> PublishRefused:
    if isinstance(refused, Forbidden):
        return PublishRefused(
            f'{verb} {target}: forbidden: give the agent\'s ServiceAccount the verb "{verb}" on {target.resource}'
        )
    return PublishRefused(f"{verb} {target}: {refused}")
