"""What Instances must obey: spec 02 §6.1-6.4, §6.8, spec 05 §7."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.instance_pod_rules import pod_problems, service_problems
from api.instance_pool_rules import pool_verdict
from api.instance_rules import FROZEN_WHILE_RUNNING, instance_problems, same_value, update_problems
from nodefeature.manufacturers import build_manufacturers

REGISTRY = build_manufacturers({})
OBJECTS = list(yaml.safe_load_all((Path(__file__).parents[1] / "rows/02-objects.yaml").read_text("utf-8")))
INSTANCES = {obj["metadata"]["name"]: obj for obj in OBJECTS if obj["kind"] == "Instance"}
TYPES = {obj["spec"]["acceleratable"]: obj for obj in OBJECTS if obj["kind"] == "InstanceType"}


def instance(**spec: Any) -> Any:
    built = deepcopy(INSTANCES["train"])
    built["spec"] |= spec
    return built


def resources(**changes: Any) -> dict[str, Any]:
    return {"cpu": "6", "ram": "96Gi", "localStorage": "50Gi", "accelerator": "1", **changes}


@pytest.mark.parametrize("name", INSTANCES)
def test_worked_instances_are_accepted(name: str) -> None:
    assert instance_problems(INSTANCES[name]) == []


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        (
            {"volume": {"ephemeral": {"capacity": "1Gi"}, "persistent": {"name": "x"}}},
            [("spec.volume", "cannot specify both ephemeral and persistent of volume")],
        ),
        ({"volume": {}}, [("spec.volume", "either ephemeral or persistent of volume should be specified")]),
        (
            {"volume": {"ephemeral": {"capacity": "0"}}},
            [("spec.volume.ephemeral.capacity", "capacity of ephemeral volume must be positive")],
        ),
        (
            {"volume": {"persistent": {"name": ""}}},
            [("spec.volume.persistent.name", "name of the persistent volume must be specified")],
        ),
        (
            {"resources": resources(acceleratorSlicedMemoryPercentage=30, acceleratorPartitionedProfile="1g.10gb")},
            [("spec.resources.acceleratorPartitionedProfile", "mutually exclusive")],
        ),
        (
            {"resources": resources(accelerator="2", acceleratorSlicedMemoryPercentage=50)},
            [("spec.resources.accelerator", "must be exactly 1 for a sliced request")],
        ),
        ({"volumeMount": "/a/"}, [("spec.volumeMount", "must match")]),
        ({"volumeMount": "a/b"}, [("spec.volumeMount", "must match")]),
        ({"volumeMount": "/a:b"}, [("spec.volumeMount", "must not contain ':'")]),
        ({"volumeMount": "/a\0b"}, [("spec.volumeMount", "must not contain a NUL character")]),
        ({"ports": [{"port": 80, "name": "x" * 17}]}, [("spec.ports[0].name", "at most 16 characters")]),
        ({"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]}, [("spec.ports[1]", "must be unique")]),
        ({"ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}]}, []),
        ({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}, [("spec.env[1]", "must be unique")]),
        ({"resources": resources(cpu="-1")}, [("spec.resources.cpu", "CPU request cannot be negative")]),
        ({"type": ""}, [("spec.type", "type must be specified")]),
        ({"image": ""}, [("spec.image", "image must be specified")]),
        ({"image": " registry.example/a:1"}, [("spec.image", "must not begin or end with a blank")]),
        (
            {"volume": {}, "volumeMount": "a", "ports": [{"port": 0}]},
            [
                ("spec.ports[0].port", "must be at least 1"),
                ("spec.volumeMount", "must match"),
                ("spec.volume", "either ephemeral or persistent"),
            ],
        ),
    ],
    ids=[
        "both volumes",
        "no volume",
        "ephemeral 0",
        "persistent without a name",
        "percentage 30 with profile 1g.10gb",
        "accelerator 2 with percentage 50",
        "volumeMount /a/",
        "volumeMount a/b",
        "volumeMount with a colon",
        "volumeMount with a NUL character",
        "port name of 17 characters",
        "port twice",
        "one port in two protocols",
        "variable twice",
        "negative",
        "no type",
        "no image",
        "image with a blank before it",
        "all errors at once",
    ],
)
def test_bad_inputs(spec: dict[str, Any], want: list[tuple[str, str]]) -> None:
    found = instance_problems(instance(**spec))
    assert [p.path for p in found] == [path for path, _ in want]
    assert all(rule in p.rule for p, (_, rule) in zip(found, want, strict=True))


def env(*names: str) -> dict[str, Any]:
    return {"env": [{"name": name, "value": "x"} for name in names]}


UNRUNNABLE: dict[str, tuple[dict[str, Any], str]] = {
    "image with a blank in it": ({"image": "registry.example/a b:1"}, "spec.image"),
    "image with a line break in it": ({"image": "registry.example/a\n:1"}, "spec.image"),
    "image in upper case": ({"image": "Ubuntu:24.04"}, "spec.image"),
    "image with an address before it": ({"image": "https://registry.example/a:1"}, "spec.image"),
    "image with two tags": ({"image": "a:1:2"}, "spec.image"),
    "image that ends with a colon": ({"image": "a:"}, "spec.image"),
    "image with a cut digest": ({"image": "a@sha256:12"}, "spec.image"),
    "command with NUL": ({"command": ["sh", "a\0b"]}, "spec.command[1]"),
    "variable without a name": (env("A", ""), "spec.env[1].name"),
    "variable with =": (env("A", "B=C"), "spec.env[1].name"),
    "variable with a tab": (env("A\tB"), "spec.env[0].name"),
    "variable with a line break at its end": (env("A\n"), "spec.env[0].name"),
    "variable with an umlaut": (env("GR\u00d6SSE"), "spec.env[0].name"),
    "value with NUL": ({"env": [{"name": "A", "value": "a\0b"}]}, "spec.env[0].value"),
    "pull secret that cannot be": ({"imagePullSecret": {"name": "Reg_Cred"}}, "spec.imagePullSecret.name"),
    "key that cannot be": ({"sshPublicKey": {"name": "my laptop"}}, "spec.sshPublicKey.name"),
    "volume that cannot be": ({"volume": {"persistent": {"name": "a/b"}}}, "spec.volume.persistent.name"),
}


@pytest.mark.parametrize(("spec", "path"), UNRUNNABLE.values(), ids=UNRUNNABLE)
def test_what_could_never_run_is_refused_at_its_field(spec: dict[str, Any], path: str) -> None:
    found = instance_problems(instance(**spec))
    assert [p.path for p in found] == [path]
    assert found[0].rule.startswith(("must ", "name of the variable must "))


RUNNABLE: dict[str, dict[str, Any]] = {
    **{
        f"image {image}": {"image": image}
        for image in (
            "ubuntu",
            "ubuntu:24.04",
            "registry:5000/a/b_c/d__e/f-g.h:V1",
            "Reg.Example:443/a",
            "localhost/a",
            "[::1]:5000/a:1",
            f"a/b@sha256:{'0' * 64}",
            f"a/b:1@sha256:{'0' * 64}",
        )
    },
    "variables as new clusters take them": env("1 A", "a.b-c", "~", " "),
    "empty value": {"env": [{"name": "A", "value": ""}]},
    "any command": {"command": ["", "-c", "\u00e4\n"]},
    "a reference that names nothing": {"imagePullSecret": {"name": ""}, "sshPublicKey": {"name": ""}},
    "references with dots": {"imagePullSecret": {"name": "a.b"}, "sshPublicKey": {"name": "1"}},
}


@pytest.mark.parametrize("spec", RUNNABLE.values(), ids=RUNNABLE)
def test_what_can_run_is_accepted(spec: dict[str, Any]) -> None:
    assert instance_problems(instance(**spec)) == []


def test_only_what_differs_is_judged_again() -> None:
    held = {"image": "A B", **env("=")}
    assert pod_problems(held, held) == []
    assert [p.path for p in pod_problems(held | {"image": "C D"}, held)] == ["spec.image"]


SECRETIVE = {"env": [{"name": "TOKEN", "value": "secret\0"}]}


def test_a_variable_s_value_is_never_shown() -> None:
    assert "secret" not in str(pod_problems(SECRETIVE)[0])


@pytest.mark.parametrize(
    ("name", "on_new", "on_old"),
    [
        ("box", True, True),
        ("a" * 63, True, True),
        ("a" * 64, False, False),
        ("a.b", False, False),
        ("1box", True, False),
        ("1.box", False, False),
        ("box1", True, True),
        ("box-1", True, True),
    ],
)
def test_a_name_is_also_a_service_s_where_there_are_ports(name: str, on_new: bool, on_old: bool) -> None:
    for digit_first, fits in ((True, on_new), (False, on_old)):
        found = service_problems(name, {"ports": [{"port": 22}]}, digit_first=digit_first)
        assert [(p.path, p.value) for p in found] == ([] if fits else [("metadata.name", f'"{name}"')])
        assert service_problems(name, {}, digit_first=digit_first) == []
        assert service_problems(name, {"ports": []}, digit_first=digit_first) == []


OK_VOLUMES: list[list[dict[str, Any]]] = [
    [],
    [{"mountPath": "/data", "persistent": {"name": "x"}}],
    [{"mountPath": "/etc/app", "readOnly": True, "subPath": "conf", "configMap": {"name": "x"}}],
    [{"mountPath": "/data", "secret": {"name": "x"}}],
    [{"mountPath": "/data", "hostPath": {"path": "/mnt/models"}}],
    [{"mountPath": "/a", "secret": {"name": "x"}}, {"mountPath": "/b", "secret": {"name": "x"}}],
    [{"mountPath": "/data", "hostPath": {"path": "/mnt", "type": "DirectoryOrCreate"}}],
]
P = {"persistent": {"name": "x"}}
BAD_VOLUMES: list[tuple[list[dict[str, Any]], str]] = [
    ([{**P}], "spec.additionalVolumes[0].mountPath"),
    ([{"mountPath": "data", **P}], "spec.additionalVolumes[0].mountPath"),
    ([{"mountPath": "/data", **P}, {"mountPath": "/data", **P}], "spec.additionalVolumes[1].mountPath"),
    ([{"mountPath": "/workspace", **P}], "spec.additionalVolumes[0].mountPath"),
    ([{"mountPath": "/workspace/.", **P}], "spec.additionalVolumes[0].mountPath"),
    ([{"mountPath": "/data", **P}, {"mountPath": "/tmp/../data", **P}], "spec.additionalVolumes[1].mountPath"),
    ([{"mountPath": "/da:ta", **P}], "spec.additionalVolumes[0].mountPath"),
    ([{"mountPath": "/da\0ta", **P}], "spec.additionalVolumes[0].mountPath"),
    ([{"mountPath": "/data", "subPath": "a\0b", **P}], "spec.additionalVolumes[0].subPath"),
    ([{"mountPath": "/data"}], "spec.additionalVolumes[0]"),
    ([{"mountPath": "/data", **P, "configMap": {"name": "x"}}], "spec.additionalVolumes[0]"),
    ([{"mountPath": "/data", "subPath": "/conf", **P}], "spec.additionalVolumes[0].subPath"),
    ([{"mountPath": "/data", "subPath": "conf/../../etc", **P}], "spec.additionalVolumes[0].subPath"),
    ([{"mountPath": "/data", "subPath": "../x", **P}], "spec.additionalVolumes[0].subPath"),
    ([{"mountPath": "/data", "persistent": {"name": ""}}], "spec.additionalVolumes[0].persistent.name"),
    ([{"mountPath": "/data", "configMap": {"name": "App_Config"}}], "spec.additionalVolumes[0].configMap.name"),
    ([{"mountPath": "/data", "hostPath": {"path": ""}}], "spec.additionalVolumes[0].hostPath.path"),
    ([{"mountPath": "/data", "hostPath": {"path": "/tmp/../etc"}}], "spec.additionalVolumes[0].hostPath.path"),
    ([{"mountPath": "/data", "hostPath": {"path": "models"}}], "spec.additionalVolumes[0].hostPath.path"),
    ([{"mountPath": "/data", "hostPath": {"path": "/m", "type": "Bogus"}}], "spec.additionalVolumes[0].hostPath.type"),
]


@pytest.mark.parametrize("volumes", OK_VOLUMES, ids=str)
def test_additional_volumes_accepted(volumes: Any) -> None:
    assert instance_problems(instance(additionalVolumes=volumes)) == []


@pytest.mark.parametrize(("volumes", "path"), BAD_VOLUMES, ids=str)
def test_additional_volumes_refused(volumes: Any, path: str) -> None:
    assert path in [p.path for p in instance_problems(instance(additionalVolumes=volumes))]


def test_running_instances_are_frozen() -> None:
    old = instance()
    for name in FROZEN_WHILE_RUNNING:
        found = update_problems(old, instance(**{name: "changed"}))
        assert [(p.path, f"{name} is immutable" in p.rule) for p in found] == [(f"spec.{name}", True)]
    assert update_problems(old, instance(displayName="new", description="new")) == []


def test_stop_and_edit_in_one_request_is_refused() -> None:
    found = update_problems(instance(), instance(stop=True, image="other"))
    assert [p.path for p in found] == ["spec.image"]


def test_stopped_instances_may_change_but_for_the_volume() -> None:
    old = instance(stop=True)
    assert update_problems(old, instance(stop=True, image="other", type="other")) == []
    found = update_problems(old, instance(stop=True, volume={"persistent": {"name": "x"}}))
    assert [p.path for p in found] == ["spec.volume"]


@pytest.mark.parametrize(
    ("was", "now", "phase", "rule"),
    [
        (True, False, "Stopped", ""),
        (True, None, "Stopping", "can only start stopped instance"),
        (None, True, "Starting", "cannot stop starting instance"),
        (None, True, "Ready", ""),
    ],
)
def test_starting_and_stopping(was: bool | None, now: bool | None, phase: str, rule: str) -> None:
    old, new = instance(stop=was), instance(stop=now)
    old["status"]["phase"] = phase
    assert [p.rule for p in update_problems(old, new)] == ([rule] if rule else [])


def test_b011_an_instance_being_deleted_is_not_judged() -> None:
    new = instance(image="other")
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert update_problems(instance(), new) == []


@pytest.mark.parametrize(
    ("left", "right", "want"),
    [
        ({"cpu": "1"}, {"cpu": "1000m"}, True),
        ({"cpu": 1}, {"cpu": "1"}, True),
        (None, {}, True),
        ([], None, True),
        (False, None, True),
        ("a", "b", False),
        ([1], [1, 2], False),
        ({"a": {"b": []}}, {}, True),
    ],
)
def test_values_are_compared_by_meaning(left: Any, right: Any, want: bool) -> None:
    assert same_value(left, right) is want


# --- against the pool ----------------------------------------------------------------------------------------------


def pool(*, accelerated: bool = True, capacity: str = "4", **detail: Any) -> Any:
    built = deepcopy(TYPES[accelerated])
    built["metadata"]["name"] = "pool"
    built["status"]["accelerator"]["capacity"] = capacity
    built["status"]["detail"] |= detail
    return built


LOGICAL: Any = {"slicedDetail": {"logical": {"count": 128}, "physical": {}}}
PARTITIONS: Any = {
    "slicedDetail": {
        "logical": {},
        "physical": {"count": 7, "profiles": [{"name": "2g.20gb", "count": 3}, {"name": "3g.40gb", "count": 2}]},
    }
}
MEMORY, CORES = "acceleratorSlicedMemoryPercentage", "acceleratorSlicedCoresPercentage"
PROFILE = "acceleratorPartitionedProfile"
GOOD_SHARES = ((20, 20), (20, 50), (100, 100), (0, 0), (50, 20))
BAD_SHARES = ((101, 101), (20, 101), (-1, 0))


@pytest.mark.parametrize(
    ("where", "asked", "rule"),
    [
        *[(pool(**LOGICAL), {MEMORY: m, CORES: c}, "") for m, c in GOOD_SHARES],
        *[(pool(**LOGICAL), {MEMORY: m, CORES: c}, "between 0 and 100") for m, c in BAD_SHARES],
        *[(pool(**LOGICAL), {MEMORY: 50, "accelerator": n}, "exactly 1") for n in ("2", "0", "1m", None)],
        *[(pool(**LOGICAL), {"accelerator": n}, "") for n in ("1", "3", "4", None)],
        (pool(**LOGICAL), {"accelerator": "5"}, "exceeds the maximum accelerator request 4 of instance type pool"),
        (pool(**LOGICAL), {"accelerator": "-1"}, "accelerator request cannot be negative"),
        (pool(**LOGICAL), {"accelerator": "1m"}, "whole number of cards"),
        *[(pool(**PARTITIONS), {PROFILE: p}, "") for p in ("3g.40gb", "2g.20gb")],
        (pool(**PARTITIONS), {PROFILE: "7g.80gb"}, "2g.20gb 3g.40gb"),
        (pool(**LOGICAL), {PROFILE: "3g.40gb"}, "does not offer hardware partitioning"),
        (pool(**PARTITIONS), {PROFILE: "3g.40gb", MEMORY: 50}, "mutually exclusive"),
        (pool(**PARTITIONS), {PROFILE: "3g.40gb", CORES: 50}, "mutually exclusive"),
        (pool(**PARTITIONS), {PROFILE: "3g.40gb", "accelerator": "2"}, "exactly 1"),
        (pool(**PARTITIONS), {PROFILE: "3g.40gb", "accelerator": "1m"}, "exactly 1"),
        (pool(manufacturer="ascend"), {PROFILE: "3g.40gb"}, "ascend does not support hardware partitioning"),
        (pool(capacity="0", **PARTITIONS), {"accelerator": "1"}, "exceeds the maximum accelerator request"),
        (pool(capacity="0", **PARTITIONS), {MEMORY: 50, CORES: 50}, "ask for a hardware partition with spec."),
        (pool(capacity="0", **PARTITIONS), {"accelerator": "0"}, ""),
        (pool(), {"cpu": "13"}, "exceeds the maximum CPU 12 of instance type pool"),
        (pool(), {"ram": "193Gi"}, "exceeds the maximum RAM 192Gi of instance type pool"),
        (pool(), {"localStorage": "101Gi"}, "exceeds the local storage 100Gi of instance type pool"),
        (pool(), {"ram": "-2Gi"}, "RAM request cannot be negative"),
        (pool(), {"localStorage": "-1"}, "local storage request cannot be negative"),
        (pool(accelerated=False), {"cpu": "48", "accelerator": None}, ""),
        (pool(accelerated=False), {"cpu": "97", "accelerator": None}, "exceeds the maximum CPU request 96"),
        (pool(accelerated=False), {"cpu": "2", "ram": "5Gi", "accelerator": None}, "exceeds the maximum RAM 4Gi"),
        (pool(accelerated=False), {"accelerator": "1"}, "non-acceleratable instance type"),
        (pool(accelerated=False), {MEMORY: 20, "accelerator": None}, "non-acceleratable instance type"),
    ],
)  # fmt: skip
def test_pool_rules(where: Any, asked: dict[str, Any], rule: str) -> None:
    base = {"cpu": "1", "ram": "2Gi", "localStorage": "10Gi", "accelerator": "1"}
    verdict = pool_verdict(base | asked, where, REGISTRY)
    assert verdict.retry == ""
    assert any(rule in p.rule for p in verdict.problems) is bool(rule)


@pytest.mark.parametrize("asked", [{MEMORY: 20}, {MEMORY: -1}, {PROFILE: "3g.40gb"}])
def test_a_pool_that_is_not_ready_is_asked_again(asked: dict[str, Any]) -> None:
    verdict = pool_verdict(resources(**asked), pool(manufacturer=""), REGISTRY)
    assert verdict.problems == ()
    assert verdict.retry == "instance type pool is not ready yet; retry"


def test_a_cpu_pool_without_capacity() -> None:
    empty = pool(accelerated=False)
    empty["status"]["cpu"]["capacity"] = "0"
    verdict = pool_verdict({"cpu": "1", "ram": "2Gi"}, empty, REGISTRY)
    assert [p.rule for p in verdict.problems] == [
        "instance type pool has no CPU capacity: no managed node currently backs it"
    ]
