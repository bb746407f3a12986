"""`instances/explain` of an Instance pinned to a node outside its pool, from what is read to the sentence."""

from __future__ import annotations

from tests.apiserver.resources.cluster import V1, Server, run
from tests.apiserver.resources.test_explain import MERGE, ONE, put, waiting_instance
from tests.builders import waiting
from tests.builders.waiting import POOL


def test_a_pin_outside_the_pool_is_said_while_it_still_waits_for_quota() -> None:
    async def test(server: Server) -> None:
        await waiting_instance(server)
        await put(server, "Node", waiting.node("inside"))
        await put(server, "Node", waiting.node("outside", labels={}))
        for name, gate in (("inside", "Quota"), ("outside", "Scheduler")):
            pinned = {"spec": {"nodeName": name}}
            await server.ok("PATCH", f"{V1}/namespaces/team/instances/a", pinned, content_type=MERGE)
            found = await server.ok("GET", ONE)
            assert found["waitingAt"] == gate
        assert found["summary"].startswith(
            f"Refused by the scheduler: Node outside, which spec.nodeName names, is none of pool {POOL}: "
            "label gpustack.ai/managed is not true"
        )
        assert "set spec.nodeName to a node of the pool" in found["gates"][3]["passesWhen"]

    run(test)
