"""Instances: sizes (spec 05 §6), rules (§7), host access (§7.5), an object on its way out (case B011)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from api.settings import DEFAULTS
from apiserver.webhooks import instance as webhook
from apiserver.webhooks.host_access import host_access_problems
from apiserver.webhooks.instance_sizing import partition_percentage, sized
from apiserver.webhooks.review import ALLOWED, Answer
from tests.builders.admission import INSTANCE_POOLS, DictWorld, instance, patched, pool, question
from tests.builders.rows import Row, case_json, case_yaml, row_id, rows


def mutate(obj: Any, old: Any = None, world: DictWorld | None = None) -> Answer:
    return asyncio.run(webhook.mutate(question(obj, old), world or DictWorld(*INSTANCE_POOLS["sliceable"])))


def validate(obj: Any, old: Any = None, world: DictWorld | None = None) -> Answer:
    return asyncio.run(webhook.validate(question(obj, old), world or DictWorld(*INSTANCE_POOLS["sliceable"])))


def judge(answer: Answer, row: Row) -> None:
    if row["want"] == "ok":
        assert answer.refusal is None, answer.refusal
        return
    assert answer.refusal is not None
    assert answer.refusal.code == {"reject": 422, "retry": 500}[row["want"]]
    assert row["says"] in answer.refusal.message
    if row.get("field"):
        assert row["field"] in {cause.get("field") for cause in answer.refusal.details["causes"]}


@pytest.mark.parametrize("row", rows("05-instance-validation"), ids=row_id)
def test_validation(row: Row) -> None:
    world = DictWorld(*INSTANCE_POOLS[row["pool"]], nodes=["node-1", "node-2"])
    old = instance(row["phase"], **row["old"]) if "old" in row else None
    judge(
        validate(instance(row.get("phase", ""), **{**row.get("old", {}), "stop": None, **row["spec"]}), old, world), row
    )


@pytest.mark.parametrize("row", rows("05-instance-sizes"), ids=row_id)
def test_sizes(row: Row) -> None:
    cpu, _, ram = row["unit"].split()[0].partition("/")
    group = "" if "cpu" in row["unit"] else "nvidia-h100"
    storage = "10Gi" if "10Gi" in row["unit"] else "100Gi"
    profiles = {"2g.20gb": 20480, "3g.40gb": 40960}
    kind = pool(unit=(cpu, ram), group=group, storage=storage, profiles=profiles if "Profile" in str(row) else None)
    settings = replace(DEFAULTS, instance_general_resources_overcommit=row["overcommit"])
    obj = instance(resources=row["resources"])
    answer = mutate(obj, world=DictWorld({**kind, "metadata": {"name": "pool"}}, settings=settings))
    assert answer.refusal is None, answer.refusal
    after = patched(obj, answer.patch)["spec"]["resources"]
    assert {name: after.get(name) for name in row["want"]} == row["want"]


@pytest.mark.parametrize(
    ("memory", "card", "want"),
    [
        (40960, "81920Mi", (50, True)),
        (40911, "81920Mi", (49, True)),
        (100, "81920Mi", (1, True)),
        (81920, "40Gi", (100, True)),
        (0, "81920Mi", (0, False)),
        (40960, "", (0, False)),
    ],
)
def test_percentage_of_a_partition(memory: int, card: str, want: tuple[int, bool]) -> None:
    detail = pool(memory=card, profiles={"p": memory})["status"]["detail"]
    assert partition_percentage("p", detail) == want
    assert partition_percentage("", detail) == partition_percentage("q", detail) == (0, True)


def test_other_defaults() -> None:
    obj = instance(stop=True, resources=None)
    del obj["spec"]["imagePullPolicy"], obj["spec"]["volumeMount"]
    after = patched(obj, mutate(obj).patch)["spec"]
    assert (after["imagePullPolicy"], after["volumeMount"], after["resources"]) == ("IfNotPresent", "/workspace", {})


@pytest.mark.parametrize(
    ("spec", "phase", "want"),
    [({}, "", 422), ({"stop": True}, "", None), ({}, "Ready", 422)],
    ids=["fresh running", "stopped", "phase Ready, running"],
)
def test_default_on_missing_type(spec: Any, phase: str, want: int | None) -> None:
    obj = instance(phase, **spec)
    answer = mutate(obj, obj if phase else None, DictWorld())
    assert (answer.refusal and answer.refusal.code) == want


@pytest.mark.parametrize(
    "asks",
    [
        {"acceleratorSlicedMemoryPercentage": 50},
        {"acceleratorSlicedCoresPercentage": -5},
        {"acceleratorPartitionedProfile": "3g.40gb"},
    ],
    ids=str,
)
def test_detail_not_ready_is_asked_again(asks: Any) -> None:
    answer = mutate(instance(resources=asks), world=DictWorld(*INSTANCE_POOLS["not ready"]))
    assert answer.refusal is not None
    assert answer.refusal.code == 500
    assert "not ready yet; retry" in answer.refusal.message


def test_a_profile_without_memory_is_asked_again_and_writes_nothing() -> None:
    kind = {**pool(profiles={"3g.40gb": 0}), "metadata": {"name": "pool"}}
    answer = mutate(instance(resources={"acceleratorPartitionedProfile": "3g.40gb"}), world=DictWorld(kind))
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.patch) == (500, ())


def test_a_setting_that_changed_does_not_resize_what_runs() -> None:
    obj = instance("Ready", resources={"cpu": "3", "ram": "1Gi", "localStorage": "1Gi", "accelerator": "1"})
    renamed = {**obj, "spec": {**obj["spec"], "displayName": "new"}}
    assert mutate(renamed, obj).patch == ()
    assert validate(renamed, obj) == ALLOWED


@pytest.mark.parametrize("frozen", ["image", "command", "privileged", "ports", "env", "sshPublicKey"])
def test_running_instances_are_frozen(frozen: str) -> None:
    values: dict[str, Any] = {
        "image": "other",
        "command": ["sh"],
        "privileged": True,
        "ports": [{"port": 22}],
        "env": [{"name": "A", "value": "1"}],
        "sshPublicKey": {"name": "k"},
    }
    answer = validate(instance(**{frozen: values[frozen]}), instance())
    assert answer.refusal is not None
    assert f"spec.{frozen}: Forbidden: {frozen} is immutable" in answer.refusal.message


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", "gpustack-system"])
def test_reserved_namespace(namespace: str) -> None:
    answer = asyncio.run(webhook.validate(question(instance(), namespace=namespace), DictWorld()))
    assert answer.refusal is not None
    assert "cannot create instance in reserved namespace" in answer.refusal.message


def test_type_is_required() -> None:
    answer = validate(instance(type=""))
    assert answer.refusal is not None
    assert "spec.type: Required value: type must be specified" in answer.refusal.message


def test_what_cannot_be_read_is_asked_again() -> None:
    for obj in (instance(), instance(stop=True, nodeName="node-1")):
        answer = validate(obj, world=DictWorld(*INSTANCE_POOLS["sliceable"], down=True))
        assert answer.refusal is not None
        assert answer.refusal.code == 500


@pytest.mark.parametrize("row", rows("05-host-access"), ids=row_id)
def test_host_access(row: Row) -> None:
    problems = host_access_problems(
        row["asks"],
        row["held"],
        privileged_allowed=row["privileged_allowed"],
        host_paths_allowed=row["host_paths_allowed"],
    )
    assert [found.path for found in problems] == row["rejected"]


def test_host_access_is_wired() -> None:
    paths = [{"mountPath": "/m", "hostPath": {"path": "/mnt"}}]
    asks: dict[str, Any] = {"privileged": True, "additionalVolumes": paths}
    fresh = validate(instance(**asks))
    assert fresh.refusal is not None
    assert [cause["field"] for cause in fresh.refusal.details["causes"]] == [
        "spec.privileged",
        "spec.additionalVolumes[0].hostPath",
    ]
    starting = validate(instance("Stopped", **asks), instance("Stopped", stop=True))
    assert starting.refusal is not None
    held = instance("Ready", **asks)
    assert validate({**held, "spec": {**held["spec"], "displayName": "new"}}, held) == ALLOWED
    allowed = replace(DEFAULTS, instance_privileged_allowed=True, instance_host_path_volume_allowed=True)
    assert validate(instance(**asks), world=DictWorld(*INSTANCE_POOLS["sliceable"], settings=allowed)) == ALLOWED


def test_additional_volumes_may_change_while_stopped_and_are_judged_at_the_start() -> None:
    good, bad = (
        [{"mountPath": "/data", "persistent": {"name": "d"}}],
        [{"mountPath": "data", "persistent": {"name": "d"}}],
    )
    stopped = instance("Stopped", stop=True)
    assert validate(instance("Stopped", stop=True, additionalVolumes=good), stopped) == ALLOWED
    assert (
        validate(instance("Stopped", additionalVolumes=good), instance("Stopped", stop=True, additionalVolumes=good))
        == ALLOWED
    )
    for old in (stopped, instance("Stopped", stop=True, additionalVolumes=bad)):
        assert validate(instance("Stopped", additionalVolumes=bad), old).refusal is not None
    assert validate(instance(additionalVolumes=good), instance()).refusal is not None


def test_an_image_is_judged_where_it_is_given_and_at_the_start_and_blocks_nothing_else() -> None:
    stopped, wrong = instance("Stopped", stop=True), instance("Stopped", stop=True, image="")
    for obj, old in ((wrong, None), (wrong, stopped), (instance("Stopped", image=""), wrong)):
        answer = validate(obj, old)
        assert answer.refusal is not None
        assert [cause.get("field") for cause in answer.refusal.details["causes"]] == ["spec.image"]
    assert validate(instance("Stopped", stop=True, image="", displayName="x"), wrong) == ALLOWED
    assert validate(instance(image="", displayName="x"), instance(image="")) == ALLOWED


def named(name: str, **spec: Any) -> Any:
    obj = instance(**spec)
    obj["metadata"]["name"] = name
    return obj


PORTS = [{"port": 22, "protocol": "TCP"}]
LONG = "a" * 64


@pytest.mark.parametrize(
    ("obj", "old", "digit_first", "field"),
    [
        (named(LONG), None, True, ""),
        (named(LONG, ports=PORTS), None, True, "metadata.name"),
        (named(LONG, ports=PORTS, stop=True), None, True, "metadata.name"),
        (named("team.box", ports=PORTS), None, True, "metadata.name"),
        (named("x-7f9z2", ports=PORTS), None, False, ""),
        (named("x.y-7f9z2", ports=PORTS), None, True, "metadata.name"),
        (named("1box"), None, False, ""),
        (named("1box", ports=PORTS), None, True, ""),
        (named("1box", ports=PORTS), None, False, "metadata.name"),
        (named(LONG, stop=True, ports=PORTS), named(LONG, stop=True), True, "spec.ports"),
        (named("1box", stop=True, ports=PORTS), named("1box", stop=True), False, "spec.ports"),
        (named(LONG, ports=PORTS), named(LONG, stop=True, ports=PORTS), True, "spec.ports"),
        (named(LONG, stop=True, ports=PORTS, displayName="x"), named(LONG, stop=True, ports=PORTS), True, ""),
        (named(LONG, stop=True), named(LONG, stop=True, ports=PORTS), True, ""),
        (named(LONG, ports=PORTS, displayName="x"), named(LONG, ports=PORTS), True, ""),
    ],
    ids=[
        "64 characters, no ports",
        "64 characters, ports",
        "64 characters, ports, stopped",
        "dots, ports",
        "generated",
        "generated from a prefix with a dot",
        "digit first, no ports",
        "digit first, new cluster",
        "digit first, cluster before 1.36",
        "ports are added",
        "ports are added, digit first, cluster before 1.36",
        "started as it was",
        "renamed as it was",
        "ports are taken out",
        "renamed while it runs",
    ],
)
def test_a_name_that_no_service_can_carry_is_refused_with_its_ports(
    obj: Any, old: Any, digit_first: bool, field: str
) -> None:
    if old is not None:
        obj, old = {**obj, "status": {"phase": "Stopped"}}, {**old, "status": {"phase": "Stopped"}}
    answer = validate(obj, old, DictWorld(*INSTANCE_POOLS["sliceable"], digit_first=digit_first))
    if not field:
        assert answer.refusal is None, answer.refusal
        return
    assert answer.refusal is not None
    assert answer.refusal.code == 422
    assert [cause.get("field") for cause in answer.refusal.details["causes"]] == [field]
    name = obj["metadata"]["name"]
    assert answer.refusal.message.startswith(f'Instance.worker.gpustack.ai "{name}" is invalid: {field}: Invalid value')
    assert "another name, or without ports" in answer.refusal.message


def test_the_cluster_s_version_is_asked_only_where_the_answer_hangs_on_it() -> None:
    for obj, asked in (
        (named("box", ports=PORTS), False),
        (named("1box"), False),
        (named("1.box", ports=PORTS), False),
        (named("1box", ports=PORTS), True),
    ):
        world = DictWorld(*INSTANCE_POOLS["sliceable"])
        validate(obj, world=world)
        assert ("version" in world.asked) is asked
    answer = validate(named("1box", ports=PORTS, stop=True), world=DictWorld(down=True))
    assert answer.refusal is not None
    assert answer.refusal.code == 500


@pytest.mark.parametrize(
    ("good", "bad", "field"),
    [
        ({"image": "a:1"}, {"image": "A b"}, "spec.image"),
        ({"env": [{"name": "1 A", "value": ""}]}, {"env": [{"name": "A=", "value": ""}]}, "spec.env[0].name"),
        ({"command": ["a"]}, {"command": ["\0"]}, "spec.command[0]"),
        ({"imagePullSecret": {"name": "a"}}, {"imagePullSecret": {"name": "A"}}, "spec.imagePullSecret.name"),
        ({"sshPublicKey": {"name": "a"}}, {"sshPublicKey": {"name": "A"}}, "spec.sshPublicKey.name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_could_never_run_is_refused_where_it_is_given_and_at_the_start(
    good: dict[str, Any], bad: dict[str, Any], field: str
) -> None:
    stopped, held = instance("Stopped", stop=True), instance("Stopped", stop=True, **bad)
    for obj, old in ((instance(**bad), None), (held, None), (held, stopped), (instance("Stopped", **bad), held)):
        answer = validate(obj, old)
        assert answer.refusal is not None
        assert [cause.get("field") for cause in answer.refusal.details["causes"]] == [field]
    renamed = {**held, "spec": {**held["spec"], "displayName": "x"}}
    assert validate(renamed, held) == ALLOWED
    assert validate(instance(**good)) == ALLOWED
    assert validate(instance("Stopped", stop=True, **good), held) == ALLOWED


@pytest.mark.parametrize("obj", case_yaml("B012-visible-all"), ids=lambda obj: obj["metadata"]["name"])
def test_b012_variables_that_widen_are_refused(obj: Any) -> None:
    kind = {**pool(cards=4), "metadata": {"name": obj["spec"]["type"]}}
    answer = validate(obj, world=DictWorld(kind))
    assert answer.refusal is not None
    fields = [cause["field"] for cause in answer.refusal.details["causes"]]
    assert [field for field in fields if field.startswith("spec.env")] == [
        f"spec.env[{i}].name" for i in range(len(obj["spec"]["env"]))
    ]


def test_b012_variables_that_are_held_do_not_block_a_rename() -> None:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    old = instance("Ready", env=env)
    assert validate({**old, "spec": {**old["spec"], "displayName": "new"}}, old) == ALLOWED
    assert validate(instance("Stopped", env=env), instance("Stopped", stop=True, env=env)).refusal is not None


def test_b011_an_object_on_its_way_out_is_let_go() -> None:
    review = case_json("B011-deleting-instance-review")["request"]
    for handler in (webhook.mutate, webhook.validate):
        asked = question(review["object"], review["oldObject"])
        assert asyncio.run(handler(asked, DictWorld(down=True))) == ALLOWED


@pytest.mark.parametrize("amount", ["1e-3", "0x10", "100%", "-1", str(2**70), "", True, 1.5, [], {}], ids=str)
@pytest.mark.parametrize("field", ["cpu", "ram", "localStorage", "accelerator"])
def test_amounts_that_nobody_should_write(field: str, amount: Any) -> None:
    obj = instance(resources={"cpu": "1", "ram": "1Gi", "localStorage": "1Gi", "accelerator": "1", field: amount})
    sized(obj["spec"]["resources"], pool(), overcommit=True)
    answer = mutate(obj)
    assert answer.refusal is None
    fine = field != "accelerator" and amount in ("1e-3", 1.5)
    assert (validate(obj).refusal is None) is fine


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        {"type": 7},
        {"type": "pool", "resources": None, "volume": None},
        {"type": "pool", "resources": [], "env": {}, "additionalVolumes": "x"},
    ],
    ids=str,
)
def test_b019_nulls(spec: Any) -> None:
    obj = {"metadata": {"name": "i", "namespace": "team-a", "labels": None}, "spec": spec, "status": None}
    mutate(obj)
    assert validate(obj).refusal is not None
    mutate(obj, obj)
    validate(obj, obj)
