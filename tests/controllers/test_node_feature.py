"""node_feature on an API in memory: spec 04 §3, §13.4, spec 07 §10.2, cases B003, B027."""

from __future__ import annotations

import asyncio

import pytest

from controllers.node_feature import MARK_SETTLES_S
from controllers.node_view import LABELS_MERGED
from kube.reconciler import Key, Object
from nodefeature.kinds import NODE, NODE_FEATURE
from nodefeature.labels import CPU_ONLY, GENERAL_PREFIX, MANAGED, SYSTEM_NAMESPACE
from tests.builders.chain import bench, ours, set_settings
from tests.builders.fake_api import Bench, FakeApi
from tests.builders.node_features import NfdMaster, card_feature
from tests.builders.node_labels import cpu_annotations
from tests.builders.nodes import amd_labels, epyc_node, node


def runs(api: FakeApi, *, nfd: bool = True) -> Bench:
    return bench(api, ["node_feature"], others=[NfdMaster] if nfd else [])


def said(api: FakeApi, name: str = "n") -> dict[str, str]:
    stored = api.get(NODE_FEATURE, f"{name}-gpustack-worker", SYSTEM_NAMESPACE)
    assert stored is not None
    labels: dict[str, str] = stored["spec"]["labels"]
    return labels


def labels(api: FakeApi, name: str = "n") -> dict[str, str]:
    stored = api.get(NODE, name)
    assert stored is not None
    found: dict[str, str] = stored["metadata"]["labels"]
    return found


def condition(api: FakeApi, name: str = "n") -> Object | None:
    stored = api.get(NODE, name)
    assert stored is not None
    return next((c for c in stored["status"].get("conditions", []) if c["type"] == LABELS_MERGED), None)


def test_the_generic_key_gives_way_to_the_real_one() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, node("n", cpu="2"))
        chain = runs(api)
        await chain.settle()
        assert said(api)[GENERAL_PREFIX + "generic.count"] == "2"
        named = {"labels": amd_labels(), "annotations": cpu_annotations(name="AMD EPYC 7571")}
        api.edit(NODE, "n", {"metadata": named})
        await chain.settle()
        assert said(api)[GENERAL_PREFIX + "amd-epyc-7571.count"] == "2"
        assert not [key for key in said(api) if "generic" in key]

    asyncio.run(scenario())


def test_created_object() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, epyc_node("n"))
        await runs(api, nfd=False).settle()
        stored = api.get(NODE_FEATURE, "n-gpustack-worker", SYSTEM_NAMESPACE)
        assert stored is not None
        assert stored["metadata"]["labels"] == {
            "nfd.node.kubernetes.io/node-name": "n",
            "app.kubernetes.io/part-of": "gpustack-operator-worker",
        }
        owner = stored["metadata"]["ownerReferences"][0]
        assert owner == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-n", "controller": True}

    asyncio.run(scenario())


def test_settled_and_restarted_nothing_is_written() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, *(epyc_node(f"n{number}") for number in range(5)))
        await runs(api).settle()
        again = runs(api)
        assert await again.settle() == []
        assert await again.advance(3600) == []

    asyncio.run(scenario())


def test_07_10_2_unmanage_by_the_node_feature_and_back() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, epyc_node("n"))
        chain = runs(api)
        await chain.settle()
        for word in ("false", "true"):
            patch = {"spec": {"labels": {MANAGED: word}}}
            api.edit(NODE_FEATURE, "n-gpustack-worker", patch, SYSTEM_NAMESPACE)
            await chain.settle()
            assert (labels(api)[MANAGED], said(api)[MANAGED]) == (word, word)

    asyncio.run(scenario())


@pytest.mark.parametrize("word", ["false", "true"])
def test_13_4_a_mark_on_the_node_is_mirrored(word: str) -> None:
    async def scenario() -> None:
        api = FakeApi()
        set_settings(api, node_management_manual="true")
        api.add(NODE, node("n"))
        chain = runs(api)
        await chain.settle()
        assert MANAGED not in said(api)
        api.edit(NODE, "n", {"metadata": {"labels": {MANAGED: word}}})
        await chain.settle()
        assert said(api)[MANAGED] == word

    asyncio.run(scenario())


