"""Processes that die, stop, or come too late: the chain ends where an undisturbed one does."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hack.controlplane import audit
from hack.controlplane.control_plane import ControlPlane
from hack.controlplane.errors import NotReadyError
from hack.controlplane.manifests import SYSTEM_NAMESPACE
from hack.controlplane.product import OPERATOR
from hack.fleet import FleetNode
from nodefeature.fields import as_str, at
from nodefeature.kinds import CLUSTER_QUEUE, INSTANCE_TYPE, LEASE, NODE, RESOURCE_FLAVOR
from tests.builders.machines import machine, t4
from tests.e2e.chain.cluster import LONG_QUIET_S, Cluster, quotas_of
from tests.e2e.chain.fleet import H100, MI308X, RISCV
from tests.e2e.chain.product import Product
from tests.e2e.chain.writes import ELECTED, of_successors, renewals, without_lease
from tests.e2e.scenarios import FIGURE

pytestmark = pytest.mark.timeout(600)

KILLS = 20
STARTED = '"controller started"'
TAKEOVER_S = 20.0


@pytest.mark.timeout(900)
def test_sigkill_at_random_moments_changes_nothing(restored: Cluster) -> None:
    """The fleet changes and comes back while the controllers are killed twenty times.

    One replica without election: each starts to work at once, so that kills hit work, not the wait for a Lease. Every
    other one is killed after it has begun to work, however slow the machine is.
    """
    product = restored.product
    product.stop("controllers")
    # Chance is seeded for the moments only; what a moment meets differs from run to run.
    rng = random.Random(20)
    enough = threading.Event()
    changing = threading.Thread(target=_change_fleet, args=(restored, enough), name="changes")
    changing.start()
    try:
        for number in range(KILLS):
            begun = product.count("controllers", STARTED)
            product.start_controllers("controllers", "--leader-elect=false")
            if number % 2:
                product.wait_count("controllers", STARTED, begun + 1, timeout_s=60)
            enough.wait(rng.uniform(0.5, 4.0))  # a moment, not a wait for anything
            product.stop("controllers", signal.SIGKILL)
    finally:
        enough.set()  # whatever failed here, the changes come to their end
    begun = product.count("controllers", STARTED)
    product.start_controllers()
    changing.join(240)
    assert not changing.is_alive()
    # What the last one left may look right, and lies still until this one is at work.
    product.wait_count("controllers", STARTED, begun + 1, timeout_s=60)
    restored.wait_type(MI308X, accelerator="8/16 8/160 100/1600 0/0")
    restored.wait_type(H100, accelerator="8/24 8/240 100/2400 0/0")
    for name in restored.names(RESOURCE_FLAVOR):
        if "riscv64" in name:
            restored.wait_gone(RESOURCE_FLAVOR, name)
    restored.settle(quiet_s=LONG_QUIET_S)
    assert not [name for name in restored.names(RESOURCE_FLAVOR) if "riscv64" in name]
    restored.admin.delete(INSTANCE_TYPE, RISCV)  # a derived type outlives its nodes
    restored.wait_gone(INSTANCE_TYPE, RISCV)


def _change_fleet(cluster: Cluster, enough: threading.Event) -> None:
    """Let machines go, come back and lose their place in turn, and leave all as it was."""
    passing = ("kill-1", "kill-2", "kill-3")
    while not enough.is_set():
        node, _machine = cluster.machines["mi308x-02"]
        cluster.leave("mi308x-02")
        cluster.admin.patch(NODE, "h100-02", {"spec": {"unschedulable": True}})
        for cores, name in enumerate(passing, 1):
            own = machine(name, cores=cores, arch="riscv64", vendor="")
            cluster.machines[name] = (FleetNode(name, "", {}), own)
            cluster.register(name)
        enough.wait(6)  # the fleet stands still for a moment
        cluster.join(node)
        cluster.admin.patch(NODE, "h100-02", {"spec": {"unschedulable": None}})
        cluster.leave(*passing)
        enough.wait(3)


@pytest.fixture
def two(restored: Cluster) -> Iterator[Cluster]:
    """Return the fleet with two replicas, `first` leading, each known by its token."""
    product = restored.product
    before = holder(restored)
    product.stop("controllers")
    product.start_controllers("first", kubeconfig=product.another_token("first"))
    assert holder(restored, other_than=before)
    product.start_controllers("second", kubeconfig=product.another_token("second"))
    yield restored
    for name in ("first", "second"):
        if product.is_running(name):
            product.stop(name)
    product.start_controllers()


def holder(cluster: Cluster, other_than: str = "") -> str:
    """Wait until somebody leads; return who."""
    lease = cluster.wait(
        LEASE,
        ELECTED,
        SYSTEM_NAMESPACE,
        until=lambda obj: at(obj, "spec", "holderIdentity") not in {None, "", other_than},
        what="held",
        timeout_s=TAKEOVER_S + 10,
    )
    return as_str(at(lease, "spec", "holderIdentity"))


def test_b049_a_killed_leader_is_replaced(two: Cluster, record_property: Callable[[str, object], None]) -> None:
    since = two.position()
    wait_renewed(two)  # its token stands in the log
    killed = datetime.now(UTC)
    two.product.stop("first", signal.SIGKILL)
    two.admin.patch(NODE, "h100-03", {"spec": {"unschedulable": True}})
    two.wait_type(H100, accelerator="8/16 8/160 100/1600 0/0", timeout_s=TAKEOVER_S + 10)
    took = (datetime.fromisoformat(next(of_successors(writes(two, since))).time) - killed).total_seconds()
    record_property(FIGURE, f"election: {took:.1f} s after a leader was killed the other wrote for the first time")
    assert took < TAKEOVER_S
    two.admin.patch(NODE, "h100-03", {"spec": {"unschedulable": None}})
    two.wait_type(H100, accelerator="8/24 8/240 100/2400 0/0")
    assert_writes_under_lease(two, since)


def test_b049_a_leader_that_slept_writes_nothing_more(two: Cluster) -> None:
    since = two.position()
    wait_renewed(two)  # its token stands in the log
    first = holder(two)
    two.product.signal("first", signal.SIGSTOP)
    two.admin.patch(NODE, "h100-03", {"spec": {"unschedulable": True}})
    holder(two, other_than=first)
    two.wait_type(H100, accelerator="8/16 8/160 100/1600 0/0", timeout_s=TAKEOVER_S)
    two.product.signal("first", signal.SIGCONT)
    two.admin.patch(NODE, "h100-03", {"spec": {"unschedulable": None}})
    assert two.product.ended("first", timeout_s=TAKEOVER_S) != 0
    two.wait_type(H100, accelerator="8/24 8/240 100/2400 0/0")
    assert_writes_under_lease(two, since)


def test_b049_a_leaver_hands_over_at_once(two: Cluster) -> None:
    first = holder(two)
    two.product.stop("first")
    left = time.monotonic()
    assert holder(two, other_than=first)
    assert time.monotonic() - left < 5


def writes(cluster: Cluster, since: int) -> Iterator[audit.Request]:
    """Yield the requests of the controllers' account, in the audit log's order."""
    return audit.read(cluster.control_plane.audit_log, user=OPERATOR.user, since=since)


def assert_writes_under_lease(cluster: Cluster, since: int) -> None:
    """Every write came with the token that had written the Lease last; two had."""
    assert [str(request) for request in without_lease(writes(cluster, since))] == []
    leaders = {request.credential for request in renewals(writes(cluster, since))}
    assert len(leaders - {""}) == 2, f"tokens that wrote the Lease: {leaders}"


def wait_renewed(cluster: Cluster, timeout_s: float = 15.0) -> None:
    """Wait until the Lease is written once more; NotReadyError when nobody does."""
    last = at(cluster.get(LEASE, ELECTED, SYSTEM_NAMESPACE), "spec", "renewTime")
    cluster.admin.wait(
        LEASE,
        ELECTED,
        SYSTEM_NAMESPACE,
        until=lambda obj: at(obj, "spec", "renewTime") != last,
        timeout_s=timeout_s,
        what="renewed",
    )


def goes_on_leading(cluster: Cluster) -> bool:
    """Say whether the Lease is renewed; if not, hold the leader to its rule: it ends after ten seconds without.

    How long an engine is away is the machine's affair, and on a slow one it is more than that.
    """
    try:
        wait_renewed(cluster)
    except NotReadyError:
        assert cluster.product.ended("controllers", timeout_s=5.0) == 1
        assert "not renewed within 10 s" in cluster.product.lines_about(ELECTED)
        return False
    return True


@pytest.mark.parametrize("name", ["kube-apiserver", "etcd", "kueue"])
def test_a_restart_of_an_engine_is_outlived(
    restored: Cluster, name: str, record_property: Callable[[str, object], None]
) -> None:
    holder(restored)  # whoever a scenario before this one started is at work
    pid = restored.product.pid("controllers")
    restored.restart(name)
    if not goes_on_leading(restored):
        assert name != "kueue", "the Lease does not need Kueue"
        record_property(FIGURE, f"election: {name} was away for so long that the leader ended and was started again")
        restored.product.start_controllers()  # as the kubelet does
        pid = restored.product.pid("controllers")
    node, _machine = restored.machines["mi308x-02"]
    restored.leave("mi308x-02")
    restored.wait_type(MI308X, accelerator="8/8 8/80 100/800 0/0")
    restored.join(node)
    restored.wait_type(MI308X, accelerator="8/16 8/160 100/1600 0/0")
    restored.product.check()
    assert restored.product.pid("controllers") == pid


def test_b057_the_operator_waits_for_kueue_and_nfd(tmp_path: Path) -> None:
    pool = "gpustack-nvidia-tesla-t4-linux-amd64"
    engines = ("etcd", "kube-apiserver", "kube-controller-manager", "kwok", "kubelet")
    with ControlPlane(tmp_path / "late", engines=engines, chain=()) as late:
        product = Product(late, tmp_path / "product")
        cluster = Cluster(late, product)
        product.install()
        product.start_controllers()
        try:
            for kind in ("NodeFeatureRule", "AdmissionCheck"):
                product.wait_count("controllers", f'"kind":"{kind}"', 1, timeout_s=60)
            for name in ("nfd-master", "kueue"):
                late.install(name)
                late.start_process(name)
            cluster.join(FleetNode("late-t4", "", {}), machines={"late-t4": machine("late-t4", cards=[t4()])})
            cluster.wait_type(pool, accelerator="1/1 1/10 100/100 0/0")
            assert quotas_of(cluster.get(CLUSTER_QUEUE, pool)) == {f"{pool}-1d": "1600k"}
            product.check()
        finally:
            product.stop_all()
