"""The settings Secret: absent, odd, broken, changed (spec 01 §12, design §8.9)."""

from __future__ import annotations

from api.settings import SECRET_NAME
from nodefeature.kinds import SECRET
from nodefeature.labels import SYSTEM_NAMESPACE
from tests.builders.running_chain import RunningChain, scenario
from tests.component.walkthrough import A10G_CPU_FLAVOR, A10G_IDLE, A10G_POOL, CPU_POOL, NODE_A10G, NODE_CPU


@scenario(NODE_A10G)
async def test_absent(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.find(SECRET, SECRET_NAME, SYSTEM_NAMESPACE) is None
    assert chain.row(A10G_POOL) == A10G_IDLE


@scenario(NODE_A10G, settings={"no_such_setting": "7", "instance_type_mixed_on_node": "true"})
async def test_unknown_keys(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.said(f"object={SYSTEM_NAMESPACE}/{SECRET_NAME}", "data[no-such-setting]")
    assert chain.row(A10G_POOL) == A10G_IDLE
    assert A10G_CPU_FLAVOR in chain.flavors()


@scenario(NODE_A10G, settings={"instance_type_mixed_on_node": "false"})
async def test_a_value_that_does_not_parse_keeps_the_last_good_one(chain: RunningChain) -> None:
    await chain.settle()
    assert A10G_CPU_FLAVOR not in chain.flavors()
    await chain.set(instance_type_mixed_on_node="perhaps", workload_tolerations="{[")
    await chain.settle()
    assert A10G_CPU_FLAVOR not in chain.flavors(), "the last good value holds"
    for name in ("instance-type-mixed-on-node", "workload-tolerations"):
        assert chain.said(f"object={SYSTEM_NAMESPACE}/{SECRET_NAME}", name)
        assert [text for text in chain.events_about(SECRET_NAME, SYSTEM_NAMESPACE) if name in text]
    assert chain.row(A10G_POOL) == A10G_IDLE
    await chain.set(instance_type_mixed_on_node="true")
    await chain.settle()
    assert A10G_CPU_FLAVOR in chain.flavors()


@scenario(NODE_A10G, NODE_CPU)
async def test_a_changed_value_takes_effect_within_five_seconds(chain: RunningChain) -> None:
    await chain.settle()
    await chain.set(instance_type_mixed_on_node="false")
    await chain.run(5)
    assert chain.is_going(A10G_CPU_FLAVOR)
    await chain.settle()
    assert chain.row(CPU_POOL)[2] == "16/16"
    await chain.set(instance_type_aware_cpu_manufacturer="true")
    await chain.run(5)
    assert "gpustack-amd-epyc-7r13-linux-amd64" in chain.types()
    await chain.set(instance_type_aware_cpu_manufacturer=None)
    await chain.settle()
    assert chain.row(CPU_POOL)[2:] == ("16/16", "Active")


@scenario(NODE_A10G, settings={"instance_type_mixed_on_node": "false"})
async def test_a_deleted_secret_means_the_defaults(chain: RunningChain) -> None:
    await chain.settle()
    assert A10G_CPU_FLAVOR not in chain.flavors()
    await chain.delete(SECRET, SECRET_NAME, SYSTEM_NAMESPACE)
    await chain.run(5)
    assert A10G_CPU_FLAVOR in chain.flavors()
