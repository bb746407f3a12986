"""What the demo prints when all is settled: the pools, what stands behind them, and how to look further.

For: `run.py`. In: a world. Out: text.
"""

from __future__ import annotations

from pathlib import Path

from gpustack_operator.demo.world import SERVED_TYPE, World
from gpustack_operator.tables import table
from nodefeature.fields import as_str, at, labels_of, name_of
from nodefeature.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR

BANNER = """\
gpustack-operator demo: from hardware to pools, without a cluster.
  real      the aggregated API of our kinds, controllers, node agents (this machine's hardware, and a dozen
            machines recorded from real ones)
  stands in kube-apiserver and store (devcluster), NFD master and workers, Kueue, scheduler, kubelets; they say
            in their modules under hack/devcluster/ what they leave out. Nothing leaves this machine.
"""


def pools(world: World) -> str:
    """Return the InstanceTypes as `kubectl get instancetypes` prints them."""
    header = ("NAME", "ENTRANCE", "UNIT(CPU/RAM)/STORAGE", "ACCELERATOR(EX/SH/SL/PT)", "CPU", "PHASE")
    rows = [
        (
            name_of(obj),
            as_str(at(obj, "status", "entrance")),
            as_str(at(obj, "status", "summary", "unit")),
            as_str(at(obj, "status", "summary", "accelerator")),
            as_str(at(obj, "status", "summary", "cpu")),
            as_str(at(obj, "status", "phase")),
        )
        for obj in sorted(world[SERVED_TYPE], key=name_of)
    ]
    return table(header, rows)


def flavors(world: World) -> str:
    """Return the ResourceFlavors with what their nodes add up to."""
    rows = []
    for obj in sorted(world[RESOURCE_FLAVOR], key=name_of):
        figures = {
            key.rpartition(".")[2]: value
            for key, value in labels_of(obj).items()
            if key.endswith((".count", ".capacity"))
        }
        rows.append((name_of(obj), figures.get("count", ""), figures.get("capacity", "")))
    return table(("RESOURCEFLAVOR", "PER NODE", "IN ALL"), rows)


def queues(world: World) -> str:
    """Return the ClusterQueues with quota, and how many namespaces lead to each."""
    rows = []
    for obj in sorted(world[CLUSTER_QUEUE], key=name_of):
        entrances = sum(1 for local in world[LOCAL_QUEUE] if at(local, "spec", "clusterQueue") == name_of(obj))
        rows.append((name_of(obj), world.quota(name_of(obj)), as_str(at(obj, "spec", "stopPolicy")), str(entrances)))
    return table(("CLUSTERQUEUE", "QUOTA (CREDITS OR CORES)", "STOP POLICY", "LOCALQUEUES"), rows)


def further(kubeconfig: Path, logs: Path) -> str:
    """Return the lines to look further with."""
    lines = (
        f"export KUBECONFIG={kubeconfig}",
        "kubectl get instancetypes -o wide                # through the aggregated API, worker.gpustack.ai/v1",
        "kubectl get instances -A; kubectl get settings -n gpustack-system",
        "kubectl proxy                                    # then http://127.0.0.1:8001/apis/worker.gpustack.ai/v1/docs",
        "kubectl get devices -o yaml h100-01              # inventory and ledger of one node",
        "kubectl get resourceflavors,clusterqueues        # what stands behind the pools",
        "kubectl get localqueues -n default --show-labels",
        "kubectl label node rtx4090-01 gpustack.ai/managed=false --overwrite   # watch its pool empty",
        "kubectl get instancetypes -w",
        f"tail -f {logs}/controllers.log {logs}/apiserver.log",
    )
    return "Look further:\n" + "\n".join(f"  {line}" for line in lines)
