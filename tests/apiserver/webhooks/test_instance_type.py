"""InstanceTypes: spec 05 §7.7, spec 02 §4.1 and §4.8."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from api.settings import DEFAULTS
from apiserver.webhooks import instance_type as webhook
from apiserver.webhooks.review import ALLOWED, Answer
from nodefeature.labels import ACCELERATABLE, ARCH, DEVICE_PREFIX, GENERAL_PREFIX, OS, QUEUE_ENTRANCE
from tests.builders.admission import DictWorld, patched, pool, question

NAME = "gpustack-nvidia-a10g-linux-amd64"


def kind(*, group: str = "nvidia-a10g", labels: Any = None, **spec: Any) -> Any:
    made = pool(NAME, group=group)
    meta = {"name": NAME, **({"labels": labels} if labels is not None else {})}
    return {**made, "metadata": meta, "spec": {k: v for k, v in {**made["spec"], **spec}.items() if v is not None}}


def mutate(obj: Any, old: Any = None, world: DictWorld | None = None) -> Answer:
    return asyncio.run(webhook.mutate(question(obj, old), world or DictWorld()))


def validate(obj: Any, old: Any = None) -> Answer:
    return asyncio.run(webhook.validate(question(obj, old), DictWorld()))


def test_labels_and_entrance() -> None:
    obj = kind()
    assert patched(obj, mutate(obj).patch)["metadata"]["labels"] == {
        ACCELERATABLE: "true",
        OS: "linux",
        ARCH: "amd64",
        f"{DEVICE_PREFIX}nvidia-a10g": "true",
        QUEUE_ENTRANCE: "gpustack-fnv64-7bc37bef52624161",
    }


def test_labels_follow_the_spec_and_settled_means_no_patch() -> None:
    stale = {f"{DEVICE_PREFIX}nvidia-t4": "true", QUEUE_ENTRANCE: "somebody-elses", "mine": "kept"}
    obj = kind(labels=stale)
    after = patched(obj, mutate(obj, obj).patch)
    assert f"{DEVICE_PREFIX}nvidia-t4" not in after["metadata"]["labels"]
    assert after["metadata"]["labels"][QUEUE_ENTRANCE] == "gpustack-fnv64-7bc37bef52624161"
    assert after["metadata"]["labels"]["mine"] == "kept"
    assert mutate(after, after).patch == ()


def test_empty_general_group_becomes_generic() -> None:
    obj = kind(generalGroup=None)
    assert patched(obj, mutate(obj).patch)["spec"]["generalGroup"] == "generic"


def test_cpu_awareness_adds_the_general_key() -> None:
    aware = DictWorld(settings=replace(DEFAULTS, instance_type_aware_cpu_manufacturer=True))
    obj = kind(generalGroup="amd-epyc-7763")
    assert f"{GENERAL_PREFIX}amd-epyc-7763" in patched(obj, mutate(obj, world=aware).patch)["metadata"]["labels"]
    assert f"{GENERAL_PREFIX}amd-epyc-7763" not in patched(obj, mutate(obj).patch)["metadata"]["labels"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"acceleratorGroup": None}, "spec.acceleratorGroup"),
        ({"os": None}, "spec.os"),
        ({"arch": None}, "spec.arch"),
        ({"unitResources": {"ram": "1Gi"}}, "spec.unitResources.cpu"),
        ({"unitResources": {"cpu": "1"}}, "spec.unitResources.ram"),
        ({"localStorage": None}, "spec.localStorage"),
        ({"unitResources": {"cpu": "500m", "ram": "1Gi"}}, "spec.unitResources.cpu"),
        ({"group": "", "unitResources": {"cpu": "2", "ram": "1Gi"}}, "spec.unitResources.cpu"),
        ({"localStorage": "100gi"}, "spec.localStorage"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_create(change: Any, field: str) -> None:
    answer = validate(kind(**change))
    assert answer.refusal is not None
    assert answer.refusal.code == 422
    assert field in {cause["field"] for cause in answer.refusal.details["causes"]}


def test_good_types_are_accepted() -> None:
    assert validate(kind()) == validate(kind(group="", unitResources={"cpu": "1", "ram": "2Gi"})) == ALLOWED


@pytest.mark.parametrize("field", ["acceleratorGroup", "generalGroup", "os", "arch", "localStorage", "acceleratable"])
def test_update_freezes(field: str) -> None:
    values: dict[str, Any] = {"acceleratable": False, "localStorage": "50Gi"}
    changed = kind()
    changed["spec"] |= {field: values.get(field, "other")}
    answer = validate(changed, kind())
    assert answer.refusal is not None
    assert f"spec.{field}: Forbidden: {field} is immutable" in answer.refusal.message


def test_update_leaves_three_fields_to_the_administrator() -> None:
    assert validate(kind(displayName="A", description="B", inactive=True), kind()) == ALLOWED


def test_an_object_on_its_way_out_is_let_go() -> None:
    gone = kind()
    gone["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert mutate(gone, gone) == validate({**gone, "spec": {}}, gone) == ALLOWED


@pytest.mark.parametrize("spec", [None, {}, {"os": 7, "unitResources": []}, {"acceleratorGroup": "Bad/Group"}], ids=str)
def test_b019_nulls(spec: Any) -> None:
    obj = {"metadata": {"name": "t", "labels": None}, "spec": spec}
    assert mutate(obj).refusal is None
    assert validate(obj).refusal is not None
    assert mutate(obj, obj).refusal is None
    validate(obj, obj)
