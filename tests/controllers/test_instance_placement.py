"""Where volumes let a Pod run, and when they are ready: spec 05 §8.6, its rows by name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controllers.instance_placement import Placement, Volumes, claims_of, crossed
from nodefeature.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS
from tests.builders.fake_api import FakeApi

ZONE_A = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
ZONE_B = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
HOST_1 = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}
FIELD = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
SPEC = {"volume": {"persistent": {"name": "models"}}}


def claim(name: str = "models", *, phase: str = "Pending", storage_class: str = "local", volume: str = "") -> Any:
    return {
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"storageClassName": storage_class, **({"volumeName": volume} if volume else {})},
        "status": {"phase": phase},
    }


def storage_class(binding: str | None = "WaitForFirstConsumer", provisioner: str = "rancher.io/local-path") -> Any:
    return {
        "metadata": {"name": "local"},
        "provisioner": provisioner,
        **({"volumeBindingMode": binding} if binding else {}),
    }


def volume(name: str = "pv", *terms: Any) -> Any:
    required = {"required": {"nodeSelectorTerms": list(terms)}}
    return {"metadata": {"name": name}, "spec": {"nodeAffinity": required} if terms else {}}


def look(api: FakeApi, spec: Any = None) -> Placement:
    return asyncio.run(Volumes(api.client()).placement(spec or SPEC, "team-a"))


def world(*objects: tuple[Any, Any]) -> FakeApi:
    api = FakeApi()
    for kind, obj in objects:
        api.add(kind, obj)
    return api


ROWS: dict[str, tuple[list[tuple[Any, Any]], Placement]] = {
    "Bound, PV has required node affinity": (
        [
            (PERSISTENT_VOLUME_CLAIM, claim(phase="Bound", volume="pv")),
            (PERSISTENT_VOLUME, volume("pv", ZONE_A)),
        ],
        Placement(terms=(ZONE_A,)),
    ),
    "Bound, PV reachable everywhere": (
        [(PERSISTENT_VOLUME_CLAIM, claim(phase="Bound", volume="pv")), (PERSISTENT_VOLUME, volume())],
        Placement(),
    ),
    "unbound, class WaitForFirstConsumer with a real provisioner": (
        [(PERSISTENT_VOLUME_CLAIM, claim()), (STORAGE_CLASS, storage_class())],
        Placement(),
    ),
    "unbound, Immediate class": (
        [(PERSISTENT_VOLUME_CLAIM, claim()), (STORAGE_CLASS, storage_class("Immediate"))],
        Placement('PersistentVolumeClaim "models" is Pending'),
    ),
    "unbound, class without a binding mode": (
        [(PERSISTENT_VOLUME_CLAIM, claim()), (STORAGE_CLASS, storage_class(None))],
        Placement('PersistentVolumeClaim "models" is Pending'),
    ),
    "class with the no-provisioner provisioner": (
        [
            (PERSISTENT_VOLUME_CLAIM, claim()),
            (STORAGE_CLASS, storage_class(provisioner="kubernetes.io/no-provisioner")),
        ],
        Placement('PersistentVolumeClaim "models" is Pending'),
    ),
    "unbound, no class": (
        [(PERSISTENT_VOLUME_CLAIM, claim(storage_class=""))],
        Placement('PersistentVolumeClaim "models" is Pending'),
    ),
    "unbound, class is gone": (
        [(PERSISTENT_VOLUME_CLAIM, claim())],
        Placement('PersistentVolumeClaim "models" is Pending'),
    ),
    "lost": (
        [(PERSISTENT_VOLUME_CLAIM, claim(phase="Lost"))],
        Placement('PersistentVolumeClaim "models" is Lost'),
    ),
    "missing": ([], Placement('PersistentVolumeClaim "models" does not exist')),
    "Bound, PV is gone": (
        [(PERSISTENT_VOLUME_CLAIM, claim(phase="Bound", volume="pv"))],
        Placement('PersistentVolumeClaim "models" is bound to a PersistentVolume that does not exist'),
    ),
    "null fields": (
        [(PERSISTENT_VOLUME_CLAIM, {"metadata": {"name": "models", "namespace": "team-a"}, "spec": None})],
        Placement('PersistentVolumeClaim "models" is Pending'),
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_claim_states(row: str) -> None:
    objects, want = ROWS[row]
    assert look(world(*objects)) == want


def test_an_ephemeral_workspace_reads_nothing() -> None:
    api = FakeApi()
    assert look(api, {"volume": {"ephemeral": {"capacity": "1Gi"}}}) == Placement()
    assert api.reads == []


def test_each_claim_is_looked_at_once() -> None:
    spec = {
        **SPEC,
        "additionalVolumes": [
            {"persistent": {"name": "data"}},
            {"persistent": {"name": "models"}},
            {"secret": {"name": "x"}},
            None,
        ],
    }
    assert claims_of(spec) == ("models", "data")


def test_affinities_are_crossed() -> None:
    api = world(
        (PERSISTENT_VOLUME_CLAIM, claim(phase="Bound", volume="pv")),
        (PERSISTENT_VOLUME, volume("pv", ZONE_A, ZONE_B)),
        (PERSISTENT_VOLUME_CLAIM, claim("data", phase="Bound", volume="pv2")),
        (PERSISTENT_VOLUME, volume("pv2", HOST_1)),
    )
    found = look(api, {**SPEC, "additionalVolumes": [{"persistent": {"name": "data"}}]})
    assert found.terms == (
        {"matchExpressions": [*ZONE_A["matchExpressions"], *HOST_1["matchExpressions"]]},
        {"matchExpressions": [*ZONE_B["matchExpressions"], *HOST_1["matchExpressions"]]},
    )


@pytest.mark.parametrize(
    ("left", "right", "want"),
    [
        ((), (), ()),
        ((ZONE_A,), (), (ZONE_A,)),
        ((), (ZONE_A,), (ZONE_A,)),
        ((ZONE_A,), (ZONE_A,), (ZONE_A,)),
        ((ZONE_A,), (FIELD,), ({**ZONE_A, **FIELD},)),
    ],
    ids=["both free", "left", "right", "the same twice", "expressions and fields"],
)
def test_crossed(left: Any, right: Any, want: Any) -> None:
    assert crossed(left, right) == want


def test_terms_do_not_grow_without_end() -> None:
    many = [{"matchExpressions": [{"key": "k", "operator": "In", "values": [str(n)]}]} for n in range(20)]
    api = world(
        (PERSISTENT_VOLUME_CLAIM, claim(phase="Bound", volume="pv")),
        (PERSISTENT_VOLUME, volume("pv", *many)),
        (PERSISTENT_VOLUME_CLAIM, claim("data", phase="Bound", volume="pv2")),
        (PERSISTENT_VOLUME, volume("pv2", *({"matchFields": t["matchExpressions"]} for t in many))),
    )
    found = look(api, {**SPEC, "additionalVolumes": [{"persistent": {"name": "data"}}]})
    assert "more than 64 node terms" in found.waiting
