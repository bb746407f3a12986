"""The worked examples of spec 04 §13, out of the running chain."""

from __future__ import annotations

import pytest

from nodefeature.fields import annotations_of, at, labels_of
from nodefeature.kinds import CLUSTER_QUEUE, INSTANCE_TYPE, NODE, NODE_FEATURE, RESOURCE_FLAVOR
from nodefeature.labels import MANAGED, NOTE_PREFIX, SYSTEM_NAMESPACE
from nodefeature.quantity import quantity_or_zero
from tests.builders.machines import card, machine
from tests.builders.running_chain import RunningChain, scenario
from tests.component.walkthrough import CPU_POOL, NOTHING

AWARE = {"instance_type_aware_cpu_manufacturer": "true"}

EPYC = machine("cpu-1", cores=64, vendor="AMD", cpu="AMD EPYC 7571")
XEON = machine("cpu-2", cores=16, cpu="Intel Xeon 8358")
A100 = card(
    "NVIDIA A100-SXM4-80GB",
    memory_mib=81920,
    cores=6912,
    family="Ampere",
    compute_capability="8.0",
    mig={"mode": "disabled", "pending": "disabled", "table": "a100-80gb", "instances": []},
)
IN_MIG = {**A100, "mig": {**A100["mig"], "mode": "enabled"}}
DGX = machine("gpu-1", cores=128, cpu="Intel Xeon 8358", cards=[*[A100] * 7, IN_MIG])
NPU = {
    "manufacturer": "ascend",
    "product": "910B",
    "soc": "Ascend910B4-1",
    "memory_mib": 65536,
    "cores": 20,
    "health": {"state": "healthy", "ecc_uncorrected": 0, "ecc_corrected": 0, "xid": []},
    "ecc_enabled": True,
}
ASCEND = machine("npu-1", cores=192, vendor="", cpu=None, arch="arm64", cards=[NPU] * 8)

A100_POOL = "gpustack-nvidia-a100-sxm4-80gb-linux-amd64"
ASCEND_POOL = "gpustack-ascend-910b-linux-arm64"
PROFILES = {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}


@scenario(EPYC)
async def test_13_1_flavor_and_pool(chain: RunningChain) -> None:
    await chain.settle()
    own = "general.feature.gpustack.ai/amd-epyc-7571"
    said = chain.object(NODE_FEATURE, "cpu-1-gpustack-worker", SYSTEM_NAMESPACE)["spec"]["labels"]
    assert {MANAGED: "true", own: "true", own + ".count": "64"}.items() <= said.items()
    name = "gpustack-amd-epyc-7571-linux-amd64-64c"
    assert chain.flavors() == [name]
    flavor = chain.object(RESOURCE_FLAVOR, name)
    labels, notes = labels_of(flavor), annotations_of(flavor)
    assert [labels[own + part] for part in ("", ".count", ".capacity")] == ["true", "64", "64"]
    assert labels["feature.gpustack.ai/acceleratable"] == "false"
    assert notes[NOTE_PREFIX + "product"] == "AMD EPYC 7571"
    assert notes[NOTE_PREFIX + "generalGroup"] == "amd-epyc-7571"
    assert chain.types() == chain.names(CLUSTER_QUEUE) == [CPU_POOL]
    assert chain.quotas(CPU_POOL) == {name: "64"}
    assert chain.entrances() == ["gpustack-fnv64-7aa0010633cb3725"]
    assert chain.type(CPU_POOL)["spec"]["displayName"] == "CPU-only"
    assert chain.row(CPU_POOL) == ("1/2Gi/100Gi", NOTHING, "64/64", "Active")
    capacity = chain.object(NODE, "cpu-1")["status"]["capacity"]
    assert not [key for key in capacity if ".sliced" in key or ".partitioned" in key], "NodeCapacity: nothing"


@scenario(EPYC, settings=AWARE)
async def test_13_1_aware(chain: RunningChain) -> None:
    await chain.settle()
    pool = "gpustack-amd-epyc-7571-linux-amd64"
    assert chain.types() == [pool]
    assert chain.entrances() == ["gpustack-fnv64-8cb298e5026f5b9f"]
    assert chain.type(pool)["spec"]["displayName"] == "AMD EPYC 7571"
    assert labels_of(chain.queue(pool))["general.feature.gpustack.ai/amd-epyc-7571"] == "true"
    assert chain.type(pool)["status"]["detail"]["product"] == "AMD EPYC 7571"
    assert chain.row(pool)[2:] == ("64/64", "Active")


