"""Versions, history, pages and restarts (spec 03 B7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.devcluster import store as store_module
from hack.devcluster.store import Store
from tests.builders.rows import case_json
from tests.hack.devcluster.cluster import (
    CONFIG_MAPS,
    MERGE,
    NODES,
    PODS,
    Cluster,
    config_map,
    node,
    pod,
    run,
)

CASE = case_json("B004-watchlist")


async def make(cluster: Cluster, count: int) -> None:
    for index in range(count):
        await cluster.ok("POST", CONFIG_MAPS, config_map(f"c{index}", n=str(index)))


def names(listed: dict[str, list[dict[str, dict[str, str]]]]) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def test_versions_grow_and_order_everything() -> None:
    async def test(cluster: Cluster) -> None:
        one = await cluster.ok("POST", CONFIG_MAPS, config_map("a"))
        two = await cluster.ok("POST", NODES, node())
        listed = await cluster.ok("GET", CONFIG_MAPS)
        assert int(one["metadata"]["resourceVersion"]) < int(two["metadata"]["resourceVersion"])
        assert listed["metadata"]["resourceVersion"] == two["metadata"]["resourceVersion"]

    run(test)


def test_pages_come_from_one_snapshot() -> None:
    async def test(cluster: Cluster) -> None:
        await make(cluster, 5)
        first = await cluster.ok("GET", f"{CONFIG_MAPS}?limit=2")
        assert first["metadata"]["remainingItemCount"] == 3
        await cluster.ok("DELETE", f"{CONFIG_MAPS}/c3")
        await cluster.ok("POST", CONFIG_MAPS, config_map("c11"))
        token = first["metadata"]["continue"]
        second = await cluster.ok("GET", f"{CONFIG_MAPS}?limit=2&continue={token}")
        third = await cluster.ok("GET", f"{CONFIG_MAPS}?limit=2&continue={second['metadata']['continue']}")
        assert names(first) + names(second) + names(third) == ["c0", "c1", "c2", "c3", "c4"]
        assert "continue" not in third["metadata"]
        versions = {page["metadata"]["resourceVersion"] for page in (first, second, third)}
        assert len(versions) == 1

    run(test)


def test_with_selectors_nobody_counts_what_remains() -> None:
    async def test(cluster: Cluster) -> None:
        await make(cluster, 3)
        page = await cluster.ok("GET", f"{CONFIG_MAPS}?limit=1&fieldSelector=metadata.namespace%3Ddefault")
        assert "remainingItemCount" not in page["metadata"]

    run(test)


def test_tokens_that_are_old_or_broken() -> None:
    async def test(cluster: Cluster) -> None:
        await make(cluster, 2)
        token = (await cluster.ok("GET", f"{CONFIG_MAPS}?limit=1"))["metadata"]["continue"]
        cluster.server.store._snapshots.clear()
        gone = await cluster.refused(410, "GET", f"{CONFIG_MAPS}?limit=1&continue={token}")
        assert gone["reason"] == "Expired"
        for broken in ("x", "!!", "W10", "bnVsbA", "WzEsMiwzXQ"):
            await cluster.refused(
                410 if broken == "WzEsMiwzXQ" else 400, "GET", f"{CONFIG_MAPS}?limit=1&continue={broken}"
            )

    run(test)


def test_versions_a_list_may_ask_for() -> None:
    async def test(cluster: Cluster) -> None:
        await make(cluster, 1)
        now = cluster.server.store.version
        for query in (
            "resourceVersion=0",
            f"resourceVersion={now}",
            f"resourceVersion={now}&resourceVersionMatch=Exact",
        ):
            assert names(await cluster.ok("GET", f"{CONFIG_MAPS}?{query}")) == ["c0"]
        future = await cluster.refused(504, "GET", f"{CONFIG_MAPS}?resourceVersion={now + 1}")
        assert future["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
        await cluster.ok("POST", CONFIG_MAPS, config_map("b"))
        await cluster.refused(410, "GET", f"{CONFIG_MAPS}?resourceVersion={now}&resourceVersionMatch=Exact")

    run(test)


@pytest.mark.parametrize("accept", CASE["accept"])
@pytest.mark.parametrize("count", [0, 2])
def test_b004_streaming_lists_end_with_their_mark(accept: str, count: int) -> None:
    async def test(cluster: Cluster) -> None:
        await make(cluster, count)
        async with cluster.watch(f"{CONFIG_MAPS}?{CASE['query']}", accept=accept) as watch:
            lines = await watch.take(count + 1)
            assert [line["type"] for line in lines] == ["ADDED"] * count + ["BOOKMARK"]
            await cluster.ok("POST", CONFIG_MAPS, config_map("live"))
            assert (await watch.next())["type"] == "ADDED"

    run(test)


def test_a_watch_starts_after_its_version() -> None:
    async def test(cluster: Cluster) -> None:
        await make(cluster, 1)
        version = cluster.server.store.version
        await cluster.ok("PATCH", f"{CONFIG_MAPS}/c0", {"data": {"n": "9"}}, content_type=MERGE)
        await cluster.ok("DELETE", f"{CONFIG_MAPS}/c0")
        async with cluster.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={version}") as watch:
            changed, gone = await watch.take(2)
            assert (changed["type"], gone["type"]) == ("MODIFIED", "DELETED")
            assert gone["object"]["data"] == {"n": "9"}
            assert int(gone["object"]["metadata"]["resourceVersion"]) == cluster.server.store.version

    run(test)


def test_entering_is_added_and_leaving_is_deleted_with_the_last_state() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.ok("POST", NODES, node("n", labels={"in": "no"}))
        async with cluster.watch(
            f"{NODES}?watch=1&labelSelector=in%3Dyes&resourceVersion={cluster.server.store.version}"
        ) as watch:
            for value in ("yes", "yes2", "yes", "yes"):
                body = {"metadata": {"labels": {"in": value}, "annotations": {"at": value}}}
                await cluster.ok("PATCH", f"{NODES}/n", body, content_type=MERGE)
            await cluster.ok("PATCH", f"{NODES}/n", {"metadata": {"annotations": {"at": "x"}}}, content_type=MERGE)
            await cluster.ok("DELETE", f"{NODES}/n")
            lines = await watch.take(5)
        assert [line["type"] for line in lines] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]
        assert lines[1]["object"]["metadata"]["labels"] == {"in": "yes"}
        versions = [int(line["object"]["metadata"]["resourceVersion"]) for line in lines]
        assert versions == sorted(set(versions))

    run(test)


def test_field_selectors_of_pods_follow_the_node() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.ok("POST", PODS, pod("p"))
        target = f"/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn&resourceVersion={cluster.server.store.version}"
        async with cluster.watch(target) as watch:
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}}
            await cluster.ok("POST", f"{PODS}/p/binding", binding)
            assert (await watch.next())["type"] == "ADDED"
        listed = await cluster.ok("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn,status.phase%3DPending")
        assert names(listed) == ["p"]
        await cluster.refused(400, "GET", "/api/v1/pods?fieldSelector=spec.hostname%3Dx")

    run(test)


def test_history_that_is_gone_is_410(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "HISTORY_EVENTS", 4)

    async def test(cluster: Cluster) -> None:
        await make(cluster, 1)
        version = cluster.server.store.version
        target = f"{CONFIG_MAPS}?watch=1&resourceVersion={version}"
        for index in range(10):
            await cluster.ok("PATCH", f"{CONFIG_MAPS}/c0", {"data": {"n": f"x{index}"}}, content_type=MERGE)
        answer = await cluster.refused(410, "GET", target)
        assert answer["reason"] == "Expired"

    run(test)


def test_a_watch_from_the_future_is_refused() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.refused(504, "GET", f"{CONFIG_MAPS}?watch=1&resourceVersion={cluster.server.store.version + 1}")

    run(test)


def test_a_restart_keeps_objects_and_versions(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    kept: dict[str, object] = {}

    async def before(cluster: Cluster) -> None:
        await make(cluster, 3)
        await cluster.ok("DELETE", f"{CONFIG_MAPS}/c1")
        kept["list"] = await cluster.ok("GET", CONFIG_MAPS)
        kept["version"] = cluster.server.store.version

    first = Store(path)
    run(before, store=first)
    # No close: a killed process closes nothing.

    async def after(cluster: Cluster) -> None:
        assert cluster.server.store.version == kept["version"]
        assert await cluster.ok("GET", CONFIG_MAPS) == kept["list"]
        target = f"{CONFIG_MAPS}?watch=1&resourceVersion={kept['version']}"
        async with cluster.watch(target) as watch:
            await cluster.ok("POST", CONFIG_MAPS, config_map("new"))
            assert (await watch.next())["object"]["metadata"]["name"] == "new"
        await cluster.refused(410, "GET", f"{CONFIG_MAPS}?watch=1&resourceVersion=1")

    second = Store(path)
    run(after, store=second)
    second.close()
    first.close()


def test_a_file_that_cannot_be_written_fails_the_write() -> None:
    async def test(cluster: Cluster) -> None:
        cluster.server.store._db.execute("DROP TABLE objects")
        refused = await cluster.refused(500, "POST", CONFIG_MAPS, config_map("a"))
        assert "cannot be written" in refused["message"]
        await cluster.refused(500, "GET", CONFIG_MAPS)

    run(test)
