"""CRD schemas at work: defaults, pruning, validation, field validation."""

from __future__ import annotations

from typing import Any

import pytest

from nodefeature.kinds import INSTANCE, INSTANCE_TYPE
from tests.protocol.samples import Shelf, type_status
from tests.protocol.wire import MERGE, Server


@pytest.fixture
def instances(server: Server, namespace: str) -> Shelf:
    return Shelf(server, INSTANCE, namespace)


@pytest.fixture
def types(server: Server, namespace: str) -> Shelf:
    return Shelf(server, INSTANCE_TYPE, namespace)


def test_defaults_are_filled_in(instances: Shelf) -> None:
    body = instances.object("a")
    body["spec"] |= {"ports": [{"port": 80}], "resources": {}}
    created = instances.server.ok("POST", instances.path, body)
    assert created["spec"]["imagePullPolicy"] == "IfNotPresent"
    assert created["spec"]["privileged"] is False
    assert created["spec"]["ports"] == [{"port": 80, "protocol": "TCP"}]
    assert created["spec"]["resources"] == {"cpu": "0", "ram": "0", "localStorage": "0"}


def test_a_null_takes_the_default(instances: Shelf) -> None:
    body = instances.object("a")
    body["spec"]["imagePullPolicy"] = None
    assert instances.server.ok("POST", instances.path, body)["spec"]["imagePullPolicy"] == "IfNotPresent"


def test_unknown_fields_are_pruned_with_a_warning(instances: Shelf) -> None:
    body = instances.object("a")
    body["spec"]["colour"] = "red"
    answer = instances.server.ask("POST", instances.path, body)
    assert answer.code == 201
    assert "colour" not in answer.json["spec"]
    assert answer.headers["warning"] == '299 - "unknown field \\"spec.colour\\""'


@pytest.mark.parametrize(("validation", "code"), [("Ignore", 201), ("Warn", 201), ("Strict", 400)])
def test_field_validation(instances: Shelf, validation: str, code: int) -> None:
    body = instances.object("a")
    body["spec"]["colour"] = "red"
    answer = instances.server.ask("POST", instances.path, body, fieldValidation=validation)
    assert answer.code == code
    assert ("warning" in answer.headers) is (validation == "Warn")
    if validation == "Strict":
        assert 'unknown field "spec.colour"' in answer.json["message"]


def test_strict_patches_are_refused_too(instances: Shelf) -> None:
    instances.create("a")
    answer = instances.server.ask(
        "PATCH", instances.at("a"), {"spec": {"colour": "red"}}, type_=MERGE, fieldValidation="Strict"
    )
    assert (answer.code, answer.reason) == (422, "Invalid")


def test_a_field_named_twice(instances: Shelf) -> None:
    body = (
        b'{"apiVersion": "worker.gpustack.ai/v1alpha1", "kind": "Instance", "metadata": {"name": "twice"},'
        b' "spec": {"type": "a", "type": "b", "image": "i", "volume": {"persistent": {"name": "data"}}}}'
    )
    answer = instances.server.ask("POST", instances.path, body, fieldValidation="Strict")
    assert answer.code == 400


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"type": 5}, {"spec.type": "FieldValueTypeInvalid"}),
        ({"imagePullPolicy": "Sometimes"}, {"spec.imagePullPolicy": "FieldValueNotSupported"}),
        ({"displayName": "x" * 65}, {"spec.displayName": "FieldValueTooLong"}),
        ({"ports": [{"port": 0}]}, {"spec.ports[0].port": "FieldValueInvalid"}),
        ({"ports": [{"name": "web"}]}, {"spec.ports[0].port": "FieldValueRequired"}),
        ({"ports": [{"port": 80}, {"port": 80}]}, {"spec.ports[1]": "FieldValueDuplicate"}),
        ({"image": None}, {"spec.image": "FieldValueRequired"}),
        ({"resources": {"cpu": "many"}}, {"spec.resources.cpu": "FieldValueInvalid"}),
    ],
    ids=["type", "enum", "length", "minimum", "required", "duplicate", "null", "pattern"],
)
def test_a_spec_that_does_not_fit_is_invalid(instances: Shelf, spec: dict[str, Any], causes: dict[str, str]) -> None:
    body = instances.object("a")
    body["spec"] |= spec
    answer = instances.server.ask("POST", instances.path, body)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.causes == causes
    assert answer.json["details"]["kind"] == "Instance"


def test_every_error_is_told_at_once(instances: Shelf) -> None:
    body = instances.object("a")
    body["spec"] |= {"imagePullPolicy": "Sometimes", "displayName": "x" * 65}
    answer = instances.server.ask("POST", instances.path, body)
    assert set(answer.causes) == {"spec.imagePullPolicy", "spec.displayName"}


def test_a_missing_spec_is_invalid(instances: Shelf) -> None:
    body = instances.object("a")
    del body["spec"]
    answer = instances.server.ask("POST", instances.path, body)
    assert answer.causes == {"spec": "FieldValueRequired"}


def test_a_patch_may_not_make_an_object_invalid(instances: Shelf) -> None:
    instances.create("a")
    answer = instances.server.ask("PATCH", instances.at("a"), {"spec": {"image": 5}}, type_=MERGE)
    assert (answer.code, answer.reason) == (422, "Invalid")


def test_a_status_is_validated(types: Shelf) -> None:
    types.create("a")
    patch = {"status": type_status(accelerator={"onceMaxRequest": "8", "remaining": "x"})}
    answer = types.server.ask("PATCH", types.at("a", "status"), patch, type_=MERGE)
    assert answer.causes == {
        "status.accelerator.capacity": "FieldValueRequired",
        "status.accelerator.remaining": "FieldValueInvalid",
    }


@pytest.mark.parametrize("amount", ["8", 8, "3200k", "1.5"])
def test_quantities_are_numbers_or_text(types: Shelf, amount: object) -> None:
    types.create("a")
    view = {"onceMaxRequest": amount, "remaining": amount, "capacity": amount}
    patched = types.server.patch(types.at("a", "status"), {"status": type_status(accelerator=view)})
    assert patched["status"]["accelerator"] == view