@scenario(EPYC)
async def test_13_1_more_nodes(chain: RunningChain) -> None:
    await chain.settle()
    await chain.join(XEON)
    await chain.settle()
    assert list(chain.quotas(CPU_POOL).items()) == [
        ("gpustack-intel-xeon-8358-linux-amd64-16c", "16"),
        ("gpustack-amd-epyc-7571-linux-amd64-64c", "64"),
    ]
    assert chain.row(CPU_POOL)[2] == "64/80"
    await chain.join(*(machine(f"cpu-{n}", cores=64, vendor="AMD", cpu="AMD EPYC 7571") for n in (3, 4)))
    await chain.settle()
    assert chain.quotas(CPU_POOL)["gpustack-amd-epyc-7571-linux-amd64-64c"] == "192"
    assert chain.row(CPU_POOL)[2] == "64/208"


@scenario(DGX)
async def test_13_2_idle_and_in_use(chain: RunningChain) -> None:
    await chain.settle()
    flavor = "gpustack-nvidia-a100-sxm4-80gb-linux-amd64-8d"
    assert chain.flavors() == ["gpustack-intel-xeon-8358-linux-amd64-128c", flavor]
    assert chain.quotas(A100_POOL) == {flavor: "12800k"}
    assert chain.entrances() == sorted(["gpustack-fnv64-7593aa9990f92889", "gpustack-fnv64-7aa0010633cb3725"])
    assert chain.row(A100_POOL) == ("12/128Gi/100Gi", "7/7 7/70 100/700 1/7", "0/0", "Active")
    assert capacity(chain, "gpu-1") == {
        "sliced.units": 11_200_000,
        "sliced.cores-percentage": 89_600,
        "sliced.memory-percentage": 700,
        "sliced.memory-mib": 573_440,
        "partitioned.units": 1_600_000,
        **{f"partitioned.mig-{name}": count for name, count in PROFILES.items()},
    }
    assert profiles(chain, "remainingProfiles") == PROFILES
    assert profiles(chain, "allocatedProfiles") == {}
    carved = {
        "index": 7,
        "mode": 4,
        "remaining": 1_600_000,
        "allocatedProfiles": [{"name": "3g.40gb", "count": 1}],
        "remainingProfiles": [{"name": "1g.10gb", "count": 4}, {"name": "3g.40gb", "count": 1}],
    }
    await chain.charge("gpu-1", {"index": 0, "mode": 3, "remaining": 1_120_000}, carved)
    await chain.settle()
    assert chain.row(A100_POOL)[1] == "6/6 6/60 100/670 1/4"
    assert profiles(chain, "remainingProfiles") == {**dict.fromkeys(PROFILES, 0), "1g.10gb": 4, "3g.40gb": 1}
    assert profiles(chain, "allocatedProfiles") == {"3g.40gb": 1}
    units = capacity(chain, "gpu-1")
    assert {name: units[f"partitioned.mig-{name}"] for name in PROFILES} == {
        "1g.10gb": 4,
        "1g.20gb": 0,
        "2g.20gb": 0,
        "3g.40gb": 2,
        "4g.40gb": 0,
        "7g.80gb": 0,
    }
    assert (units["sliced.units"], units["partitioned.units"]) == (11_200_000, 1_600_000)


@scenario(DGX, settings=AWARE)
async def test_13_2_aware(chain: RunningChain) -> None:
    await chain.settle()
    pool = "gpustack-intel-xeon-8358--nvidia-a100-sxm4-80gb-linux-amd64"
    assert chain.types() == [pool, "gpustack-intel-xeon-8358-linux-amd64"]
    assert chain.quotas(pool) == {pool + "-8d": "12800k"}
    assert chain.entrances() == sorted(["gpustack-fnv64-ee942a16363c877b", "gpustack-fnv64-0e210a507b548290"])
    assert chain.type(pool)["spec"]["displayName"] == "NVIDIA-A100-SXM4-80GB"
    assert chain.row(pool)[1] == "7/7 7/70 100/700 1/7"


