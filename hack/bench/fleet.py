"""The fleets that `bench-chain` grows: machines of eight cards each, the same mix at every size.

For: `hack.bench.chain` and `hack.bench.chain_real`. In: a number of nodes. Out: a fleet file, and its nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hack.fleet import FleetNode, load_fleet

# Eight cards each: five manufacturers, both architectures, one with partitions on some cards.
MACHINES = (
    "nvidia-dgx-h100",
    "nvidia-hgx-h200-ecc",
    "amd-mi308x",
    "ascend-910b4-a2",
    "cambricon-mlu590-m9",
    "metax-c550",
    "nvidia-dgx-a100-40gb",
    "mthreads-s5000",
)


def write_fleet_file(path: Path, nodes: int) -> list[FleetNode]:
    """Write the fleet of `nodes` machines and return its nodes."""
    path.write_text(json.dumps(fleet_file(nodes)))  # JSON is YAML
    return load_fleet(path)


def fleet_file(nodes: int) -> Mapping[str, Any]:
    """Return a fleet of `nodes` machines of eight cards, the kinds in equal shares."""
    shares = [nodes // len(MACHINES) + (n < nodes % len(MACHINES)) for n in range(len(MACHINES))]
    groups = [
        {
            "pattern": f"{machine}-{{n:05d}}",
            "count": count,
            "machine": machine,
            "region": "bench",
            "zone": "bench",
            "racks": [],
            "per_rack": 1,
            "faults": "clear",
        }
        for machine, count in zip(MACHINES, shares, strict=True)
        if count
    ]
    return {
        "name": "bench",
        "nodes": nodes,
        "label_keys": {
            "region": "topology.kubernetes.io/region",
            "zone": "topology.kubernetes.io/zone",
            "rack": "topology.gpustack.ai/rack",
        },
        "groups": groups,
    }
