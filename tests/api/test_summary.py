"""Table cells: spec 02 §4.6, §6.7."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from api.instance_type import phase_of_queue
from api.summary import instance_summary, instance_type_summary, ports

OBJECTS = list(yaml.safe_load_all((Path(__file__).parents[1] / "rows/02-objects.yaml").read_text("utf-8")))
TYPES = [obj for obj in OBJECTS if obj["kind"] == "InstanceType"]


def test_cells_of_the_worked_types() -> None:
    accelerated, generic = (instance_type_summary(obj["spec"], obj["status"]) for obj in TYPES)
    assert accelerated == {
        "unit": "12/192Gi/100Gi",
        "accelerator": "4/4 5/47 100/430 1/3",
        "cpu": "0/0",
        "partitions": "1g.10gb:3,1g.20gb:2,2g.20gb:1,3g.40gb:1,4g.40gb:0,7g.80gb:0",
    }
    assert generic == {"unit": "1/2Gi/100Gi", "accelerator": "0/0 0/0 0/0 0/0", "cpu": "48/72"}


def test_a_type_without_status_reads_zero() -> None:
    assert instance_type_summary({}, {}) == {"unit": "//", "accelerator": "0/0 0/0 0/0 0/0", "cpu": "0/0"}


@pytest.mark.parametrize(
    ("status_ports", "want"),
    [
        (
            [
                {"port": 22, "protocol": "TCP", "nodePort": 30122},
                {"port": 8080, "protocol": "TCP", "name": "http", "nodePort": 31080},
            ],
            "22:30122/TCP,8080:31080/TCP",
        ),
        ([{"port": 53, "protocol": "UDP"}], "53:0/UDP"),
        ([], ""),
        (None, ""),
    ],
)
def test_ports(status_ports: Any, want: str) -> None:
    assert ports(status_ports) == want
    assert instance_summary({"ports": status_ports}) == ({"ports": want} if want else {})


@pytest.mark.parametrize(
    ("policy", "reserving", "active", "phase", "message"),
    [
        ("HoldAndDrain", True, "True", "Draining", "cluster queue is draining admitted workloads"),
        ("HoldAndDrain", False, "True", "Inactive", "cluster queue is held and drained"),
        ("Hold", True, "True", "Inactive", "cluster queue is held"),
        ("None", False, "True", "Active", ""),
        ("", False, "False", "Inactive", "said so"),
        ("", False, "Unknown", "Activating", ""),
        ("", False, "", "Activating", ""),
    ],
)
def test_phases(policy: str, reserving: bool, active: str, phase: str, message: str) -> None:
    got = phase_of_queue(policy, reserving=reserving, active=active, message="said so")
    assert (got.phase, got.message) == (phase, message)
