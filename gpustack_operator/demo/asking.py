"""What the demo asks for, and what must have become of it.

For: `story.py`. In: settled InstanceTypes, the Devices of the machine the demo runs on. Out: objects for kubectl,
findings.
Promises: pure; the pools are chosen by what they can give, never by name; the machine that the demo runs on is not
asked for cards, since its kubelet is played in words; expectations are counted here, apart from the chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.devices import group_key, spec_groups
from nodefeature.fields import as_int, as_maps, as_str, at, name_of

NAMESPACE = "default"
API_VERSION = "worker.gpustack.ai/v1"
EXCLUSIVE, SLICED, PARTITIONED, CPU, WAITING = "exclusive", "sliced", "partitioned", "cpu-only", "one-too-many"
NAMES = (EXCLUSIVE, SLICED, PARTITIONED, CPU, WAITING)
FITTING = (EXCLUSIVE, SLICED, PARTITIONED, CPU)
KEY = "demo-key"
HALF = 50
CORES = 2
VIEWS = ("accelerator", "acceleratorShared", "acceleratorSliced", "acceleratorPartitioned", "cpu")
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pools:
    """Where the demo asks: whole cards and slices, partitions, cores."""

    cards: str
    whole: int
    """Cards of one node: what a single Instance can have at most."""
    partitions: str
    profile: str
    cpu: str

    @property
    def names(self) -> tuple[str, ...]:
        """Return the pools' names."""
        return (self.cards, self.partitions, self.cpu)


def choose(found: Sequence[Object], here: Object | None) -> Pools | None:
    """Return the pools to ask in; None when the fleet lacks one of them. `here` are this machine's own Devices."""
    own = {group_key(group) for group in spec_groups(here or {})}
    types = sorted(found, key=name_of)
    foreign = [each for each in types if at(each, "spec", "acceleratorGroup") not in own]
    # Two nodes at least: one card of the second must be left for a slice.
    cards = max(
        (each for each in foreign if _fits_demo(each)), key=lambda each: left(each, "accelerator"), default=None
    )
    partitioned = next((each for each in foreign if _profile(each)), None)
    cpus = [each for each in types if at(each, "spec", "acceleratable") is False]
    cpu = max(cpus, key=lambda each: left(each, "cpu"), default=None)
    if cards is None or partitioned is None or cpu is None:
        return None
    return Pools(name_of(cards), _once(cards), name_of(partitioned), _profile(partitioned), name_of(cpu))


def _fits_demo(each: Object) -> bool:
    sliceable = as_int(at(each, "status", "detail", "slicedDetail", "logical", "count")) > 0
    return sliceable and left(each, "accelerator") >= 2 * _once(each) > 0


def _profile(each: Object) -> str:
    """Return the profile in the middle of those that are free."""
    rows = as_maps(at(each, "status", "acceleratorPartitioned", "remainingProfiles"))
    free = sorted(as_str(row.get("name")) for row in rows if as_int(row.get("count")) > 0)
    return free[len(free) // 2] if free else ""


def left(each: Object, view: str) -> int:
    """Return what a view has left."""
    text = as_str(at(each, "status", view, "remaining"))
    return int(text) if text.isdecimal() else 0


def _once(each: Object) -> int:
    text = as_str(at(each, "status", "accelerator", "onceMaxRequest"))
    return int(text) if text.isdecimal() else 0


def key() -> dict[str, Any]:
    """Return the SSH key that the Instances let in."""
    spec = {
        "displayName": "demo",
        "data": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDemoDemoDemoDemoDemoDemoDemoDemoDemoDem demo",
    }
    return {"apiVersion": API_VERSION, "kind": "InstanceSSHPublicKey", "metadata": _meta(KEY), "spec": spec}


def instances(pools: Pools) -> list[dict[str, Any]]:
    """Return one Instance of each family, and one for which too few cards are left."""
    half = {"accelerator": "1", "acceleratorSlicedMemoryPercentage": HALF}
    part = {"accelerator": "1", "acceleratorPartitionedProfile": pools.profile}
    return [
        _instance(EXCLUSIVE, pools.cards, {"accelerator": str(pools.whole)}),
        _instance(SLICED, pools.cards, half),
        _instance(PARTITIONED, pools.partitions, part),
        _instance(CPU, pools.cpu, {"cpu": str(CORES), "ram": "4Gi"}),
    ]


def one_too_many(pools: Pools) -> dict[str, Any]:
    """Return the Instance that must wait."""
    return _instance(WAITING, pools.cards, {"accelerator": str(pools.whole)})


def _instance(name: str, pool: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    spec = {
        "type": pool,
        "image": "registry.example/workspace:1",
        "resources": dict(resources),
        "volume": {"ephemeral": {"capacity": "5Gi"}},
        "ports": [{"port": 22}, {"port": 8080}],
        "sshPublicKey": {"name": KEY},
    }
    return {"apiVersion": API_VERSION, "kind": "Instance", "metadata": _meta(name), "spec": spec}


def _meta(name: str) -> dict[str, str]:
    return {"name": name, "namespace": NAMESPACE}


def lacking(found: Sequence[Object], ready: Sequence[str]) -> list[str]:
    """Return what is missing of Instances that must be ready, with their ports and addresses."""
    by_name = {name_of(each): each for each in found}
    wrong = []
    for name in ready:
        status = at(by_name.get(name), "status")
        if at(status, "phase") != "Ready":
            said = at(status, "phaseMessage") or "no message"
            wrong.append(f"Instance {name} is {at(status, 'phase') or 'not there'}: {said}")
        elif not as_str(at(status, "summary", "ports")).startswith("22:3") or not at(status, "accessAddresses"):
            wrong.append(f"Instance {name} is Ready without ports or an address")
    return wrong


def not_moved(before: Sequence[Object], after: Sequence[Object], pools: Pools) -> list[str]:
    """Return what the views should have lost and have not."""
    was, now = {name_of(each): each for each in before}, {name_of(each): each for each in after}
    expected = {
        (pools.cards, "accelerator"): pools.whole + 1,
        (pools.cards, "acceleratorShared"): 10 * (pools.whole + 1),
        (pools.cards, "acceleratorSliced"): 100 * pools.whole + HALF,
        (pools.cpu, "cpu"): CORES,
    }
    wrong = []
    for (pool, view), taken in expected.items():
        lost = left(was.get(pool, {}), view) - left(now.get(pool, {}), view)
        if lost != taken:
            wrong.append(f"type {pool}: {view} lost {lost}, {taken} are taken")
    view = "acceleratorPartitioned"
    if left(now.get(pools.partitions, {}), view) >= left(was.get(pools.partitions, {}), view):
        wrong.append(f"type {pools.partitions}: {view} lost nothing, one {pools.profile} is taken")
    return wrong
