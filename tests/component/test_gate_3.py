"""Gate 3 in the running chain: Kueue's stand-in asks, the product answers, somebody dies in between."""

from __future__ import annotations

import random

from nodefeature.fields import as_maps, at, labels_of
from nodefeature.kinds import NODE, POD, WORKLOAD
from nodefeature.queue_names import NODE_DEVICES_CHECK
from tests.builders.running_chain import RunningChain, scenario
from tests.component.walkthrough import FREE, NODE_T4_B, T4_POOL, WHOLE

CARD = {"nvidia.com/gpu": "1"}
NODE_NAME = "node-t4-b"
FIT = "exclusive-free-cards.fit.gpustack.ai/nvidia-tesla-t4"


async def hold(chain: RunningChain, cards: int) -> None:
    """Let the ledger say that the first cards of the node are held whole."""
    await chain.charge(NODE_NAME, *({"index": n, **(WHOLE if n < cards else FREE)} for n in range(4)))


def running(chain: RunningChain, *names: str) -> list[str]:
    """Return the Pods that run."""
    return [name for name in names if at(chain.pod(name), "status", "phase") == "Running"]


def refused(chain: RunningChain) -> list[str]:
    """Return what was said to those who must wait."""
    conditions = [c for w in chain.objects(WORKLOAD) for c in as_maps(at(w, "status", "conditions"))]
    return [str(c.get("reason")) for c in conditions if c.get("type") == "Evicted" and c.get("status") == "True"]


@scenario(NODE_T4_B)
async def test_the_queue_refers_to_the_check_and_the_node_tells_its_room(chain: RunningChain) -> None:
    await chain.settle()
    checks = as_maps(at(chain.queue(T4_POOL), "spec", "admissionChecksStrategy", "admissionChecks"))
    assert [check["name"] for check in checks] == [NODE_DEVICES_CHECK]
    assert labels_of(chain.object(NODE, NODE_NAME))[FIT] == "4"
    await hold(chain, 3)
    await chain.run(3)
    assert labels_of(chain.object(NODE, NODE_NAME))[FIT] == "1"


@scenario(NODE_T4_B)
async def test_one_of_two_gets_the_last_card_the_other_comes_after_it(chain: RunningChain) -> None:
    await chain.settle()
    await hold(chain, 3)
    await chain.run(5)
    await chain.submit("a", T4_POOL, CARD)
    await chain.submit("b", T4_POOL, CARD)
    await chain.run(5)
    (first,) = running(chain, "a", "b")
    assert refused(chain) == ["AdmissionCheck"]
    await chain.restart_controllers()
    await chain.run(100)
    assert running(chain, "a", "b") == [first], "its card is promised, though no agent has recorded it"
    await hold(chain, 2)
    await chain.run(60)
    assert running(chain, "a", "b") == ["a", "b"], "asked again within 60 s"


@scenario(NODE_T4_B)
async def test_killed_at_any_moment_nobody_shares_a_card(chain: RunningChain) -> None:
    await chain.settle()
    rng, names = random.Random(3), [f"p{n}" for n in range(7)]
    for name in names:
        await chain.submit(name, T4_POOL, CARD)
        await chain.run(rng.choice((0.0, 0.05, 0.3)))
        await chain.kill("controllers")
        chain.start_controllers()
    await chain.run(120)
    assert len(running(chain, *names)) == 4
    await chain.delete(POD, running(chain, *names)[0], "default")
    await chain.run(90)
    assert len(running(chain, *names)) == 4, "who waited took the place"
