"""Settings: spec 01 §12, spec 02 §12.1, design §8.9."""

from __future__ import annotations

import base64
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from api.reference_files import settings_page
from api.setting import setting_names, status_of, write_problems
from api.setting_declarations import BY_NAME, DECLARATIONS, Declaration
from api.settings import (
    DEFAULTS,
    Settings,
    changed,
    parse,
    refusal,
    seeds_of,
    settings_of,
    woken,
)

SPEC_DEFAULTS = {
    "container-registry": "",
    "container-namespace": "",
    "image-pull-secrets": "",
    "image-pull-policy": "IfNotPresent",
    "instance-general-resources-overcommit": "true",
    "instance-ssh-server-image": "gpustack/ssh-server:v1.3.0",
    "instance-access-static-address": "",
    "instance-access-wildcard-dns": "",
    "instance-privileged-allowed": "false",
    "instance-host-path-volume-allowed": "false",
    "instance-persistent-volume-placement": "true",
    "workload-fit-affinity": "true",
    "node-management-manual": "false",
    "instance-type-mixed-on-node": "true",
    "instance-type-derived-from-node": "true",
    "instance-type-drain-when-no-flavors": "true",
    "instance-type-aware-cpu-manufacturer": "false",
    "kv-cache-backend-image": "gpustack/mirrored-mooncake:0.3.13.post1-cpu",
    "model-deployment-kv-cache-dtype-owned": "true",
    "model-deployment-router-image": "gpustack/llm-router:v0.1.0",
    "model-deployment-router-proxy-image": "gpustack/mirrored-envoy:distroless-v1.33.2",
    "model-deployment-routing-sidecar-image": "gpustack/mirrored-llm-d-router-disagg-sidecar:v0.10.0",
    "model-deployment-tcp-tw-reuse": "false",
    "model-prefetch-warmup-image": "gpustack/mirrored-python:3.12-alpine",
    "model-artifact-huggingface-endpoint": "https://huggingface.co",
    "model-artifact-modelscope-endpoint": "https://www.modelscope.cn",
    "model-artifact-https-proxy": "",
    "model-artifact-no-proxy": "",
    "model-artifact-ca-bundle": "",
    "model-artifact-revalidate-interval": "24h",
    "model-artifact-delivery-mode": "Engine",
    "model-store-high-watermark": "80",
    "model-store-low-watermark": "70",
    "model-store-download-concurrency": "8",
    "model-store-peer-sync": "true",
    "model-store-download-bandwidth": "0",
    "workload-tolerations": "",
}


def data(**values: str) -> dict[str, str]:
    return {name.replace("_", "-"): base64.b64encode(text.encode()).decode() for name, text in values.items()}


def test_catalogue_and_defaults() -> None:
    assert {d.name: d.default for d in DECLARATIONS} == SPEC_DEFAULTS
    assert all(d.editable for d in DECLARATIONS)


def test_each_declaration_has_its_typed_field_and_its_default() -> None:
    assert {field.name for field in fields(Settings)} == {d.field for d in DECLARATIONS}
    assert parse({}).settings == DEFAULTS
    for declaration in DECLARATIONS:
        value = declaration.parse(declaration.default)
        assert value == getattr(DEFAULTS, declaration.field), declaration.name
        assert type(value) is type(getattr(DEFAULTS, declaration.field)), declaration.name


@pytest.mark.parametrize("secret", [None, {}, {"data": None}, {"data": "x"}], ids=["absent", "empty", "null", "wrong"])
def test_an_absent_secret_means_every_default(secret: Any) -> None:
    assert settings_of(secret).settings == DEFAULTS
    assert settings_of(secret).problems == ()


def test_values_are_read() -> None:
    reading = parse(
        data(
            node_management_manual="true",
            workload_tolerations="example.com/b, example.com/a,example.com/b",
            model_store_download_bandwidth="200Mi",
            model_artifact_revalidate_interval="1h30m",
        )
    )
    assert reading.problems == ()
    assert reading.settings.node_management_manual is True
    assert reading.settings.workload_tolerations == ("example.com/a", "example.com/b")
    assert reading.settings.model_store_download_bandwidth == 200 * 2**20
    assert reading.settings.model_artifact_revalidate_interval == timedelta(minutes=90)


def test_unparsable_keeps_the_last_good_value_and_is_named() -> None:
    last = parse(data(node_management_manual="true")).settings
    reading = parse(data(node_management_manual="yes"), last=last)
    assert reading.settings.node_management_manual is True
    assert [str(p) for p in reading.problems] == ['data[node-management-manual]: "yes": must be true or false']
    assert parse(data(node_management_manual="yes")).settings == DEFAULTS, "at first sight: its default"


@pytest.mark.parametrize("raw", ["%%%", 7, None, base64.b64encode(b"\xff").decode()])
def test_a_value_that_is_no_base64_text_is_unparsable(raw: Any) -> None:
    reading = parse({"node-management-manual": raw})
    assert reading.settings == DEFAULTS
    assert len(reading.problems) == 1


def test_unknown_keys_are_ignored_and_named() -> None:
    reading = parse(data(instance_general_resources_request_by_unit="true", other="x"))
    assert reading.settings == DEFAULTS
    assert reading.unknown == ("instance-general-resources-request-by-unit", "other")


