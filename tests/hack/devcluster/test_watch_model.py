"""Whatever is written, a client that lists and then watches sees what is stored, and nothing twice."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hack.devcluster.cluster import CONFIG_MAPS, MERGE, Cluster, config_map, run

SELECTOR = "labelSelector=in%3Dyes"
NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.sampled_from(["yes", "no"])),
        st.tuples(st.just("label"), NAMES, st.sampled_from(["yes", "no"])),
        st.tuples(st.just("data"), NAMES, st.sampled_from(["1", "2"])),
        st.tuples(st.just("delete"), NAMES, st.just("")),
    ),
    max_size=12,
)


async def do(cluster: Cluster, step: tuple[str, str, str]) -> None:
    verb, name, value = step
    if verb == "create":
        obj = config_map(name)
        obj["metadata"]["labels"] = {"in": value}
        await cluster.ask("POST", CONFIG_MAPS, obj)
    elif verb == "delete":
        await cluster.ask("DELETE", f"{CONFIG_MAPS}/{name}")
    else:
        body = {"metadata": {"labels": {"in": value}}} if verb == "label" else {"data": {"d": value}}
        await cluster.ask("PATCH", f"{CONFIG_MAPS}/{name}", body, content_type=MERGE)


def follow(known: dict[str, Any], line: Any) -> None:
    """Apply one event as a reflector does, checking that it fits what was known."""
    name = line["object"]["metadata"]["name"]
    if line["type"] == "DELETED":
        del known[name]
        return
    assert (name in known) is (line["type"] == "MODIFIED")
    known[name] = line["object"]


@settings(max_examples=40, deadline=None)
@given(before=STEPS, after=STEPS, query=st.sampled_from(["", SELECTOR]))
def test_list_and_watch_agree_with_the_store(before: Any, after: Any, query: str) -> None:
    async def test(cluster: Cluster) -> None:
        for step in before:
            await do(cluster, step)
        listed = await cluster.ok("GET", f"{CONFIG_MAPS}?{query}")
        known = {item["metadata"]["name"]: item for item in listed["items"]}
        version = listed["metadata"]["resourceVersion"]
        async with cluster.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={version}&{query}") as watch:
            for step in after:
                await do(cluster, step)
            mark = config_map("mark")
            mark["metadata"]["labels"] = {"in": "yes"}
            await cluster.ok("POST", CONFIG_MAPS, mark)
            seen = int(version)
            while "mark" not in known:
                line = await watch.next()
                assert int(line["object"]["metadata"]["resourceVersion"]) > seen
                seen = int(line["object"]["metadata"]["resourceVersion"])
                follow(known, line)
        stored = await cluster.ok("GET", f"{CONFIG_MAPS}?{query}")
        assert known == {item["metadata"]["name"]: item for item in stored["items"]}

    run(test)
