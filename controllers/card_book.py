"""Who was promised which cards, and what is left for others.

For: `node_devices_admission` (spec 04 §10; design §8.10).
In: the caches of Workloads, Pods, Devices, Nodes, flavors; verdicts that no cache shows yet. Out: a fleet to judge by.
Promises:
- a Workload whose Pods may take cards at any moment holds them here until each container's cards are on record, on the
  node that its Pod is bound to, that Kueue named, or that was found when it was judged;
- a verdict counts from the moment it is decided, so two Workloads judged in one instant never share a card;
- everything but a verdict under way is read from objects: a restart or another leader finds the same promises;
- a refresh costs what changed.
A promise without any room left (a node that lost cards) charges nobody; it is tried again whenever a card is freed.
State: promises by Workload, verdicts under way, how far the caches were read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat

from api.ledger.pod_fit import needs_of, pod_needs
from api.ledger.workload_fit import Fit, Needs, Place, PodGroup, fit
from controllers.card_claims import CHARGED_PODS, is_live, pods_of, role_of, unrecorded, workloads_of
from controllers.card_fleet import CardFleet
from controllers.workload_admission import Demands, demands_of, is_promised_cards
from kube.pace import Pace
from kube.reconciler import Caches, Key, Object
from nodefeature.fields import as_int, as_map, as_maps, as_str, at, has_condition
from nodefeature.kinds import DEVICES, NODE, POD, RESOURCE_FLAVOR, WORKLOAD, Kind
from nodefeature.manufacturers import Manufacturers

_MOST_PODS = 150_000
"""As many as a cluster runs; a Workload that asks for more is promised no more at a time."""


@dataclass(slots=True)
class Promise:
    """One Pod's cards. `group` is None when the node is not ours to choose again."""

    node: str
    needs: Needs
    group: PodGroup | None = None


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A Ready that the cache does not show yet; decided on `version`."""

    version: object
    places: tuple[Place, ...]


class CardBook:
    """Keeps `fleet` up to date. Not thread-safe: between `refresh` and `assume` nobody else may have a turn."""

    def __init__(self, caches: Caches, registry: Manufacturers) -> None:
        self.fleet = CardFleet(caches, registry)
        self._caches = caches
        self._registry = registry
        self._checks: frozenset[str] = frozenset()
        self._read: dict[Kind, int] = dict.fromkeys((WORKLOAD, POD, DEVICES, NODE, RESOURCE_FLAVOR), -1)
        self._promises: dict[Key, list[Promise]] = {}
        self._on_node: dict[str, dict[Key, None]] = {}
        self._under_way: dict[Key, _Verdict] = {}
        self._pods: dict[Key, tuple[str, frozenset[Key]]] = {}
        self._unread: dict[Key, None] = {}
        self._stale: dict[str, None] = {}
        self._moved: dict[Key, None] = {}
        self._homeless: dict[Key, None] = {}
        self._housed_at = -1

    async def catch_up(self, checks: Collection[str]) -> None:
        """Read what changed in steps that let others run; what is left for `refresh` is little."""
        pace = Pace()
        self._collect(frozenset(checks))
        while self._step():
            await pace.step()

    def refresh(self, checks: Collection[str]) -> None:
        """Bring the promises and the fleet to what the caches say now. `checks` are the names of our checks."""
        self._collect(frozenset(checks))
        while self._step():
            pass
        self._house()

    def demands(self, workload: Object) -> Demands:
        """Return what a Workload's Pods need."""
        return demands_of(workload, self.fleet.flavor, self._registry, self.fleet.node_named)

    def fit(self, key: Key, groups: Sequence[PodGroup]) -> Fit:
        """Find places for a Workload beside everybody else's promises."""
        for node in self._set(key, []):
            self._charge(node)
        return fit(groups, self.fleet)

    def assume(self, key: Key, workload: Object, places: tuple[Place, ...]) -> None:
        """Hold these places from now on, for a Ready that is about to be written."""
        self._under_way[key] = _Verdict(at(workload, "metadata", "resourceVersion"), places)
        for node in self._derive(key):
            self._charge(node)

    def withdraw(self, key: Key) -> None:
        """Give up a Ready that was certainly not written."""
        if self._under_way.pop(key, None) is not None:
            self._moved[key] = None

    def promised_on(self, node: str) -> int:
        """Return how many Workloads were promised cards on a node."""
        return len(self._on_node.get(node, ()))

    def promises(self, key: Key) -> Sequence[Promise]:
        """Return what a Workload was promised and does not hold yet."""
        return self._promises.get(key, ())

    # Reading

    def _collect(self, checks: frozenset[str]) -> None:
        if checks != self._checks:
            self._checks = checks
            self._moved.update(dict.fromkeys(_keys(self._caches[WORKLOAD].list())))
        if self._changed(RESOURCE_FLAVOR):
            self.fleet.forget_flavors()
        for key in self._changed(NODE):
            self.fleet.look_at(key.name)
        self._stale.update(dict.fromkeys(key.name for key in self._changed(DEVICES)))
        self._unread.update(dict.fromkeys(self._changed(POD)))
        self._moved.update(dict.fromkeys(self._changed(WORKLOAD)))

    def _changed(self, kind: Kind) -> Collection[Key]:
        self._read[kind], keys = self._caches[kind].changed(self._read[kind])
        if keys is not None:
            return keys
        known: list[Key] = [*self._promises] if kind is WORKLOAD else [*self._pods] if kind is POD else []
        return dict.fromkeys([*known, *_keys(self._caches[kind].list())])

    def _step(self) -> bool:
        """Do one piece of what has been collected; False when nothing is left."""
        if self._unread:
            self._look_at_pod(self._unread.popitem()[0])
        elif self._stale:
            self._read_node(self._stale.popitem()[0])
        elif self._moved:
            key = next(iter(self._moved))
            del self._moved[key]
            for node in self._derive(key):
                self._charge(node)
        else:
            return False
        return True

    def _look_at_pod(self, key: Key) -> None:
        pod = self._caches[POD].get(key)
        node, workloads = as_str(at(pod, "spec", "nodeName")), frozenset(workloads_of(pod, self._caches))
        old_node, old_workloads = self._pods.pop(key, ("", frozenset()))
        if pod is not None and (node or workloads):
            self._pods[key] = (node, workloads)
        self._moved.update(dict.fromkeys(sorted(workloads | old_workloads)))
        self._stale.update(dict.fromkeys({node, old_node} - {""}))

    def _read_node(self, node: str) -> None:
        if self.fleet.read_ledgers(node):
            for pod in self._caches[POD].by(CHARGED_PODS.name, node):
                self._moved.update(dict.fromkeys(workloads_of(pod, self._caches)))
        self._charge(node)

    # Promises

    def _derive(self, key: Key) -> set[str]:
        """Find out what a Workload is promised; return the nodes where this changes something."""
        workload = self._caches[WORKLOAD].get(key)
        verdict = self._under_way.get(key)
        if verdict is not None and at(workload, "metadata", "resourceVersion") == verdict.version:
            return self._set(key, [_chosen(node, group) for node, group in verdict.places])
        chosen = self._promises.get(key, [])
        if self._under_way.pop(key, None) is not None and verdict is not None:
            chosen = [_chosen(node, group) for node, group in verdict.places]
        if workload is None or not is_promised_cards(workload, self._checks):
            return self._set(key, [])
        return self._set(key, self._outstanding(workload, chosen))

    def _outstanding(self, workload: Object, chosen: Sequence[Promise]) -> list[Promise]:
        groups = self.demands(workload).groups
        pods = [pod for pod in pods_of(workload, self._caches) if is_live(pod)]
        if not pods and has_condition(workload, "PodsReady"):
            return []  # they run, so the ledgers have them; we only cannot tell which they are
        done = {
            as_str(r.get("name")): as_int(r.get("count")) for r in as_maps(at(workload, "status", "reclaimablePods"))
        }
        promised: list[Promise] = []
        for group in groups:
            mine = [pod for pod in pods if self._is_of(pod, group, groups)]
            bound = Counter(node for pod in mine if (node := as_str(at(pod, "spec", "nodeName"))))
            promised += [promise for pod in mine if (promise := self._unrecorded(pod, group)) is not None]
            left = group.count - done.get(group.role, sum(done.values()) if not group.role else 0) - bound.total()
            if not has_condition(workload, "Evicted"):
                promised += _unbound(group, left, bound, chosen)
        return promised

    def _unrecorded(self, pod: Object, group: PodGroup) -> Promise | None:
        node = as_str(at(pod, "spec", "nodeName"))
        claims = unrecorded(pod, self._registry, self.fleet.inventory(node)) if node else ()
        return Promise(node, needs_of(claims, key=group.needs[0].key)) if claims else None

    def _is_of(self, pod: Object, group: PodGroup, groups: Sequence[PodGroup]) -> bool:
        if not group.role:
            return True
        role = role_of(pod)
        if role:
            return role == group.role
        needs = pod_needs(as_map(at(pod, "spec")), self._registry, key=group.needs[0].key)
        return group is next((each for each in groups if each.needs == needs), None)

    def _set(self, key: Key, promised: list[Promise]) -> set[str]:
        """Replace what a Workload is promised; return the nodes where this changes something."""
        old = self._promises.get(key, [])
        if old == promised:
            return set()
        self._promises.pop(key, None)
        before, after = ({promise.node for promise in each} for each in (old, promised))
        for node in before - after - {""}:
            self._leave(node, key)
        for node in after - {""}:
            self._on_node.setdefault(node, {})[key] = None
        self._homeless.pop(key, None)
        if promised:
            self._promises[key] = promised
            if "" in after:
                self._homeless[key] = None
        return (before | after) - {""}

    def _leave(self, node: str, key: Key) -> None:
        """Let a Workload hold nothing on a node any more."""
        held = self._on_node[node]
        del held[key]
        if not held:
            del self._on_node[node]

    def _charge(self, node: str) -> None:
        """Take what is promised on a node out of its cards; who finds no room there any more looks elsewhere."""
        promised = [
            (key, promise)
            for key in self._on_node.get(node, ())
            for promise in self._promises[key]
            if promise.node == node
        ]
        promised.sort(key=lambda each: each[1].group is not None)  # stable: those bound to this node first
        housed = self.fleet.charge(node, [promise.needs for _, promise in promised])
        for (key, promise), found in zip(promised, housed, strict=True):
            if not found and promise.group is not None:
                promise.node = ""
                self._homeless[key] = None
                if all(other.node != node for other in self._promises[key]):
                    self._leave(node, key)

    def _house(self) -> None:
        """Find a node for promises without one, unless nothing was freed since that was last tried."""
        if not self._homeless or self.fleet.serial == self._housed_at:
            return
        for key in sorted(self._homeless):
            homeless = [promise for promise in self._promises.get(key, ()) if not promise.node]
            missed: PodGroup | None = None
            for promise in homeless:
                if promise.group is None or promise.group is missed:
                    continue  # equal Pods find no place either
                found = fit([replace(promise.group, count=1, hosts=None)], self.fleet).places
                if not found:
                    missed = promise.group
                else:
                    promise.node = found[0][0]
                    self._on_node.setdefault(promise.node, {})[key] = None
                    self._charge(promise.node)
            if all(promise.node for promise in homeless):
                self._homeless.pop(key, None)
        self._housed_at = self.fleet.serial


def _chosen(node: str, group: PodGroup) -> Promise:
    return Promise(node, group.needs, group if group.hosts is None else None)


def _unbound(group: PodGroup, count: int, bound: Counter[str], chosen: Sequence[Promise]) -> list[Promise]:
    """Return promises for Pods without a node: where Kueue said, else where they were put before, else anywhere."""
    wanted = min(max(count, 0), _MOST_PODS)
    if group.hosts is not None:
        named = chain.from_iterable(repeat(node, pods - min(bound[node], pods)) for node, pods in group.hosts)
        return [_chosen(node, group) for node in islice(named, wanted)]
    nodes = [promise.node for promise in chosen if promise.group == group and promise.node]
    for node in bound.elements():
        if node in nodes:
            nodes.remove(node)
    return [_chosen(node, group) for node in islice(chain(nodes, repeat("")), wanted)]


def _keys(objects: Iterable[Object]) -> list[Key]:
    return [Key(as_str(at(o, "metadata", "name")), as_str(at(o, "metadata", "namespace"))) for o in objects]
