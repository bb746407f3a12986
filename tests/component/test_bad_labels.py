"""Labels that cannot be used: named by node and label, everybody else goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube.errors import Invalid
from nodefeature.destinations import is_label_value, is_object_name, is_qualified_name
from nodefeature.fields import at, labels_of
from nodefeature.kinds import CLUSTER_QUEUE, DEVICES, INSTANCE_TYPE, NODE, NODE_FEATURE, RESOURCE_FLAVOR
from nodefeature.labels import ARCH, MANAGED, SYSTEM_NAMESPACE
from tests.builders.machines import a10g, card, machine
from tests.builders.running_chain import RunningChain, scenario
from tests.component.walkthrough import A10G_IDLE, A10G_POOL, CPU_POOL, NODE_A10G

PREFIX = "acceleratable.feature.gpustack.ai/"
T4 = PREFIX + "nvidia-tesla-t4"
SAID = {PREFIX + "nvidia": "true", T4: "true", T4 + ".product": "Tesla-T4", T4 + ".memory": "16Gi"}


def labelled(name: str = "odd", **labels: str) -> dict[str, Any]:
    """Return a machine without cards whose administrator says something about cards."""
    return {**machine(name, cores=8), "labels": labels}


COUNTS = ("eight", "1e3", "9" * 19, "08", "1.5", "")


@scenario(NODE_A10G, *(labelled(f"odd-{n}", **SAID, **{T4 + ".count": count}) for n, count in enumerate(COUNTS)))
async def test_a_count_that_is_no_number(chain: RunningChain) -> None:
    await chain.settle()
    for number, count in enumerate(COUNTS):
        assert chain.said(f"object=odd-{number} ", f"{T4}.count={count!r} must be a plain number")
    assert not [name for name in chain.flavors() if "tesla-t4" in name]
    assert chain.row(A10G_POOL) == A10G_IDLE
    assert chain.row(CPU_POOL)[2] == f"8/{4 + 8 * len(COUNTS)}", "their CPUs are in their pool"


@scenario(NODE_A10G, labelled(**SAID, **{T4 + ".count": "2"}))
async def test_a_negative_count_never_reaches_a_node(chain: RunningChain) -> None:
    await chain.settle()
    assert "gpustack-nvidia-tesla-t4-linux-amd64-2d" in chain.flavors()
    with pytest.raises(Invalid):
        await chain.label("odd", **{T4 + ".count": "-1"})
    await chain.kill("agent node-a10g")
    said = {"spec": {"labels": {PREFIX + "nvidia-a10g.count": "-1"}}}
    await chain.edit(NODE_FEATURE, "node-a10g-gpustack-device-manager", said, SYSTEM_NAMESPACE)
    await chain.run(60)
    assert chain.row(A10G_POOL) == A10G_IDLE, "what the node still says holds"


MEMORIES = ("24G", "24576Mi", "1.5Gi", "24GB", "lots")


def of_memory(number: int, memory: str) -> dict[str, Any]:
    key = PREFIX + f"nvidia-b{number}"
    said = {PREFIX + "nvidia": "true", key: "true", key + ".count": "1", key + ".memory": memory}
    return labelled(f"odd-{number}", **said)


@scenario(NODE_A10G, *(of_memory(number, memory) for number, memory in enumerate(MEMORIES)))
async def test_a_memory_people_mistype(chain: RunningChain) -> None:
    await chain.settle()
    for number, memory in enumerate(MEMORIES):
        pool = f"gpustack-nvidia-b{number}-linux-amd64"
        assert chain.row(pool)[3] == "Active"
        assert chain.quotas(pool) == {f"{pool}-1d": "1600k"}
        named = chain.said(f"object=odd-{number} ", f"nvidia-b{number}.memory", "counts as nothing")
        assert bool(named) == (memory in ("24GB", "lots")), "the others are quantities, only unusual ones"
    assert chain.row(A10G_POOL) == A10G_IDLE


@scenario(NODE_A10G, labelled(**{PREFIX + "acme": "true", PREFIX + "acme-x1": "true", PREFIX + "acme-x1.count": "4"}))
async def test_an_unknown_manufacturer(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.said("object=odd", "acme-x1")
    assert not [name for name in (*chain.flavors(), *chain.types()) if "acme" in name]
    assert chain.row(A10G_POOL) == A10G_IDLE
    assert chain.row(CPU_POOL)[2] == "8/12"


@scenario(
    machine(
        "twins",
        cards=[a10g(), {**a10g(), "product": "NVIDIA_A10G"}, {**a10g(), "product": "nvidia A10G", "memory_mib": 46068}],
    )
)
async def test_groups_with_one_key(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.said("node=twins", "A10G")
    assert chain.detected("twins")["reason"] == "Incomplete"
    counted = sum(chain.flavor_capacity(name) for name in chain.flavors() if name.endswith("d"))
    published = [len(g["accelerators"]) for g in chain.object(DEVICES, "twins")["spec"]["groups"]]
    assert counted == sum(published)
    assert {chain.row(pool)[3] for pool in chain.types()} == {"Active"}


ODD_NAMES = (
    "Tesla(R) P40(TM) GPU @ 1.30GHz",
    "Navi 32 [Radeon RX 7700 XT / 7800 XT]",
    "K100_AI_2",
    "Radeon™ RX — 7600 é",
    "百度 昆仑",
    "A" * 200,
    "..--..",
    "",
    None,
)


ODD = tuple(machine(f"odd-{n}", cores=8, cards=[card(name, memory_mib=16384)] * 2) for n, name in enumerate(ODD_NAMES))
NAMELESS = 3
"""Of these names, those in which no letter of the key alphabet is left: they share the key `unknown`."""


@scenario(NODE_A10G, *ODD)
async def test_odd_product_names(chain: RunningChain) -> None:
    await chain.settle()
    pools = [pool for pool in chain.types() if pool not in (A10G_POOL, CPU_POOL)]
    rows = sorted(chain.row(pool)[1:] for pool in pools)
    alone = ("2/2 2/20 100/200 0/0", "0/0", "Active")
    assert [row for row in rows if row == alone] == [alone] * (len(ODD_NAMES) - 1 - NAMELESS), rows
    assert sum(chain.flavor_capacity(name) for name in chain.flavors() if name.endswith("d")) == 1 + 2 * len(ODD_NAMES)
    for kind in (NODE, NODE_FEATURE, DEVICES, RESOURCE_FLAVOR, CLUSTER_QUEUE, INSTANCE_TYPE):
        for obj in chain.objects(kind):
            assert is_object_name(obj["metadata"]["name"])
            for key, value in {**labels_of(obj), **(at(obj, "spec", "labels") or {})}.items():
                assert is_qualified_name(key), key
                assert is_label_value(value), (key, value)
                assert len(key.partition("/")[2]) <= 63
    assert chain.row(A10G_POOL) == A10G_IDLE


@scenario(NODE_A10G, machine("lost", cores=8, cards=[a10g()]))
async def test_a_node_without_os_and_arch(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.row(A10G_POOL)[1] == "1/2 1/20 100/200 0/0"
    await chain.label("lost", **{ARCH: None})
    await chain.settle()
    assert chain.said("object=lost", f"label {ARCH} is missing")
    assert chain.quotas(A10G_POOL) == {"gpustack-nvidia-a10g-linux-amd64-1d": "1600k"}
    assert chain.row(CPU_POOL)[2:] == ("4/4", "Active")
    await chain.label("lost", **{ARCH: "amd64"})
    await chain.settle()
    assert chain.quotas(A10G_POOL) == {"gpustack-nvidia-a10g-linux-amd64-1d": "3200k"}


@scenario(NODE_A10G)
async def test_b001_labels_in_the_old_spelling(chain: RunningChain) -> None:
    key = PREFIX + "hygon-k100_ai"
    said = {PREFIX + "hygon": "true", key: "true", key + ".count": "8", key + ".memory": "64Gi"}
    await chain.join(labelled(**said))
    await chain.settle()
    assert chain.quotas("gpustack-hygon-k100-ai-linux-amd64") == {"gpustack-hygon-k100-ai-linux-amd64-8d": "12800k"}
    assert json.dumps(labels_of(chain.object(NODE, "odd"))).count(MANAGED) == 1
