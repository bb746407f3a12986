"""Owners, namespaces, finalizers of deletion."""

from __future__ import annotations

from typing import Any

import pytest

from hack.devcluster.store import Store
from tests.hack.devcluster.cluster import (
    CONFIG_MAPS,
    MERGE,
    NODES,
    Cluster,
    config_map,
    node,
    owned,
    run,
)

SPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}


async def exists(cluster: Cluster, target: str) -> bool:
    return (await cluster.ask("GET", target)).code == 200


async def family(cluster: Cluster) -> Any:
    """Make a node, a map it owns, and a map that this one owns."""
    parent = await cluster.ok("POST", NODES, node())
    child = await cluster.ok("POST", CONFIG_MAPS, owned(config_map("child"), parent))
    await cluster.ok("POST", CONFIG_MAPS, owned(config_map("grandchild"), child))
    return parent


def test_dependents_go_after_their_owner() -> None:
    async def test(cluster: Cluster) -> None:
        await family(cluster)
        await cluster.ok("POST", CONFIG_MAPS, config_map("other"))
        await cluster.ok("DELETE", f"{NODES}/n")
        await cluster.settle()
        left = await cluster.ok("GET", CONFIG_MAPS)
        assert [item["metadata"]["name"] for item in left["items"]] == ["other"]

    run(test)


def test_one_living_owner_is_enough() -> None:
    async def test(cluster: Cluster) -> None:
        one = await cluster.ok("POST", NODES, node("one"))
        two = await cluster.ok("POST", NODES, node("two"))
        await cluster.ok("POST", CONFIG_MAPS, owned(config_map("child"), one, two))
        await cluster.ok("DELETE", f"{NODES}/one")
        await cluster.settle()
        child = await cluster.ok("GET", f"{CONFIG_MAPS}/child")
        assert [ref["name"] for ref in child["metadata"]["ownerReferences"]] == ["two"]
        await cluster.ok("DELETE", f"{NODES}/two")
        await cluster.settle()
        assert not await exists(cluster, f"{CONFIG_MAPS}/child")

    run(test)


def test_a_child_of_a_namesake_of_its_owner_goes() -> None:
    async def test(cluster: Cluster) -> None:
        old = await cluster.ok("POST", NODES, node())
        await cluster.ok("DELETE", f"{NODES}/n")
        await cluster.ok("POST", NODES, node())
        await cluster.ok("POST", CONFIG_MAPS, owned(config_map("late"), old))
        await cluster.settle()
        assert not await exists(cluster, f"{CONFIG_MAPS}/late")

    run(test)


def test_orphans_stay_without_their_reference() -> None:
    async def test(cluster: Cluster) -> None:
        await family(cluster)
        await cluster.ok("DELETE", f"{NODES}/n", {"propagationPolicy": "Orphan"})
        await cluster.settle()
        assert not await exists(cluster, f"{NODES}/n")
        child = await cluster.ok("GET", f"{CONFIG_MAPS}/child")
        assert child["metadata"]["ownerReferences"] == []

    run(test)


def test_foreground_waits_for_the_dependents() -> None:
    async def test(cluster: Cluster) -> None:
        parent = await cluster.ok("POST", NODES, node())
        held = owned(config_map("held"), parent)
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await cluster.ok("POST", CONFIG_MAPS, held)
        marked = await cluster.ok("DELETE", f"{NODES}/n", {"propagationPolicy": "Foreground"})
        assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
        await cluster.settle()
        assert await exists(cluster, f"{NODES}/n")
        await cluster.ok("PATCH", f"{CONFIG_MAPS}/held", {"metadata": {"finalizers": None}}, content_type=MERGE)
        await cluster.settle()
        assert not await exists(cluster, f"{NODES}/n")

    run(test)


def test_a_namespace_loses_its_content_then_itself() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.ok("POST", "/api/v1/namespaces", SPACE)
        held = config_map("held")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        base = "/api/v1/namespaces/team/configmaps"
        await cluster.ok("POST", base, held)
        await cluster.ok("POST", base, config_map("free"))
        marked = await cluster.ok("DELETE", "/api/v1/namespaces/team")
        assert marked["status"]["phase"] == "Terminating"
        await cluster.settle()
        assert [item["metadata"]["name"] for item in (await cluster.ok("GET", base))["items"]] == ["held"]
        await cluster.ok("PATCH", f"{base}/held", {"metadata": {"finalizers": None}}, content_type=MERGE)
        await cluster.settle()
        assert not await exists(cluster, "/api/v1/namespaces/team")
        await cluster.ok("POST", "/api/v1/namespaces", SPACE)

    run(test)


def test_a_namespace_can_be_finalized_by_hand() -> None:
    async def test(cluster: Cluster) -> None:
        made = await cluster.ok("POST", "/api/v1/namespaces", SPACE)
        await cluster.ok("PUT", "/api/v1/namespaces/team/finalize", {**made, "spec": {"finalizers": []}})
        await cluster.ok("DELETE", "/api/v1/namespaces/team")
        assert not await exists(cluster, "/api/v1/namespaces/team")

    run(test)


@pytest.mark.parametrize("what", ["namespace", "owner"])
def test_work_goes_on_after_a_restart(what: str) -> None:
    store = Store()

    async def before(cluster: Cluster) -> None:
        await cluster.ok("POST", "/api/v1/namespaces", SPACE)
        parent = await cluster.ok("POST", NODES, node())
        base = "/api/v1/namespaces/team/configmaps"
        await cluster.ok("POST", base, owned(config_map("child"), parent))
        cluster.server.collector.work_off = lambda: None  # type: ignore[method-assign]  # the process dies here
        await cluster.ok("DELETE", "/api/v1/namespaces/team" if what == "namespace" else f"{NODES}/n")

    async def after(cluster: Cluster) -> None:
        await cluster.settle()
        assert not await exists(cluster, "/api/v1/namespaces/team/configmaps/child")
        assert await exists(cluster, "/api/v1/namespaces/team") is (what == "owner")

    run(before, store=store)
    run(after, store=store)
    store.close()