@scenario(DGX, settings={"instance_type_derived_from_node": "false"})
async def test_13_2_nothing_derived(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.types() == []
    assert len(chain.flavors()) == 2
    spec = {"acceleratable": True, "generalGroup": "generic", "acceleratorGroup": "nvidia-a100-sxm4-80gb"}
    spec |= {"os": "linux", "arch": "amd64", "localStorage": "100Gi"}
    unit = {"cpu": "12", "ram": "128Gi"}
    await chain.create(INSTANCE_TYPE, {"metadata": {"name": "mine"}, "spec": {**spec, "unitResources": unit}})
    await chain.settle()
    assert chain.quotas("mine") == {"gpustack-nvidia-a100-sxm4-80gb-linux-amd64-8d": "12800k"}
    assert at(chain.queue("mine"), "spec", "admissionChecksStrategy") is None
    assert chain.row("mine")[1] == "7/7 7/70 100/700 1/7"


@scenario(ASCEND)
async def test_13_3_idle(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.flavors() == ["gpustack-ascend-910b-linux-arm64-8d", "gpustack-generic-linux-arm64-192c"]
    assert chain.quotas(ASCEND_POOL) == {"gpustack-ascend-910b-linux-arm64-8d": "12800k"}
    groups = chain.queue(ASCEND_POOL)["spec"]["resourceGroups"]
    assert [group["coveredResources"] for group in groups] == [["credits.gpustack.ai/ascend"]]
    assert chain.entrances() == sorted(["gpustack-fnv64-6f6c3bb35df85e85", "gpustack-fnv64-fa718fcaa467d489"])
    assert chain.row(ASCEND_POOL) == ("8/64Gi/100Gi", "8/8 8/80 100/800 0/0", "0/0", "Active")
    assert capacity(chain, "npu-1") == {
        "sliced.units": 12_800_000,
        "sliced.cores-percentage": 50_400,
        "sliced.memory-percentage": 800,
        "sliced.memory-mib": 524_288,
    }


@scenario(ASCEND, settings=AWARE)
async def test_13_3_aware(chain: RunningChain) -> None:
    await chain.settle()
    pool = "gpustack-generic--ascend-910b-linux-arm64"
    assert chain.types() == [pool, "gpustack-generic-linux-arm64"]
    assert chain.entrances() == sorted(["gpustack-fnv64-4d8b846004208114", "gpustack-fnv64-fa718fcaa467d489"])
    assert chain.quotas(pool) == {pool + "-8d": "12800k"}


@scenario(ASCEND, machine("npu-2", cores=192, vendor="", cpu=None, cards=[NPU] * 8))
async def test_13_3_another_arch_never_joins(chain: RunningChain) -> None:
    await chain.settle()
    assert chain.row(ASCEND_POOL)[1] == "8/8 8/80 100/800 0/0"
    assert chain.quotas("gpustack-ascend-910b-linux-amd64") == {"gpustack-ascend-910b-linux-amd64-8d": "12800k"}


@scenario(EPYC, DGX, seeds={"node-management-manual": "true"})
async def test_13_4_manual(chain: RunningChain) -> None:
    await chain.settle()
    assert (chain.flavors(), chain.types()) == ([], [])
    assert MANAGED not in labels_of(chain.object(NODE, "cpu-1"))
    assert capacity(chain, "gpu-1") == {}
    await chain.label("cpu-1", **{MANAGED: "true"})
    await chain.settle()
    assert chain.types() == [CPU_POOL]
    assert chain.row(CPU_POOL)[2:] == ("64/64", "Active")
    await chain.label("cpu-1", **{MANAGED: "false"})
    await chain.settle()
    assert chain.flavors() == []


@scenario(EPYC)
async def test_13_4_false_in_automatic_mode_is_mirrored(chain: RunningChain) -> None:
    await chain.settle()
    await chain.label("cpu-1", **{MANAGED: "false"})
    await chain.settle()
    said = chain.object(NODE_FEATURE, "cpu-1-gpustack-worker", SYSTEM_NAMESPACE)["spec"]["labels"]
    assert said[MANAGED] == "false"
    assert chain.flavors() == []
    assert chain.row(CPU_POOL)[2:] == ("0/0", "Inactive")


@pytest.mark.parametrize(
    ("cores", "want"), [((8, 4), [("4c", "4"), ("8c", "8")]), ((16, 2, 2), [("2c", "4"), ("16c", "16")])]
)
def test_13_5_order(cores: tuple[int, ...], want: list[tuple[str, str]]) -> None:
    @scenario(*(machine(f"n-{i}", cores=count) for i, count in enumerate(cores)))
    async def story(chain: RunningChain) -> None:
        await chain.settle()
        found = [(name.rpartition("-")[2], quota) for name, quota in chain.quotas(CPU_POOL).items()]
        assert found == want

    story()


def capacity(chain: RunningChain, node: str) -> dict[str, int]:
    """Return the counting keys of a node, without the resource's name."""
    found = {}
    for key, text in chain.object(NODE, node)["status"]["capacity"].items():
        for family in ("sliced.", "partitioned."):
            _, separator, rest = key.partition("." + family)
            if separator:
                found[family + rest] = quantity_or_zero(text).floor()
    return found


def profiles(chain: RunningChain, field: str) -> dict[str, int]:
    """Return one list of profile counts of the A100 pool."""
    view = chain.type(A100_POOL)["status"]["acceleratorPartitioned"]
    return {entry["name"]: entry.get("count", 0) for entry in view.get(field, [])}