def test_seeds_come_before_built_in_defaults_and_after_stored_values() -> None:
    environ = {"GPUSTACK_NODE_MANAGEMENT_MANUAL": "true", "GPUSTACK_MODEL_STORE_HIGH_WATERMARK": "96", "HOME": "/"}
    seeds, problems = seeds_of(environ)
    assert seeds == {"node-management-manual": "true"}
    assert [str(p) for p in problems] == ['GPUSTACK_MODEL_STORE_HIGH_WATERMARK: "96": value 96 is out of range [2, 95]']
    assert parse({}, seeds=seeds).settings.node_management_manual is True
    assert parse(data(node_management_manual="false"), seeds=seeds).settings.node_management_manual is False


def test_watermarks_must_not_cross() -> None:
    reading = parse(data(model_store_high_watermark="60"))
    assert (reading.settings.model_store_high_watermark, reading.settings.model_store_low_watermark) == (80, 70)
    assert [p.rule for p in reading.problems] == [
        "the high watermark 60 must be above the low watermark 70",
        "the low watermark 70 must be below the high watermark 60",
    ]


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_spellings_of_true(text: str) -> None:
    assert parse(data(instance_privileged_allowed=text)).settings.instance_privileged_allowed is True


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("node-management-manual", "", "true or false"),
        ("node-management-manual", "tRUE", "true or false"),
        ("model-store-high-watermark", "1", "value 1 is out of range [2, 95]"),
        ("model-store-high-watermark", "٨٠", "integer"),
        ("model-store-high-watermark", "80.5", "integer"),
        ("model-store-download-concurrency", "65", "value 65 is out of range [1, 64]"),
        ("model-artifact-revalidate-interval", "30s", "out of range [1m, 8760h]"),
        ("model-artifact-revalidate-interval", "8761h", "out of range"),
        ("model-artifact-revalidate-interval", "soon", "duration"),
        ("model-artifact-revalidate-interval", "", "blank value"),
        ("model-artifact-delivery-mode", "engine", "one of Engine, Node"),
        ("model-artifact-huggingface-endpoint", "[]", "blank value"),
        ("model-artifact-huggingface-endpoint", "ftp://x", "invalid schema"),
        ("model-artifact-huggingface-endpoint", "https://", "host"),
        ("model-artifact-huggingface-endpoint", "https://x:65536", "65535"),
        ("model-artifact-https-proxy", "http://user:pw@proxy", "credentials"),
        ("model-store-download-bandwidth", "fast", "quantity"),
        ("model-store-download-bandwidth", "-1", "quantity"),
        ("instance-ssh-server-image", "", "blank value"),
        ("instance-ssh-server-image", "team/UPPER:tag", "image reference"),
        ("container-registry", "not a host", "registry"),
        ("workload-tolerations", "ok, not ok", "taint keys"),
    ],
)
def test_refusals(name: str, text: str, rule: str) -> None:
    assert rule in refusal(BY_NAME[name], text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kv-cache-backend-image", " "),
        ("model-artifact-https-proxy", "{}"),
        ("model-artifact-https-proxy", "http://proxy:3128"),
        ("container-registry", "registry.example.com:5000/mirror"),
        ("instance-ssh-server-image", "registry.example.com:5000/a/b_c@sha256:" + "a" * 64),
        ("model-artifact-delivery-mode", "Node"),
    ],
)
def test_accepted(name: str, text: str) -> None:
    assert refusal(BY_NAME[name], text) == ""


def test_a_change_wakes_what_it_concerns() -> None:
    new = parse(data(instance_type_aware_cpu_manufacturer="true", image_pull_policy="Always")).settings
    names = changed(DEFAULTS, new)
    assert names == {"instance-type-aware-cpu-manufacturer", "image-pull-policy"}
    assert woken(names) == {"node_flavor", "instance_type"}
    assert woken(frozenset({"image-pull-policy"})) == frozenset()
    assert changed(new, new) == frozenset()


def test_a_sensitive_value_never_stands_in_a_problem_or_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Declaration(
        "node-management-manual", "false", BY_NAME["node-management-manual"].parse, "", "", sensitive=True
    )
    monkeypatch.setattr("api.settings.DECLARATIONS", (secret,))
    stored = data(node_management_manual="hunter2")
    assert "hunter2" not in repr(parse(stored).problems)
    assert "hunter2" not in repr(seeds_of({secret.variable: "hunter2"}))
    assert "hunter2" not in repr(write_problems(secret, "hunter2", stored))
    assert status_of(secret, stored)["value"] == "(sensitive)"
    assert status_of(secret, {})["value"] == ""


def test_setting_statuses() -> None:
    stored = data(node_management_manual="false", unheard_of="x") | {"image-pull-policy": "%%%"}
    assert setting_names(stored) == ["image-pull-policy", "node-management-manual"]
    status = status_of(BY_NAME["node-management-manual"], stored)
    assert (status["value"], status["editable"], status["sensitive"]) == ("false", True, False)
    assert status_of(BY_NAME["image-pull-policy"], stored)["value"] == ""


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("model-store-high-watermark", "75", ""),
        ("model-store-high-watermark", "65", "the high watermark 65 must be above the low watermark 70"),
        ("model-store-low-watermark", "85", "the low watermark 85 must be below the high watermark 80"),
        ("model-store-low-watermark", "many", "must be an integer"),
    ],
)
def test_writes_are_judged_with_the_stored_values(name: str, value: str, rule: str) -> None:
    found = write_problems(BY_NAME[name], value, {})
    assert [p.rule for p in found] == ([rule] if rule else [])
    assert all(p.path == "spec.value" for p in found)


def test_the_reference_page_names_every_setting() -> None:
    page = settings_page()
    assert all(f"| `{d.name}` |" in page for d in DECLARATIONS)