def test_a_flapping_mark_ends_where_it_stopped() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, epyc_node("n"))
        chain = runs(api)
        await chain.settle()
        for number in range(50):
            api.edit(NODE, "n", {"metadata": {"labels": {MANAGED: "true" if number % 2 else "false"}}})
            if number % 7 == 0:
                await chain.settle()
        await chain.settle()
        await chain.advance(MARK_SETTLES_S)
        assert (labels(api)[MANAGED], said(api)[MANAGED]) == ("true", "true")

    asyncio.run(scenario())


def test_b003_a_vanished_label_changes_nothing() -> None:
    """B003: NFD takes its labels, annotations and CPU model away; our NodeFeature stays as it was."""

    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, epyc_node("n"))
        chain = runs(api)
        await chain.settle()
        before = dict(said(api))
        gone = dict.fromkeys([*before, *amd_labels()])
        bare = {"labels": gone, "annotations": dict.fromkeys(cpu_annotations(name="x"))}
        api.edit(NODE, "n", {"metadata": bare})
        chain.reconcilers[-1].up = False  # type: ignore[attr-defined]  # the stand-in's own switch
        assert ours(await chain.settle()) == []
        assert ours(await chain.advance(590)) == []
        assert said(api) == before
        assert len(ours(await chain.advance(20))) == 1, "then the condition says so"
        report = condition(api)
        assert report is not None
        assert (report["status"], report["reason"]) == ("False", "LabelsNotMerged")
        assert ours(await chain.advance(3600)) == []
        api.edit(NODE, "n", {"metadata": {"labels": {**before, **amd_labels()}}})
        await chain.settle()
        back = condition(api)
        assert back is not None
        assert back["status"] == "True"

    asyncio.run(scenario())


def test_b056_labels_that_were_never_merged_are_told_of_after_two_minutes() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, epyc_node("n"))
        chain = runs(api, nfd=False)
        await chain.settle()
        await chain.advance(119)
        assert condition(api) is None
        await chain.advance(2)
        assert condition(api) is not None

    asyncio.run(scenario())


def test_b003_a_deleted_node_feature_is_made_again() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, epyc_node("n"))
        chain = runs(api)
        await chain.settle()
        before = dict(said(api))
        api.remove(NODE_FEATURE, "n-gpustack-worker", SYSTEM_NAMESPACE)
        await chain.settle()
        assert said(api) == before

    asyncio.run(scenario())


def test_a_setting_takes_effect_by_itself() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, node("cpu"), node("gpu"))
        api.add(NODE_FEATURE, card_feature("gpu", "nvidia-t4", 1))
        chain = runs(api)
        await chain.settle()
        set_settings(api, instance_type_mixed_on_node="false", node_management_manual="false")
        await chain.settle()
        assert CPU_ONLY in said(api, "cpu")
        assert CPU_ONLY not in said(api, "gpu")

    asyncio.run(scenario())


def test_one_bad_label_is_named_once_and_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        api = FakeApi()
        bad = epyc_node("bad")
        bad["metadata"]["labels"][GENERAL_PREFIX + "amd-epyc-7571.count"] = "eight"
        bad["metadata"]["labels"][MANAGED] = "true"
        api.add(NODE, bad, epyc_node("good"))
        chain = runs(api, nfd=False)
        await chain.settle()
        for _ in range(3):
            await chain.reconcilers[0].reconcile(Key("bad"))
        assert api.names(NODE_FEATURE) == ["bad-gpustack-worker", "good-gpustack-worker"]

    asyncio.run(scenario())
    told = [record.__dict__ for record in caplog.records if record.levelname == "WARNING"]
    assert [(entry["object"], "eight" in entry["reason"], ".count" in entry["reason"]) for entry in told] == [
        ("bad", True, True)
    ]


def test_a_refused_write_stops_no_other_node() -> None:
    async def scenario() -> None:
        api = FakeApi()
        api.add(NODE, epyc_node("a"), epyc_node("b"))
        api.faults.append(
            lambda request: OSError("down") if "a-gpustack" in request.path + str(request.content) else None
        )
        chain = runs(api, nfd=False)
        await chain.settle()
        assert api.names(NODE_FEATURE) == ["b-gpustack-worker"]
        assert [(name, key.name) for name, key, _ in chain.errors] == [("node_feature", "a")]
        api.faults.clear()
        await chain.advance(2)
        assert len(api.names(NODE_FEATURE)) == 2

    asyncio.run(scenario())
