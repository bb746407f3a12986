"""The recorded data centre of 100 machines: everybody in the right pool, the odd ones named.

The oracle counts from the recordings alone. Which pool a product belongs to is written down here by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from hack.fleet import Machines, load_fleet
from nodefeature.fields import as_maps
from nodefeature.kinds import NODE
from nodefeature.quantity import quantity_or_zero
from tests.builders.running_chain import RunningChain, scenario

COPIES = Machines()
FLEET: tuple[dict[str, Any], ...] = tuple(
    {**COPIES.of(node), "name": node.name, "labels": node.labels} for node in load_fleet()
)

POOL_OF = {
    "NVIDIA GB200": "nvidia-gb200",
    "NVIDIA H100 80GB HBM3": "nvidia-h100-80gb-hbm3",
    "NVIDIA H200": "nvidia-h200",
    "NVIDIA B200": "nvidia-b200",
    "A100-SXM4-40GB": "nvidia-a100-sxm4-40gb",
    "NVIDIA A100-SXM4-80GB": "nvidia-a100-sxm4-80gb",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "nvidia-rtx-pro-6000-blackwell-server-edition",
    "NVIDIA GeForce RTX 4090": "nvidia-geforce-rtx-4090",
    "Tesla V100-PCIE-16GB": "nvidia-tesla-v100-pcie-16gb",
    "NVIDIA GeForce RTX 5090": "nvidia-geforce-rtx-5090",
    "NVIDIA GeForce RTX 3090 Ti": "nvidia-geforce-rtx-3090-ti",
    "NVIDIA GeForce RTX 4070 Laptop GPU": "nvidia-geforce-rtx-4070-laptop-gpu",
    "NVIDIA GB10": "nvidia-gb10",
    "Tesla T4": "nvidia-tesla-t4",
    "NVIDIA GeForce RTX 4080 SUPER": "nvidia-geforce-rtx-4080-super",
    "AMD Instinct MI308X OAM": "amd-instinct-mi308x-oam",
    "Iluvatar MR-V100 DUO": "iluvatar-mr-v100-duo",
    "BW101": "hygon-bw101",
    "Mars X201": "metax-mars-x201",
    "910B4-1": "ascend-910b4-1",
    "Ascend910": "ascend-910",
    "310P3": "ascend-310p3",
    "MLU590-M9": "cambricon-mlu590-m9",
    "K100_AI": "hygon-k100-ai",
    "BW100": "hygon-bw100",
    "Iluvatar BI-V150": "iluvatar-bi-v150",
    "MXC550": "metax-mxc550",
    "MTT S5000": "mthreads-mtt-s5000",
    "PPU-ZW810E": "thead-ppu-zw810e",
}
ODD = {
    "halo-01": "0x0000000000000000",
    "halo-02": "0x0000000000000000",
    "mint-01": "GPU-XX",
    "mint-02": "GPU-XX",
    "mixed-01": "0x747e",
    "rtx4090-dead-001": "lost",
    "npu-duo-001": "make one group",
    "npu-duo-002": "make one group",
}
NO_IDENTITY = ("0x0000000000000000", "GPU-XX", "0x747e")


def usable_cards(machine: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the cards that can be told apart and answer."""
    cards = as_maps(machine["accelerators"])
    return [card for card in cards if card["uuid"] and card["uuid"] not in NO_IDENTITY]


def cards_by_pool() -> tuple[Counter[str], Counter[str]]:
    """Return how many cards each flavor counts, and how many healthy whole ones each type can give."""
    flavors: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for machine in FLEET:
        arch = machine["node"]["arch"]
        models = Counter(POOL_OF[card["product"]] for card in usable_cards(machine))
        for model, count in models.items():
            flavors[f"gpustack-{model}-linux-{arch}-{count}d"] += count
        for card in usable_cards(machine):
            healthy = card["health"]["state"] == "healthy"
            whole = (card.get("mig") or {}).get("mode") != "enabled"
            free[f"gpustack-{POOL_OF[card['product']]}-linux-{arch}"] += healthy and whole
    return flavors, free


@pytest.mark.timeout(180)  # seven seconds of one idle core
@scenario(*FLEET, detect_mutations=False, agent_period_s=60.0)
async def test_every_machine_is_in_the_right_pool_and_the_odd_ones_are_named(chain: RunningChain) -> None:
    assert await chain.settle() < 60
    counted, free = cards_by_pool()
    device_flavors = {name: chain.flavor_capacity(name) for name in chain.flavors() if name.endswith("d")}
    assert device_flavors == dict(counted)
    for name, count in counted.items():
        pool = name.rpartition("-")[0]
        assert quantity_or_zero(chain.quotas(pool)[name]).floor() == count * 1_600_000
    remaining = {pool: int(chain.row(pool)[1].partition(" ")[0].partition("/")[2]) for pool in chain.types()}
    cpu_pools = {"gpustack-generic-linux-amd64": 0, "gpustack-generic-linux-arm64": 0}
    assert remaining == {**dict(free), **cpu_pools}
    for arch in ("amd64", "arm64"):
        cores = [cores_of(chain, machine["name"]) for machine in FLEET if machine["node"]["arch"] == arch]
        pool = f"gpustack-generic-linux-{arch}"
        assert sum(int(quota) for quota in chain.quotas(pool).values()) == sum(cores)
        assert chain.row(pool)[2] == f"{max(cores)}/{sum(cores)}"
    assert {chain.row(pool)[3] for pool in chain.types()} == {"Active"}
    named = {node: chain.said("card left out or repaired", f"node={node} ", word) for node, word in ODD.items()}
    assert all(named.values()), named
    assert len(chain.said("card left out or repaired")) == len(ODD), "nobody else is odd"
    for node in ("rtx4090-dead-001", "halo-01", "npu-duo-001"):
        assert chain.detected(node)["reason"] == "Incomplete"

    version = chain.store.version
    await chain.run(600)
    assert chain.store.version == version, chain.last_changes()
    await chain.restart_controllers()
    await chain.run(300)
    assert chain.store.version == version, chain.last_changes()


def cores_of(chain: RunningChain, node: str) -> int:
    return int(chain.object(NODE, node)["status"]["capacity"]["cpu"])
