"""Gate 1: spec 05 §2.1 and §3.2 row by row, the shared pin, variables (B012), the forged annotation (B008)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.guarded_variables import GUARDS
from api.ledger.transport import ALLOCATED_ANNOTATION
from apiserver.webhooks import pod as webhook
from apiserver.webhooks.review import Answer
from tests.builders.admission import GROUP, POOLS, QUEUE, DictWorld, patched, pod, pool, question
from tests.builders.rows import Row, case_yaml, row_id, rows

GPU = "nvidia.com/gpu"


def mutate(obj: Any, world: DictWorld | None = None) -> Answer:
    return asyncio.run(webhook.mutate(question(obj), world or DictWorld()))


def validate(obj: Any, world: DictWorld | None = None) -> Answer:
    return asyncio.run(webhook.validate(question(obj), world or DictWorld()))


def said(answer: Answer) -> str:
    assert answer.refusal is not None
    return answer.refusal.message


@pytest.mark.parametrize("row", rows("05-pod-validation"), ids=row_id)
def test_validation(row: Row) -> None:
    answer = validate(pod(row["containers"]), DictWorld(*POOLS["80Gi"]))
    if row["want"] == "ok":
        assert answer.refusal is None, said(answer)
        return
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.refusal.reason) == (422, "Invalid")
    assert row["says"] in said(answer)


def test_the_three_messages_of_exactly_one_differ() -> None:
    table = {row["row"].split()[0]: row["says"] for row in rows("05-pod-validation")}
    assert len({table["16"], table["19"], table["20"]}) == 3


@pytest.mark.parametrize("row", rows("05-pod-mutation"), ids=row_id)
def test_mutation(row: Row) -> None:
    obj = pod(row["containers"])
    world = DictWorld(*POOLS[row["pool"]], cached=False, down=row["pool"] == "unreadable")
    answer = mutate(obj, world)
    if row["want"] != "ok":
        assert answer.refusal is not None
        assert answer.refusal.code == {"reject": 422, "retry": 500}[row["want"]]
        assert row["says"] in said(answer)
        assert answer.patch == ()
        return
    assert answer.refusal is None, said(answer)
    after = patched(obj, answer.patch)
    for container, asked, written in zip(every(after), row["containers"], row["written"], strict=True):
        for part in ("requests", "limits"):
            assert container.get("resources", {}).get(part, {}) == {**asked["asks"], **written}


def every(obj: Any) -> list[Any]:
    return [*obj["spec"].get("initContainers", []), *obj["spec"]["containers"]]


def test_a_partition_and_a_slice_of_its_size_are_worth_the_same() -> None:
    table = {row["row"]: row["written"][0] for row in rows("05-pod-mutation") if row["written"]}
    assert table["P=1 1g.10gb=1 @ 80Gi"][f"{GPU}.partitioned.units"] == "200k"
    assert table["S=1 mm=10240 @ 80Gi"][f"{GPU}.sliced.units"] == "200k"


def test_the_cluster_is_asked_only_when_a_claim_needs_it() -> None:
    world = DictWorld(*POOLS["80Gi"], cached=False)
    for asks in ({f"{GPU}.sliced": "1", f"{GPU}.sliced.memory-percentage": "20"}, {GPU: "4"}, {f"{GPU}.shared": "1"}):
        assert mutate(pod([{"asks": asks}]), world).refusal is None
    assert world.asked == []


COUNT = f"acceleratable.feature.gpustack.ai/{GROUP}.count"
PIN = {"key": COUNT, "operator": "Gt", "values": ["1"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("asks", "affinity", "want"),
    [
        (["2"], None, [[PIN]]),
        (["1"], None, None),
        (["2", "1"], None, [[PIN]]),
        (["1", "3"], None, [[{**PIN, "values": ["2"]}]]),
        (
            ["2"],
            [[{"key": "zone", "operator": "In", "values": ["a"]}]],
            [[{"key": "zone", "operator": "In", "values": ["a"]}, PIN]],
        ),
        (
            ["2"],
            [[{"key": "a", "operator": "Exists"}], [{"key": "b", "operator": "Exists"}]],
            [[{"key": "a", "operator": "Exists"}, PIN], [{"key": "b", "operator": "Exists"}, PIN]],
        ),
    ],
    ids=["two", "one", "the largest container", "not the sum", "existing term", "every term"],
)
def test_shared_pin(asks: list[str], affinity: Any, want: Any) -> None:
    obj = pod([{"asks": {f"{GPU}.shared": amount}} for amount in asks])
    if affinity:
        terms = [{"matchExpressions": term} for term in affinity]
        obj["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}, "podAffinity": {"x": 1}}
    answer = mutate(obj, DictWorld(*POOLS["80Gi"]))
    after = patched(obj, answer.patch)["spec"].get("affinity")
    if want is None:
        assert after is None
        return
    assert [term["matchExpressions"] for term in after["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]] == want
    assert ("podAffinity" in after) is bool(affinity)


@pytest.mark.parametrize("pool_name", ["none", "two types", "unreadable"])
def test_a_shared_pin_that_cannot_be_told_refuses(pool_name: str) -> None:
    world = DictWorld(*POOLS[pool_name], cached=False, down=pool_name == "unreadable")
    assert mutate(pod([{"asks": {f"{GPU}.shared": "2"}}]), world).refusal is not None


def test_a_local_queue_that_a_tenant_edited_tells_nothing() -> None:
    world = DictWorld(*POOLS["40Gi"], queues={QUEUE: "a-pool-with-larger-cards"})
    answer = mutate(pod([{"asks": {f"{GPU}.sliced": "1", f"{GPU}.sliced.memory-mib": "4096"}}]), world)
    assert ("160k" in {operation.value for operation in answer.patch}) is True
    assert not [asked for asked in world.asked if asked.startswith("pool of")]


@pytest.mark.parametrize(
    ("asks", "front", "says"),
    [
        ({"amd.com/gpu": "1"}, pool(), "nvidia accelerators only"),
        ({GPU: "1"}, pool(group=""), "no accelerators"),
        ({GPU: "1"}, pool(manufacturer=""), ""),
        ({GPU: "1"}, pool(), ""),
        ({"amd.com/gpu": "1"}, None, ""),
    ],
    ids=["another manufacturer", "a pool of CPUs", "detail not computed", "its own", "a queue that is not ours"],
)
def test_cards_that_the_queue_s_quota_would_not_count(asks: Any, front: Any, says: str) -> None:
    answer = validate(pod([{"asks": asks}]), DictWorld(*([front] if front else [])))
    assert (answer.refusal is not None) is bool(says)
    assert not says or says in said(answer)


GUARDED = sorted({name for guard in GUARDS.values() for name in (guard.visible, *guard.names, *guard.prefixes) if name})


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("asks", [{GPU: "1"}, {"device.gpustack.ai/nvidia.visibility": "1"}], ids=["holds", "sees"])
def test_b012_variables_that_widen_are_refused_beside_cards(name: str, asks: Any) -> None:
    answer = validate(pod([{"asks": asks, "env": [{"name": "A", "value": "1"}, {"name": name, "value": "all"}]}]))
    assert answer.refusal is not None
    assert answer.refusal.details["causes"][0]["field"] == "spec.containers[0].env[1].name"
    assert name in said(answer)


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "LIBCUDA_LOG_LEVEL", "NVIDIA_DRIVER_CAPABILITIES"])
def test_variables_that_narrow_or_speak_are_the_user_s(name: str) -> None:
    assert validate(pod([{"asks": {GPU: "1"}, "env": [{"name": name, "value": "1"}]}])).refusal is None


def test_b012_containers_without_a_card_are_shown_none() -> None:
    wide = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "A", "value": "1"}]
    sees = {"asks": {"device.gpustack.ai/nvidia.visibility": "1"}}
    obj = pod([{"group": "init"}, {"asks": {GPU: "1"}}, {"env": wide}, sees])
    answer = mutate(obj, DictWorld())
    init, main, other, sshd = every(patched(obj, answer.patch))
    none = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert [container.get("env") for container in (init, main, other, sshd)] == [
        [none],
        None,
        [{"name": "A", "value": "1"}, none],
        None,
    ]
    assert answer.warnings == ("container c2: NVIDIA_VISIBLE_DEVICES set to void, it holds no card",)


def test_b012_a_pod_without_a_card_on_an_accelerated_pool_is_shown_none() -> None:
    answer = mutate(pod([{}]), DictWorld(*POOLS["80Gi"]))
    assert [operation.value for operation in answer.patch] == [[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]]
    assert mutate(pod([{}]), DictWorld(pool(group=""))).patch == ()
    assert mutate(pod([{}]), DictWorld()).patch == ()


@pytest.mark.parametrize("obj", case_yaml("B008-forged-annotation"), ids=lambda obj: obj["metadata"]["name"])
def test_b008_the_agents_annotation_is_taken_off(obj: Any) -> None:
    answer = mutate(obj)
    assert ALLOCATED_ANNOTATION not in patched(obj, answer.patch)["metadata"]["annotations"]
    assert "only the node's agent writes it" in answer.warnings[-1]


AMOUNTS = {
    "1e-3": "reject",
    "0x10": "reject",
    "100%": "reject",
    "-1": "reject",
    str(2**70): "reject",
    "1": "ok",
    "1000m": "ok",
    "": "reject",
    None: "reject",
    True: "reject",
}


@pytest.mark.parametrize(("amount", "want"), AMOUNTS.items(), ids=str)
@pytest.mark.parametrize("key", [".sliced", ".sliced.memory-percentage", ".partitioned"])
def test_amounts_that_nobody_should_write(key: str, amount: Any, want: str) -> None:
    asks = {f"{GPU}{key}": amount}
    if key == ".sliced":
        asks[f"{GPU}.sliced.memory-percentage"] = "20"
    elif key == ".partitioned":
        asks[f"{GPU}.partitioned.mig-1g.10gb"] = "1"
    else:
        asks[f"{GPU}.sliced"] = "1"
        want = "ok" if amount == "1e-3" else want
    world = DictWorld(*POOLS["80Gi"])
    mutate(pod([{"asks": asks}]), world)
    assert (validate(pod([{"asks": asks}]), world).refusal is None) is (want == "ok")


def test_names_in_mixed_case_are_no_cards_of_ours() -> None:
    asks = {"Nvidia.com/GPU": "1", "nvidia.com/GPU.sliced": "7", "NVIDIA.COM/gpu.shared": "2"}
    assert mutate(pod([{"asks": asks}])).patch == ()
    assert validate(pod([{"asks": asks}])).refusal is None


def test_five_hundred_containers() -> None:
    many = [{"asks": {GPU: "1", f"{GPU}.sliced": "1"}} for _ in range(500)]
    answer = validate(pod(many))
    assert answer.refusal is not None
    assert "found [exclusive sliced]" in said(answer)
    assert mutate(pod(many)).refusal is None


@pytest.mark.parametrize(
    "spec", [None, {}, {"containers": None}, {"containers": [None, 7, {"resources": None}]}], ids=str
)
def test_b019_nulls(spec: Any) -> None:
    obj = {"metadata": {"name": "p", "labels": None, "annotations": None}, "spec": spec}
    assert mutate(obj).refusal is None
    assert validate(obj).refusal is None


def test_updates_and_sub_resources_are_not_judged() -> None:
    obj = pod([{"asks": {GPU: "1", f"{GPU}.shared": "1"}}])
    for fields in ({"operation": "UPDATE"}, {"subresource": "status"}):
        asked = question(obj, **fields)  # type: ignore[arg-type] # a table of keywords
        assert asyncio.run(webhook.validate(asked, DictWorld())) == Answer()
        assert asyncio.run(webhook.mutate(asked, DictWorld())) == Answer()
