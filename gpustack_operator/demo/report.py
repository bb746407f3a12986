"""What the demo prints when all is settled: the pools, what stands behind them, and how to look further.

For: `run.py`. In: a world, or where one run keeps what. Out: text.
"""

from __future__ import annotations

from pathlib import Path

from gpustack_operator.demo.world import SERVED_TYPE, World
from gpustack_operator.tables import table
from nodefeature.fields import as_str, at, labels_of, name_of
from nodefeature.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR

BANNER = """\
gpustack-operator demo: from hardware to pools, and from a request to a card, without a cluster.
  real      the aggregated API of our kinds with its webhooks, controllers, node agents with their device
            plugins (this machine's hardware, and thirteen nodes recorded from twelve real machines)
  stands in kube-apiserver and store (devcluster), NFD master and workers, Kueue, scheduler, kubelets; they say
            in their modules under hack/devcluster/ what they leave out. Nothing leaves this machine.
"""

LEGEND = """\
  EX whole cards, SH shares of cards, SL slices in percent of a card, PT hardware partitions.
  Each pair is largest single request / remaining in the pool; CPU likewise, in cores.
  Quota below is in credits (1,600,000 is one card, so 12800k is 8 cards), or in cores where a pool has no cards.
"""
"""How to read the tables; stands under the pools."""


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


def verdict(world: World) -> str:
    """Return what a check that found nothing wrong has checked."""
    nodes, pooled = len(world.managed_nodes()), len(world[SERVED_TYPE])
    return (
        f"checked: {nodes} nodes, {world.cards()} cards, {pooled} pools as recorded; four Instances ready, "
        "the fifth explained, then started in the place of another"
    )


def further(kubeconfig: Path, logs: Path, add_to_path: Path | None = None) -> str:
    """Return the lines to look further with; `add_to_path` is a folder of commands where a shell does not look."""
    lines = (
        *([f'export PATH="$PATH:{add_to_path}"'] if add_to_path else []),
        f"export KUBECONFIG={kubeconfig}",
        "kubectl get instancetypes -o wide                # through the aggregated API, worker.gpustack.ai/v1",
        "kubectl get instances -A; kubectl get settings -n gpustack-system",
        "kubectl describe instance one-too-many           # what it waited for, step by step",
        "gpustack-operator explain default/one-too-many   # the five gates; -o yaml for all figures",
        "kubectl get --raw /apis/worker.gpustack.ai/v1/namespaces/default/instances/sliced/explain",
        "kubectl get devices -o yaml h100-01              # inventory and ledger of one node",
        "kubectl get resourceflavors,clusterqueues        # what stands behind the pools",
        "kubectl get localqueues -n default               # a namespace's entrance to each pool",
        "kubectl create ns team --dry-run=client -o yaml | kubectl create -f -  # creates here are JSON or YAML",
        "kubectl get instancetypes -w                     # in a second shell, while the next two lines run",
        "kubectl label node rtx4090-01 gpustack.ai/managed=false --overwrite  # watch its pool empty",
        "kubectl label node rtx4090-01 gpustack.ai/managed=true --overwrite   # and fill again within a minute",
        f"tail -f {logs}/controllers.log {logs}/apiserver.log",
        "kubectl proxy                                    # then http://127.0.0.1:8001/apis/worker.gpustack.ai/v1/docs",
    )
    return "Look further:\n" + "\n".join(f"  {line}" for line in lines)
