"""`gpustack-operator controllers`: the reconcilers, behind one Lease (design §4).

Start-up: what can be checked without a cluster is checked first; then the health listener, the Lease, caches and
reconcilers. NodeFeatureRule and AdmissionCheck are installed once their kinds are served; nothing waits for them.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import uuid
from collections.abc import Callable, Mapping

import uvloop
from prometheus_client import CollectorRegistry

from api.settings import seeds_of
from controllers import build_reconcilers, selections
from controllers.node_feature_rule import install_all
from gpustack_operator.config import ElectionOptions, HealthOptions, KubeOptions, LogOptions, ManufacturerOptions
from gpustack_operator.packaged import unit_resource_presets
from gpustack_operator.processes import check_credentials, connect, environment_of, start_logging
from kube.client import Client
from kube.clock import SystemClock
from kube.errors import OperatorError
from kube.leader import LeaderElection, LeaderThread, LeaseTerms
from kube.runtime import Manager, freeze_caches
from kube.serving import HealthServer
from kube.tasks import guard
from nodefeature.manufacturers import Manufacturers
from nodefeature.presets import Presets


def run(
    kube: KubeOptions,
    election: ElectionOptions,
    manufacturers: ManufacturerOptions,
    health: HealthOptions,
    logs: LogOptions,
    *,
    environ: Mapping[str, str],
) -> None:
    """Reconcile until SIGTERM."""
    start_logging(logs)
    check_credentials(kube, environ)
    registry = environment_of(environ)
    presets = unit_resource_presets()
    seeds, problems = seeds_of(environ)
    if problems:
        raise OperatorError("\n".join(str(problem) for problem in problems))
    work = serve(
        kube,
        election,
        health,
        environ=environ,
        registry=registry,
        names=manufacturers.manufacturer,
        presets=presets,
        seeds=seeds,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


async def serve(
    kube: KubeOptions,
    election: ElectionOptions,
    health: HealthOptions,
    *,
    environ: Mapping[str, str],
    registry: Manufacturers,
    names: tuple[str, ...],
    presets: Presets,
    seeds: Mapping[str, str],
    stopped_by: Callable[[Manager], None] = Manager.stop_on_signals,
) -> None:
    """Reconcile until the manager is stopped; `stopped_by` arranges that."""
    clock = SystemClock()
    client = connect(kube, environ)
    leader = _leader(kube, election, environ) if election.leader_elect else None
    led = client.fenced(leader.fence) if leader else client
    metrics = CollectorRegistry()
    manager = Manager(led, selections=selections(kube.namespace), clock=clock, freeze=freeze_caches, registry=metrics)
    reconcilers = build_reconcilers(
        led, manager.caches, clock=clock, manufacturers=registry, presets=presets, namespace=kube.namespace, seeds=seeds
    )
    for reconciler in reconcilers:
        manager.add(reconciler)
    stopped_by(manager)
    try:
        async with HealthServer(manager.health, metrics, host=health.health_address, port=health.health_port):
            if leader and not await _acquired(leader, manager):
                return
            install = install_all(led, clock, manufacturers=registry, names=names)
            installing = asyncio.create_task(
                guard("installer", install, manager.health, may_end=lambda: True), name="installer"
            )
            try:
                await manager.run()
            finally:
                installing.cancel()
    finally:
        if leader:
            await leader.release()
        await client.connection.close()


def _leader(kube: KubeOptions, election: ElectionOptions, environ: Mapping[str, str]) -> LeaderThread:
    terms = LeaseTerms(
        name=election.leader_election_id,
        namespace=kube.namespace,
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        lease_s=election.leader_election_lease,
        renew_s=election.leader_election_renew,
    )
    rng = random.Random(os.urandom(8))  # noqa: S311 - spreads retries; no secret depends on it

    def open_election() -> LeaderElection:
        # A connection of its own: renewals live on another event loop and must not queue behind calls.
        client: Client = connect(kube, environ).as_manager("gpustack-leader")
        return LeaderElection(client, terms, clock=SystemClock(), rng=rng)

    return LeaderThread(open_election)


async def _acquired(leader: LeaderThread, manager: Manager) -> bool:
    """Wait for the Lease; False when the process is told to stop first."""
    stopped = asyncio.create_task(manager.stopped(), name="stop")
    leading = asyncio.create_task(leader.acquire(), name="lease")
    await asyncio.wait((stopped, leading), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if leading.done():
        leading.result()
        return True
    leading.cancel()
    return False
