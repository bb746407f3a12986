"""Kinds that are computed from others' objects: the catalogue of flavors, and settings, one key of a Secret each."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import orjson

from apiserver.mapping.stream import EmptyStream
from tests.apiserver.resources.cluster import APPLY, MERGE, SYSTEM, TABLE, V1, Server, run
from tests.apiserver.resources.mapped_cases import MARK, SETTINGS_SECRET, names

FLAVORS = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"
SETTINGS = f"/apis/gpustack.ai/v1/namespaces/{SYSTEM}/settings"


def _flavor(name: str, **notes: str) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {
            "name": name,
            "labels": {MARK: "nodes"},
            "annotations": {f"note.gpustack.ai/{key}": value for key, value in notes.items()},
        },
        "spec": {},
    }


A10 = {"acceleratable": "true", "acceleratorGroup": "nvidia-a10g", "manufacturer": "nvidia", "generalGroup": "amd-epyc"}


def test_without_kueue_the_catalogue_is_empty_and_watches_come_again() -> None:
    async def test(server: Server) -> None:
        path = f"{V1}/instancetypeflavors"
        crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/resourceflavors.kueue.x-k8s.io"
        assert (await server.below("DELETE", crd)).code == 200
        assert (await server.below("GET", FLAVORS)).code == 404
        listed = await server.ok("GET", path)
        assert (listed["items"], bool(listed["metadata"]["resourceVersion"])) == ([], True)
        query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with server.watch(path + query) as watch:
            assert (await watch.next())["type"] == "BOOKMARK"
        await server.refused(404, "GET", f"{path}/x")

    run(test)


def test_an_empty_stream_ends_by_itself() -> None:
    async def test() -> None:
        stream = EmptyStream("7", lasts_s=0.01)
        assert [await stream.next(60), await stream.next(60)] == [(), None]

    asyncio.run(test())


def test_flavors_are_computed_and_watched() -> None:
    async def test(server: Server) -> None:
        path = f"{V1}/instancetypeflavors"
        assert (await server.ok("GET", path))["items"] == []
        await server.put_below(FLAVORS, _flavor("f1", **A10))
        listed = await server.ok("GET", path)
        assert names(listed) == ["gpustack-nvidia-a10g"]
        version = listed["metadata"]["resourceVersion"]
        query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with server.watch(path + query) as watch:
            added, mark = await watch.take(2)
            assert (added["type"], mark["type"]) == ("ADDED", "BOOKMARK")
            await server.put_below(FLAVORS, _flavor("f2", **A10))  # collapses: nothing changes
            await server.put_below(FLAVORS, _flavor("f3", acceleratable="false"))
            event = await watch.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "gpustack-generic")
            assert (await server.below("DELETE", f"{FLAVORS}/f3")).code == 200
            event = await watch.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "gpustack-generic")
        async with server.watch(f"{path}?watch=true&resourceVersion={version}") as watch:
            # What led here is told again as it is now: the first row stands, the second is gone.
            told = [(e["type"], e["object"]["metadata"]["name"]) for e in await watch.take(3)]
            assert told == [
                ("MODIFIED", "gpustack-nvidia-a10g"),
                ("DELETED", "gpustack-generic"),
                ("DELETED", "gpustack-generic"),
            ]
        assert (await server.ok("GET", f"{path}/gpustack-nvidia-a10g"))["kind"] == "InstanceTypeFlavor"
        table = await server.ok("GET", path, accept=TABLE)
        assert table["rows"][0]["cells"][1:5] == [None, "nvidia-a10g", True, "nvidia"]
        await server.refused(405, "POST", path, {})
        await server.refused(404, "GET", f"{path}/none")

    run(test)


async def _settings(server: Server, **values: str) -> None:
    data = {key.replace("_", "-"): base64.b64encode(value.encode()).decode() for key, value in values.items()}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "gpustack-settings"}, "data": data}
    await server.put_below(SETTINGS_SECRET, body)


MANUAL = "node-management-manual"


def test_settings_read_and_write_one_key() -> None:
    async def test(server: Server) -> None:
        assert (await server.ok("GET", SETTINGS))["items"] == []
        await server.refused(404, "GET", f"{SETTINGS}/{MANUAL}")
        await _settings(server, node_management_manual="false", image_pull_policy="IfNotPresent", nobody="x")
        listed = await server.ok("GET", "/apis/gpustack.ai/v1/settings")
        assert names(listed) == ["image-pull-policy", MANUAL]
        secret = await server.stored(f"{SETTINGS_SECRET}/gpustack-settings")
        one = await server.ok("GET", f"{SETTINGS}/{MANUAL}")
        assert one["status"]["value"] == "false"
        assert one["metadata"]["resourceVersion"] == secret["metadata"]["resourceVersion"]
        target = f"{SETTINGS}/{MANUAL}"
        patched = await server.ok("PATCH", target, {"spec": {"value": "true"}}, content_type=MERGE)
        assert (patched["status"]["value"], "spec" in patched) == ("true", False)
        await server.refused(409, "PUT", target, {**one, "spec": {"value": "false"}})
        unchanged = await server.ok("PATCH", target, {"spec": {}}, content_type=MERGE)
        assert unchanged == patched
        dry = await server.ok("PATCH", f"{target}?dryRun=All", {"spec": {"value": "false"}}, content_type=MERGE)
        assert dry["status"]["value"] == "false"
        assert (await server.ok("GET", target))["status"]["value"] == "true"
        refused = await server.refused(409, "PATCH", target, {"spec": {"value": "maybe"}}, content_type=MERGE)
        assert (refused["reason"], "must be true or false" in refused["message"]) == ("Conflict", True)
        await server.refused(400, "PATCH", target, {"spec": {"value": 5}}, content_type=MERGE)
        await server.refused(404, "PATCH", f"{SETTINGS}/unknown", {"spec": {"value": "x"}}, content_type=MERGE)
        away = "/apis/gpustack.ai/v1/namespaces/team/settings"
        assert (await server.ok("GET", away))["items"] == []
        await server.refused(404, "PATCH", f"{away}/{MANUAL}", {"spec": {"value": "x"}}, content_type=MERGE)
        await server.refused(405, "POST", SETTINGS, {})
        await server.refused(405, "DELETE", target)
        table = await server.ok("GET", SETTINGS, accept=TABLE)
        assert table["rows"][1]["cells"][:2] == [MANUAL, "true"]
        applied = {"apiVersion": "gpustack.ai/v1", "kind": "Setting", "metadata": {"name": MANUAL}}
        body = orjson.dumps({**applied, "spec": {"value": "false"}})
        again = await server.ok("PATCH", f"{target}?fieldManager=ui", body, content_type=APPLY)
        assert again["status"]["value"] == "false"

    run(test)


def test_settings_are_watched() -> None:
    async def test(server: Server) -> None:
        query = "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with server.watch(SETTINGS + query) as watch:
            assert (await watch.next())["type"] == "BOOKMARK"
        await _settings(server, node_management_manual="false", image_pull_policy="IfNotPresent")
        version = (await server.ok("GET", SETTINGS))["metadata"]["resourceVersion"]
        async with server.watch(SETTINGS + query) as watch:
            assert [event["type"] for event in await watch.take(3)] == ["ADDED", "ADDED", "BOOKMARK"]
            change = {"spec": {"value": "true"}}
            await server.ok("PATCH", f"{SETTINGS}/{MANUAL}", change, content_type=MERGE)
            event = await watch.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("MODIFIED", MANUAL)
        async with server.watch(f"{SETTINGS}?watch=true&resourceVersion={version}") as watch:
            told = {e["object"]["metadata"]["name"]: e["object"]["status"]["value"] for e in await watch.take(2)}
            assert told[MANUAL] == "true"

    run(test)


def test_awareness_answers_with_a_warning() -> None:
    async def test(server: Server) -> None:
        await _settings(server, instance_type_aware_cpu_manufacturer="false")
        target = f"{SETTINGS}/instance-type-aware-cpu-manufacturer"
        answer = await server.ask("PATCH", target, {"spec": {"value": "true"}}, content_type=MERGE)
        assert "queues drain" in answer.headers["warning"]

    run(test)
