"""An Instance's status from its Pod: spec 02 §6.5-6.6, spec 05 §10.1, case B044."""

from __future__ import annotations

from typing import Any

import pytest

from api.instance_status import HINT, INIT_HINT, access_addresses, host_ips_of, is_held_by_kueue, pod_phase
from tests.builders.rows import case_json

TRUE = {"PodScheduled": "True", "Initialized": "True", "Ready": "True"}


def pod(reason: str = "", message: str = "", *, containers: Any = None, init: Any = None, **truths: str) -> Any:
    conditions = [
        {"type": kind, "status": truth, "reason": reason, "message": message if truth != "True" else ""}
        for kind, truth in (TRUE | truths).items()
        if truth
    ]
    status = {"conditions": conditions, "containerStatuses": containers, "initContainerStatuses": init}
    return {"status": {"phase": "Running", **status}}


def waiting(reason: str, message: str = "") -> Any:
    return [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]


@pytest.mark.parametrize(
    ("given", "phase", "message"),
    [
        (pod(PodScheduled="Unknown"), "Scheduling", ""),
        (pod("Unschedulable", "0/3 nodes", PodScheduled="False"), "Pending", "0/3 nodes"),
        (pod(Initialized="Unknown"), "Initializing", ""),
        (pod("ContainersNotInitialized", Initialized="False"), "Initializing", INIT_HINT),
        (pod("Other", "broken", Initialized="False"), "InitializeFailed", "broken"),
        (pod(Ready="Unknown"), "Starting", ""),
        (pod("ContainersNotReady", Ready="False"), "Starting", HINT),
        (pod("ReadinessGatesNotReady", "gate", Ready="False"), "NotReady", "gate"),
        (pod(), "Ready", ""),
        ({"status": {}}, "Scheduling", ""),
        ({}, "Scheduling", ""),
        (
            pod("ContainersNotReady", Ready="False", containers=waiting("ImagePullBackOff", "no image")),
            "NotReady",
            "no image",
        ),
        (pod("ContainersNotReady", Ready="False", containers=waiting("InvalidImageName", "bad")), "NotReady", "bad"),
        (
            pod("ContainersNotInitialized", Initialized="False", init=waiting("ErrImagePull", "text")),
            "NotReady",
            "text",
        ),
        (
            pod("ContainersNotReady", Ready="False", containers=waiting("CrashLoopBackOff", "back-off")),
            "Starting",
            "back-off",
        ),
        (pod("ContainersNotReady", Ready="False", containers=waiting("ContainerCreating")), "Starting", HINT),
        (pod("ContainersNotReady", Ready="False", containers=[]), "Starting", HINT),
    ],
    ids=[
        "PodScheduled Unknown",
        "PodScheduled False",
        "Initialized Unknown",
        "Initialized False, not initialized",
        "Initialized False, else",
        "Ready Unknown",
        "Ready False, not ready",
        "Ready False, else",
        "all true",
        "no conditions",
        "no status",
        "main ImagePullBackOff",
        "InvalidImageName",
        "init container ErrImagePull",
        "CrashLoopBackOff",
        "ContainerCreating, no text",
        "waiting none",
    ],
)
def test_pod_phase(given: Any, phase: str, message: str) -> None:
    got = pod_phase(given)
    assert (got.phase, got.message) == (phase, message)


B044 = [row for row in case_json("B044-pod-states")["rows"] if isinstance(row["pod"], dict)]


@pytest.mark.parametrize("row", B044, ids=lambda row: row["expect"])
def test_b044_pod_states(row: Any) -> None:
    phase = pod_phase({"status": row["pod"]})
    assert phase.phase == "NotReady"
    assert phase.message
    if "NodeNotReady" in str(row["pod"]):
        assert phase.message == "NodeNotReady"


@pytest.mark.parametrize(
    ("static", "dns", "host_ips", "want"),
    [
        ("gpu.example.com", "traefik.me", ["10.0.0.5"], ["gpu.example.com"]),
        ("", "", ["10.0.0.5"], ["10.0.0.5"]),
        ("", "traefik.me", ["10.0.0.5", "fd00::5"], ["10-0-0-5.traefik.me"]),
        ("", "traefik.me", ["fd00::5"], ["fd00--5.traefik.me"]),
        ("", "", [], ["stored"]),
    ],
)
def test_access_addresses(static: str, dns: str, host_ips: list[str], want: list[str]) -> None:
    assert access_addresses(static=static, wildcard_dns=dns, host_ips=host_ips, stored=["stored"]) == want


def test_host_ips_external_first_each_once() -> None:
    addresses = [
        {"type": "InternalIP", "address": "10.0.0.5"},
        {"type": "ExternalIP", "address": "1.2.3.4"},
        {"type": "InternalIP", "address": "1.2.3.4"},
        {"type": "Hostname", "address": "n"},
        {"type": "InternalIP", "address": None},
    ]
    assert host_ips_of({"status": {"addresses": addresses}}) == ["1.2.3.4", "10.0.0.5"]
    assert host_ips_of({"status": {"addresses": None}}) == []


@pytest.mark.parametrize("name", [None, 1, ["kueue.x-k8s.io/admission"], {"kueue.x-k8s.io/admission": 1}, "other"])
def test_a_gate_of_any_other_kind_is_not_kueues(name: Any) -> None:
    assert not is_held_by_kueue({"spec": {"schedulingGates": [{"name": name}]}})
    assert is_held_by_kueue({"spec": {"schedulingGates": [{"name": name}, {"name": "kueue.x-k8s.io/admission"}]}})
