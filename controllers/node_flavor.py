"""node_flavor: groups equal nodes into ResourceFlavors with a Topology, and authors their InstanceType (spec 04 §6).

For: Kueue, node_queue, people who ask for capacity.
In: Nodes and our NodeFeatures, settings. Out: ResourceFlavors, Topologies, InstanceTypes (create only).
Promises: one node's change touches its own flavors; a flavor is deleted only when no node stands behind it; an
InstanceType that exists is never changed, one that was derived and deleted is authored again; a flavor that cannot be
built is named and stops no other; a namesake of somebody else is named and left alone; a settled cluster gets no write.
Trusts: Node labels, NodeFeatures in our namespace, whoever may write flavors; tenants may not.
State: the nodes behind each flavor (`Contributors`), what was said about each.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from controllers.contributors import (
    INDEXES,
    NODES_BY_FLAVOR,
    NODES_WITHOUT_PROFILE,
    Contributor,
    Contributors,
    flavors_of,
)
from controllers.events import EVENT_RULE, Events
from controllers.flavor_plan import (
    FlavorPlan,
    SpecDrift,
    default_topology,
    derived_type,
    has_default_levels,
    plan_flavor,
    products_of,
    speaker_of,
    spec_drift,
)
from controllers.flavor_watches import (
    flavor_changed,
    flavors_of_deleted_type,
    flavors_of_feature,
    flavors_of_node,
    flavors_of_setting,
    flavors_of_topology,
)
from controllers.node_view import cached_labels
from controllers.ownership import is_our_flavor, we_made_flavor
from controllers.reports import Reports
from controllers.settings import LiveSettings, wakes
from kube.client import Client
from kube.clock import Clock
from kube.errors import AlreadyExists, NotFound, Terminal
from kube.pace import in_steps
from kube.reconciler import DONE, After, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import annotations_of, as_str, at, is_deleting, labels_of, name_of, str_map, uid_of
from nodefeature.flavor import NodeFlavor
from nodefeature.keys import key_collisions
from nodefeature.kinds import INSTANCE_TYPE, NODE, NODE_FEATURE, RESOURCE_FLAVOR, SECRET, TOPOLOGY, Kind
from nodefeature.labels import NOTE_PREFIX, SYSTEM_NAMESPACE, TOPOLOGY_PROFILE, TRUE
from nodefeature.manufacturers import Manufacturers
from nodefeature.pool import matches
from nodefeature.presets import Presets
from nodefeature.topology import DEFAULT_PROFILE, topology_name

log = logging.getLogger(__name__)

WINDOW_S = 5.0
NO_PROFILE_YET_S = 10.0


class NodeFlavorController:
    """Keeps one ResourceFlavor and what belongs to it."""

    NAME: ClassVar[str] = "node_flavor"
    WATCHES: ClassVar[tuple[Watch, ...]] = (
        Watch(RESOURCE_FLAVOR, flavor_changed),
        Watch(NODE, flavors_of_node, WINDOW_S),
        Watch(NODE_FEATURE, flavors_of_feature, WINDOW_S),
        Watch(INSTANCE_TYPE, flavors_of_deleted_type, WINDOW_S),
        Watch(TOPOLOGY, flavors_of_topology, WINDOW_S),
        wakes("node_flavor", flavors_of_setting),
    )
    READS: ClassVar[tuple[Kind, ...]] = (SECRET,)
    INDEXES: ClassVar[tuple[Index, ...]] = INDEXES
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule("kueue.x-k8s.io", "resourceflavors", ("get", "list", "watch", "create", "patch", "delete")),
        Rule("kueue.x-k8s.io", "topologies", ("get", "list", "watch", "create", "delete")),
        Rule("worker.gpustack.ai", "instancetypes", ("get", "list", "watch", "create")),
        Rule("", "nodes", ("get", "list", "watch")),
        Rule("nfd.k8s-sigs.io", "nodefeatures", ("get", "list", "watch")),
        Rule("", "secrets", ("get", "list", "watch"), SYSTEM_NAMESPACE),
        EVENT_RULE,
    )

    def __init__(
        self,
        client: Client,
        caches: Caches,
        *,
        settings: LiveSettings,
        manufacturers: Manufacturers,
        presets: Presets,
        clock: Clock,
    ) -> None:
        self.client = client.as_manager("gpustack-node-flavor")
        self.caches = caches
        self.settings = settings
        self.manufacturers = manufacturers
        self.presets = presets
        self.events = Events(self.client, clock)
        self._nodes = Contributors(caches)
        self._reports = Reports()

    async def reconcile(self, key: Key) -> Outcome:
        """Bring one flavor to where it should be."""
        stored = self.caches[RESOURCE_FLAVOR].get(key)
        if stored is not None and is_deleting(stored):
            return DONE
        found = await self._contributors(key.name)
        if not found:
            return await self._retire(key, stored)
        if stored is not None and not we_made_flavor(stored):
            return await self._leave_alone(stored)
        speaker, products = await _told(found, self._flavor_of(key.name, found[0]))
        flavor = self._flavor_of(key.name, speaker)
        settings = self.settings.now()
        plan = plan_flavor(
            key.name,
            flavor,
            found,
            speaker=speaker,
            stored=stored,
            manufacturers=self.manufacturers,
            mixed=settings.instance_type_mixed_on_node,
            cpu_aware=settings.instance_type_aware_cpu_manufacturer,
            extra_taints=settings.workload_tolerations,
        )
        self._say(key.name, plan.problems)
        await self._ensure_topology(as_str(plan.spec.get("topologyName")))
        written = await self._align(key, stored, plan)
        if settings.instance_type_derived_from_node and written:
            await self._author(flavor)
        await self._report_collisions(stored, flavor, products)
        return DONE

    async def _contributors(self, name: str) -> Sequence[Contributor]:
        settings = self.settings.now()
        found = await self._nodes.of(name, cpu_aware=settings.instance_type_aware_cpu_manufacturer)
        if not found or settings.instance_type_mixed_on_node or self._flavor_of(name, found[0]).acceleratable:
            return found
        return tuple(each for each in found if not each.shape.accelerated)

    def _flavor_of(self, name: str, contributor: Contributor) -> NodeFlavor:
        cpu_aware = self.settings.now().instance_type_aware_cpu_manufacturer
        annotations = annotations_of(contributor.node)
        return flavors_of(contributor.labels, annotations, cpu_aware=cpu_aware)[name]

    async def _align(self, key: Key, stored: Object | None, plan: FlavorPlan) -> bool:
        """Write the flavor; False when it has to go first and comes back with its deletion."""
        if stored is None:
            try:
                await self.client.create(RESOURCE_FLAVOR, plan.new_object())
                log.info("flavor created", extra={"kind": "ResourceFlavor", "object": key.name})
            except AlreadyExists:
                log.info("flavor exists, waiting for the cache", extra={"kind": "ResourceFlavor", "object": key.name})
            return True
        drift = spec_drift(stored, plan.spec)
        if drift is SpecDrift.REMAKE:
            await self._delete(RESOURCE_FLAVOR, stored, "a setting changed what its nodes must look like")
            return False
        if drift is SpecDrift.FOREIGN:
            message = (
                "spec differs from what the nodes say and cannot be changed; delete the flavor to have it made again"
            )
            await self.events.warn(RESOURCE_FLAVOR, stored, reason="ImmutableDrift", message=message)
            raise Terminal(f"ResourceFlavor {key.name}: {message}")
        patch = plan.difference(stored, with_spec=drift is SpecDrift.UPGRADE)
        if patch:
            await self.client.patch(RESOURCE_FLAVOR, key.name, patch)
            log.info("flavor aligned", extra={"kind": "ResourceFlavor", "object": key.name})
        return True

    async def _leave_alone(self, stored: Object) -> Outcome:
        message = (
            "the nodes need a flavor of this name and it is not managed by this operator; delete it to have it made"
        )
        await self.events.warn(RESOURCE_FLAVOR, stored, reason="ForeignFlavor", message=message)
        raise Terminal(f"ResourceFlavor {name_of(stored)}: {message}")

    async def _retire(self, key: Key, stored: Object | None) -> Outcome:
        """Delete a flavor that no node stands behind, then its Topology when it was the last."""
        for subject in (key.name, _key_subject(key.name)):
            self._reports.forget(subject)
        if stored is None:
            await self._retire_topologies()
            return DONE
        if not we_made_flavor(stored):
            return DONE
        if await self._awaits_profile(stored):
            return After(NO_PROFILE_YET_S)
        await self._delete(RESOURCE_FLAVOR, stored, "no node contributes to it")
        return DONE

    async def _awaits_profile(self, flavor: Object) -> bool:
        """Say whether a node would contribute if only it had a topology profile yet."""
        wanted = {k: v for k, v in str_map(at(flavor, "spec", "nodeLabels")).items() if k != TOPOLOGY_PROFILE}
        if not wanted:
            return False
        async for nodes in in_steps(self.caches[NODE].by(NODES_WITHOUT_PROFILE.name, TRUE)):
            for labels in (cached_labels(node, self.caches) for node in nodes):
                if TOPOLOGY_PROFILE not in labels and matches(wanted, labels):
                    return True
        return False

    async def _ensure_topology(self, name: str) -> None:
        stored = self.caches[TOPOLOGY].get(Key(name))
        if name != topology_name(DEFAULT_PROFILE):
            return
        if stored is None:
            try:
                await self.client.create(TOPOLOGY, default_topology())
                log.info("topology created", extra={"kind": "Topology", "object": name})
            except AlreadyExists:
                return
        elif not has_default_levels(stored):
            message = "spec.levels differ from kubernetes.io/hostname and cannot be changed; delete the Topology"
            await self.events.warn(TOPOLOGY, stored, reason="ImmutableDrift", message=message)
            raise Terminal(f"Topology {name}: {message}")

    async def _retire_topologies(self) -> None:
        """Delete the default Topology once no flavor of ours names it, nor will name it."""
        name = topology_name(DEFAULT_PROFILE)
        stored = self.caches[TOPOLOGY].get(Key(name))
        if stored is None or is_deleting(stored) or self.caches[NODE].values(NODES_BY_FLAVOR.name):
            return
        if not any(at(flavor, "spec", "topologyName") == name for flavor in self.caches[RESOURCE_FLAVOR].list()):
            await self._delete(TOPOLOGY, stored, "no flavor names it")

    async def _delete(self, kind: Kind, stored: Object, reason: str) -> None:
        try:
            await self.client.delete(kind, name_of(stored), uid=uid_of(stored))
        except NotFound:
            return
        log.info("deleted", extra={"kind": kind.kind, "object": name_of(stored), "reason": reason})

    async def _author(self, flavor: NodeFlavor) -> None:
        cpu_aware = self.settings.now().instance_type_aware_cpu_manufacturer
        wanted = derived_type(flavor, self.presets, cpu_aware=cpu_aware)
        if self.caches[INSTANCE_TYPE].get(Key(name_of(wanted))) is not None:
            return
        try:
            await self.client.create(INSTANCE_TYPE, wanted)
            log.info("instance type authored", extra={"kind": "InstanceType", "object": name_of(wanted)})
        except AlreadyExists:
            return

    async def _report_collisions(self, stored: Object | None, flavor: NodeFlavor, products: set[str]) -> None:
        """Name products that clean to one key, among the nodes and across the key's flavors (design §8.1)."""
        if stored is None or not flavor.acceleratable:
            return
        products = products | self._products_of_siblings(flavor)
        collisions = [str(one) for one in key_collisions((flavor.accelerator_key, product) for product in products)]
        for message in collisions:
            await self.events.warn(RESOURCE_FLAVOR, stored, reason="KeyCollision", message=message)
        self._say(_key_subject(name_of(stored)), collisions)

    def _products_of_siblings(self, flavor: NodeFlavor) -> set[str]:
        siblings: Iterable[Mapping[str, str]] = (
            annotations_of(other)
            for other in self.caches[RESOURCE_FLAVOR].list()
            if is_our_flavor(other) and labels_of(other).get(flavor.own_label) == TRUE
        )
        return {notes[NOTE_PREFIX + "product"] for notes in siblings if notes.get(NOTE_PREFIX + "product")}

    def _say(self, subject: str, problems: Iterable[str]) -> None:
        for problem in self._reports.news(subject, problems):
            log.warning("flavor problem", extra={"kind": "ResourceFlavor", "object": subject, "reason": problem})


async def _told(found: Sequence[Contributor], flavor: NodeFlavor) -> tuple[Contributor, set[str]]:
    """Return the contributor that speaks for a flavor, and the products behind it."""
    speaker, products = found[0], set[str]()
    async for part in in_steps(found):
        speaker = speaker_of((speaker, *part), flavor)
        products |= products_of(part, flavor)
    return speaker, products


def _key_subject(flavor: str) -> str:
    return f"{flavor} key"
