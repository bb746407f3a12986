"""The cluster as webhooks see it: few kinds followed, the rest asked for when it is needed.

For: `process`. In: a client. Out: a `World`.
Promises: InstanceTypes, marked ClusterQueues and the settings are followed; Nodes and LocalQueues are many and rarely
asked for, so they are read one by one; a live read has a deadline below a webhook's; an entrance that nobody is behind
is not looked for again within a second; what is no label's value fronts nothing: a Pod's labels are checked only after
its webhooks, and a comma or a blank would be read as another selector.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Iterable, Mapping, Sequence

from api.settings import SECRET_NAME, Reading, Settings, settings_of
from kube.client import Client
from kube.clock import Clock
from kube.errors import Forbidden, InvalidRequest, NotFound
from kube.informer import Informer
from kube.reconciler import Index, Key, Object, Rule, Selection
from kube.store import Change, Store
from nodefeature.destinations import is_label_value
from nodefeature.fields import as_str, at, labels_of, name_of
from nodefeature.kinds import CLUSTER_QUEUE, INSTANCE_TYPE, LOCAL_QUEUE, NODE, SECRET, Kind
from nodefeature.labels import QUEUE_ENTRANCE, RESOURCE_TYPE, SYSTEM_NAMESPACE, TYPE_INSTANCE_TYPES
from nodefeature.manufacturers import Manufacturers
from nodefeature.queue_names import local_queue_name

RBAC = (
    Rule(INSTANCE_TYPE.group, INSTANCE_TYPE.plural, ("get", "list", "watch")),
    Rule(CLUSTER_QUEUE.group, CLUSTER_QUEUE.plural, ("get", "list", "watch")),
    Rule(LOCAL_QUEUE.group, LOCAL_QUEUE.plural, ("get",)),
    Rule(NODE.group, NODE.plural, ("get",)),
    Rule(SECRET.group, SECRET.plural, ("get", "list", "watch"), SYSTEM_NAMESPACE),
)

READ_DEADLINE_S = 4.0
FORGET_S = 1.0
_MOST_ABSENT = 1024
_DIGIT_FIRST_MINOR = 36
"""Of Kubernetes 1: from here on `RelaxedServiceNameValidation` is on unless somebody turned it off."""

log = logging.getLogger(__name__)


def entrances_of(instance_type: Object) -> Iterable[str]:
    """Return the LocalQueue names that lead to a type; one from before the label has the name its name gives."""
    return (labels_of(instance_type).get(QUEUE_ENTRANCE) or local_queue_name(name_of(instance_type)),)


def _metadata_only(obj: Object) -> Object:
    return {"metadata": obj.get("metadata")}


_BY_ENTRANCE = Index(INSTANCE_TYPE, "entrance", entrances_of)


class CachedWorld:
    """A `World` over informers."""

    def __init__(
        self,
        client: Client,
        registry: Manufacturers,
        *,
        clock: Clock,
        rng: random.Random,
        namespace: str = SYSTEM_NAMESPACE,
        seeds: Mapping[str, str] | None = None,
    ) -> None:
        self.registry = registry
        self.system_namespace = namespace
        self._client = Client(client.connection, field_manager=client.field_manager, deadline_s=READ_DEADLINE_S)
        self._clock = clock
        self._seeds = dict(seeds or {})
        self._absent: dict[str, float] = {}
        self._settings_key = Key(SECRET_NAME, namespace)
        self._seen: Object | None = None
        self._reading: Reading | None = None
        selections = {
            INSTANCE_TYPE: Selection(),
            CLUSTER_QUEUE: Selection(label_selector=f"{RESOURCE_TYPE}={TYPE_INSTANCE_TYPES}", project=_metadata_only),
            SECRET: Selection(namespace=namespace, field_selector=f"metadata.name={SECRET_NAME}"),
        }
        self._stores = {kind: Store(kind, project=selection.project) for kind, selection in selections.items()}
        self._stores[INSTANCE_TYPE].add_index(_BY_ENTRANCE)
        self._informers = {
            kind: Informer(client, self._stores[kind], self._observe, selection=selection, clock=clock, rng=rng)
            for kind, selection in selections.items()
        }

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind, informer in self._informers.items():
                group.create_task(informer.run(), name=f"webhooks follow {kind.plural}")

    def fault(self) -> str:
        """Say what has not been read yet. Kueue may come later: without it nothing is pinned."""
        waiting = [kind.plural for kind in (INSTANCE_TYPE, SECRET) if not self._informers[kind].synced.is_set()]
        return f"not read yet: {', '.join(waiting)}" if waiting else ""

    def settings(self) -> Settings:
        """Return the settings in force."""
        secret = self._stores[SECRET].get(self._settings_key)
        if self._reading is None or secret is not self._seen:
            last = self._reading.settings if self._reading is not None else None
            self._reading = settings_of(secret, seeds=self._seeds, last=last)
            self._seen = secret
        return self._reading.settings

    def types_known(self, entrance: str) -> Sequence[Object]:
        """Return the cached types behind an entrance."""
        return tuple(self._stores[INSTANCE_TYPE].by(_BY_ENTRANCE.name, entrance))

    async def types_behind(self, entrance: str) -> Sequence[Object]:
        """Return the types behind an entrance."""
        known = self.types_known(entrance)
        if known or not is_label_value(entrance) or self._clock.now() < self._absent.get(entrance, 0.0):
            return known
        found = await self._client.list(INSTANCE_TYPE, label_selector=f"{QUEUE_ENTRANCE}={entrance}")
        if not found:
            if len(self._absent) >= _MOST_ABSENT:
                self._absent.clear()
            self._absent[entrance] = self._clock.now() + FORGET_S
        return found

    async def instance_type(self, name: str) -> Object | None:
        """Return a type."""
        return self._stores[INSTANCE_TYPE].get(Key(name)) or await self._read(INSTANCE_TYPE, name)

    async def node_exists(self, name: str) -> bool:
        """Say whether a Node exists."""
        return await self._read(NODE, name) is not None

    async def services_may_begin_with_a_digit(self) -> bool:
        """Say whether the cluster is new enough; a version that is hidden or not understood is taken for a new one."""
        try:
            version = await self._client.get_path("/version")
        except (Forbidden, NotFound):
            return True
        minor = re.match(r"[0-9]+", as_str(version.get("minor")))
        return minor is None or int(minor[0]) >= _DIGIT_FIRST_MINOR

    async def pool_of(self, namespace: str, local_queue: str) -> Object | None:
        """Return the type whose marked ClusterQueue a LocalQueue leads to."""
        queue = as_str(at(await self._read(LOCAL_QUEUE, local_queue, namespace), "spec", "clusterQueue"))
        if not queue:
            return None
        pool = self._stores[CLUSTER_QUEUE].get(Key(queue)) or await self._read(CLUSTER_QUEUE, queue)
        if labels_of(pool).get(RESOURCE_TYPE) != TYPE_INSTANCE_TYPES:
            return None
        return await self.instance_type(queue)

    async def _read(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        try:
            return await self._client.get(kind, name, namespace)
        except (NotFound, InvalidRequest):  # what cannot be asked for by name cannot be there
            return None

    def _observe(self, change: Change) -> None:
        if change.new is not None:
            self._absent.pop(labels_of(change.new).get(QUEUE_ENTRANCE, ""), None)
