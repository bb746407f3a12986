"""What kubelet and NFD worker say of recorded machines."""

from __future__ import annotations

import pytest

from hack.devcluster.standins.nfd_master import merge
from hack.fleet import Machines, machine_names
from hack.machines import address_of, nfd_feature_of, node_of, online_cpus
from nodefeature.destinations import legal_labels
from nodefeature.keys import general_key
from nodefeature.labels import ARCH, HOSTNAME, NFD_NODE_NAME, OS

MACHINES = Machines()
NAME = "feature.gpustack.ai/cpu-name"
RULE = {
    "spec": {
        "rules": [
            {
                "name": "cpu",
                "matchFeatures": [{"feature": "cpu.model", "matchExpressions": {"vendor_id": {"op": "Exists"}}}],
                "annotations": {NAME: "@cpu.model.name", "feature.gpustack.ai/cpu-boost-freq": "@cpu.model.boost_freq"},
            }
        ]
    }
}


@pytest.mark.parametrize("name", machine_names())
def test_a_node_of_every_machine(name: str) -> None:
    machine = MACHINES.recorded(name)
    node = node_of("n1", machine, {"topology.kubernetes.io/zone": "z"})
    assert node["metadata"]["labels"] == {
        OS: "linux",
        ARCH: machine["node"]["arch"],
        HOSTNAME: "n1",
        "topology.kubernetes.io/zone": "z",
    }
    capacity = node["status"]["capacity"]
    assert int(capacity["cpu"]) == online_cpus(machine["node"]["cpu"])
    assert capacity["memory"] == f"{machine['node']['memory_bytes'] // 1024}Ki"


@pytest.mark.parametrize(
    ("machine", "cpus"),
    [("cpu-amd-7763", 255), ("nvidia-gb10-spark", 20), ("mixed-nvidia-amd-desktop", 20), ("cpu-graviton2", 16)],
)
def test_cpus_that_are_online(machine: str, cpus: int) -> None:
    assert online_cpus(MACHINES.recorded(machine)["node"]["cpu"]) == cpus


def test_capacity_is_what_the_kubelet_of_the_real_machine_said() -> None:
    assert node_of("n", MACHINES.recorded("nvidia-v100-genoa"))["status"]["capacity"]["memory"] == "131563384Ki"


@pytest.mark.parametrize("name", machine_names())
def test_a_node_feature_of_every_machine(name: str) -> None:
    machine = MACHINES.recorded(name)
    feature = nfd_feature_of("n1", machine, "node-feature-discovery")
    assert feature["metadata"]["labels"] == {NFD_NODE_NAME: "n1"}
    assert feature["spec"]["labels"] == machine["nfd_labels"]
    assert not legal_labels(feature["spec"]["labels"], about=name).problems
    classes = [d["attributes"]["class"] for d in feature["spec"]["features"]["instances"]["pci.device"]["elements"]]
    assert all(c[:2] in ("02", "03", "0b", "12") for c in classes)


@pytest.mark.parametrize(
    ("machine", "key"),
    [
        ("cpu-intel-8358", "intel-xeon-platinum-8358"),
        ("cpu-amd-7763", "amd-epyc-7763"),
        ("cpu-hygon-7285", "hygon-c86-7285"),
        ("cpu-ampere-altra", "arm-63-53441"),
        ("cpu-graviton2", "arm-63-53441"),
        ("cpu-kunpeng-920", "generic-31-53264"),
        ("ascend-a3-16", "generic-15-53280"),
        ("nvidia-gb200-nvl72-tray", "arm-15-54512"),
        ("nvidia-rtx4070-wsl2-laptop", "intel-core-i9-13950hx"),
        ("amd-strix-halo", "amd-ryzen-ai-max-pro-395-w-radeon-8060s"),
    ],
)
def test_cpu_keys_behind_the_rule(machine: str, key: str) -> None:
    merged = merge([nfd_feature_of("n1", MACHINES.recorded(machine), "nfd")], [RULE])
    assert general_key(merged.labels, merged.annotations) == key


def test_what_a_cpu_does_not_tell_stays_a_template() -> None:
    merged = merge([nfd_feature_of("n1", MACHINES.recorded("cpu-graviton2"), "nfd")], [RULE])
    assert merged.annotations[NAME] == "@cpu.model.name"


def test_addresses_are_private_and_stable() -> None:
    assert address_of("n1") == address_of("n1") != address_of("n2")
    assert address_of("n1").startswith("10.")
