"""Two hundred Pods of all families meet twenty machines at once; some are deleted, the controllers die on the way.

Every change of a Pod or a ledger is judged when it is seen; at the end nobody may wait whom a node has cards for.
Chance is seeded: `RANDOM_RUN_SEED` repeats what is asked and when; what a moment meets still differs from run to run.
`RANDOM_RUN_PODS` makes it smaller.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hack.controlplane.admin import Admin, path_of
from hack.controlplane.control_plane import ControlPlane
from hack.controlplane.errors import RequestError
from hack.controlplane.replicas import Replicas
from hack.fleet import FleetNode
from nodefeature.fields import as_str
from nodefeature.kinds import INSTANCE_TYPE, POD
from tests.e2e.admission.card_books import EXCLUSIVE, PARTITIONED, SHARED, SLICED, Card, CardBooks, Hold, ledger_of
from tests.e2e.admission.card_wants import CARD_UNITS, Pool, Want, draw_wants, pod_of
from tests.e2e.admission.card_watch import CardWatch
from tests.e2e.chain.cluster import Cluster
from tests.e2e.chain.product import Product
from tests.e2e.whole_product import api_server, machines_for

pytestmark = pytest.mark.timeout(900)

SEED = int(os.environ.get("RANDOM_RUN_SEED", "4"))
PODS = int(os.environ.get("RANDOM_RUN_PODS", "200"))
DELETED = PODS // 4
KILLS = max(1, PODS // 25)
RATE = 200.0
DELETED_OVER_S = 40.0
LOAD_S = 8.0 if PODS >= 200 else 2.0
SETTLED_S = 240.0
QUIET_S = 3.0
TEAM = "team-random"
DRY = path_of(POD, namespace=TEAM) + "?dryRun=All"
FLAGS = ("--leader-elect=false",)
"""Of the controllers: who was killed begins again at once."""
STARTED = '"controller started"'
MACHINES = {
    "gpustack-nvidia-h100-80gb-hbm3-linux-amd64": ("nvidia-dgx-h100", 9),
    "gpustack-nvidia-h200-linux-amd64": ("nvidia-hgx-h200-ecc", 3),
    "gpustack-amd-instinct-mi308x-oam-linux-amd64": ("amd-mi308x", 4),
    "gpustack-nvidia-rtx-pro-6000-blackwell-server-edition-linux-amd64": ("nvidia-rtx-pro-6000-mig", 4),
    "gpustack-generic-linux-amd64": ("cpu-intel-8358", 1),
}
CARDS = 160
BASES = {"amd": "amd.com/gpu", "nvidia": "nvidia.com/gpu"}
PROFILES = ("1g.24gb", "2g.48gb", "4g.96gb")


@pytest.fixture(scope="module")
def api(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Return a replica of the API server that serves, its webhooks installed."""
    with api_server(control_plane, tmp_path_factory.mktemp("api")) as made:
        yield made


@pytest.fixture(scope="module")
def fleet(control_plane: ControlPlane, api: Replicas) -> Iterator[Cluster]:
    """Return twenty machines with eight cards and one without, allocations recorded by the agents' stand-in."""
    nodes = [
        FleetNode(f"{machine}-{number + 1:02d}", machine, {}, clear_faults=True)
        for machine, count in MACHINES.values()
        for number in range(count)
    ]
    with machines_for(TEAM, control_plane, nodes=nodes, types=MACHINES, flags=FLAGS) as cluster:
        yield cluster


def _mib(quantity: str) -> int:
    return int(quantity[:-2]) * {"Mi": 1, "Gi": 1024}[quantity[-2:]] if quantity else 0


def _pools(cluster: Cluster) -> list[Pool]:
    found = []
    for name, (machine, count) in MACHINES.items():
        status = cluster.get(INSTANCE_TYPE, name)["status"]
        detail = status.get("detail", {})
        found.append(
            Pool(
                name,
                base=BASES.get(as_str(detail.get("manufacturer")), ""),
                memory_mib=_mib(as_str(detail.get("memory"))),
                entrance=status["entrance"],
                profiles=PROFILES if machine.endswith("-mig") else (),
                nodes=frozenset(f"{machine}-{number + 1:02d}" for number in range(count)),
            )
        )
    return found


class _Deleter:
    """Deletes Pods at random moments, waiting ones and running ones."""

    def __init__(self, admin: Admin, watch: CardWatch, rng: random.Random) -> None:
        self.deleted: list[str] = []
        self._admin = admin
        self._watch = watch
        self._rng = rng

    def run(self, count: int, over_s: float) -> None:
        """Delete so many, spread over a time."""
        for _ in range(count):
            time.sleep(self._rng.uniform(0, 2 * over_s / count))  # a moment, not a wait for anything
            left = sorted(set(self._watch.pods) - set(self.deleted))
            if left:
                name = self._rng.choice(left)
                self._admin.delete(POD, name, TEAM)
                self.deleted.append(name)


class _Load:
    """Asks the webhooks through kube-apiserver by creating Pods dry, at a rate the machine may fall behind of."""

    def __init__(self, admin: Admin, wants: list[Want]) -> None:
        self.took_ms: list[float] = []
        self.failures: list[str] = []
        self._admin = admin
        self._wants = wants

    def run(self) -> None:
        """Ask for a while; a question whose turn is past when the time is over is not asked."""
        began = time.monotonic()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda number: self._ask(number, began), range(int(RATE * LOAD_S))))

    def _ask(self, number: int, began: float) -> None:
        time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        asked = time.monotonic()
        if asked > began + LOAD_S:
            return
        pod = pod_of(self._wants[number % len(self._wants)], TEAM)
        pod["metadata"]["name"] = f"dry-{number}"
        try:
            self._admin.post(DRY, pod)
        except RequestError as error:
            self.failures.append(str(error))
        self.took_ms.append((time.monotonic() - asked) * 1000)

    def __str__(self) -> str:
        took = sorted(self.took_ms) or [0.0]
        return (
            f"webhooks through kube-apiserver: {len(took)} dry creations, {len(took) / LOAD_S:.0f}/s of {RATE:.0f}/s, "
            f"p50 {took[len(took) // 2]:.0f} ms, p99 {took[len(took) * 99 // 100]:.0f} ms, "
            f"{len(self.failures)} failures"
        )


def _kill_controllers(product: Product, rng: random.Random) -> None:
    """Kill them at random moments; every other time only after they began to work."""
    for number in range(KILLS):
        time.sleep(rng.uniform(0.5, 5.0))  # a moment, not a wait for anything
        product.stop("controllers", signal.SIGKILL)
        begun = product.count("controllers", STARTED)
        product.start_controllers("controllers", *FLAGS)
        if number % 2 == 0:
            product.wait_count("controllers", STARTED, begun + 1, timeout_s=60)


def _ledger_differs(watch: CardWatch) -> list[str]:
    """Return the cards whose published ledger is not what Pods hold."""
    published = ledger_of(watch.devices.values())
    found = []
    for card in watch.books.cards:
        holds = watch.books.holds(card)
        said = published.get(card)
        want = (holds[0].mode if holds else 0, CARD_UNITS - sum(hold.units for hold in holds))
        if said != want:
            found.append(f"{'/'.join(card)}: published {said}, held {want}")
    return found


JUDGED = {
    "a whole card twice": ([(EXCLUSIVE, 1_600_000), (EXCLUSIVE, 1_600_000)], "3200000 units"),
    "a share of a whole card": ([(EXCLUSIVE, 1_600_000), (SHARED, 160_000)], "in modes [1, 2]"),
    "slices past the end": ([(SLICED, 960_000), (SLICED, 640_001)], "1600001 units"),
    "slices to the end": ([(SLICED, 960_000), (SLICED, 640_000)], ""),
    "an eleventh share": ([(SHARED, 160_000)] * 11, "11 shares"),
    "ten shares": ([(SHARED, 160_000)] * 10, ""),
    "two alone": ([(EXCLUSIVE, 1)] * 2, "2 hold it alone"),
    "partitions beside each other": ([(PARTITIONED, 400_000, (0, 3)), (PARTITIONED, 400_000, (3, 3))], ""),
    "partitions over each other": ([(PARTITIONED, 400_000, (0, 6)), (PARTITIONED, 400_000, (3, 3))], "overlap"),
}


@pytest.mark.parametrize(("held", "fault"), JUDGED.values(), ids=list(JUDGED))
def test_the_judge_finds(held: list[tuple[Any, ...]], fault: str) -> None:
    books, card = CardBooks(), ("node", "group", "card")
    books.cards[card] = Card(True, 8, {})
    found: list[str] = []
    for number, (mode, units, *runs) in enumerate(held):
        found += books.take_pod(f"pod-{number}", (Hold(card, mode, units, runs=tuple(runs)),))
    assert fault in " ".join(found) if fault else found == []
    for number in range(len(held)):
        books.take_pod(f"pod-{number}", ())
    assert books.faults(card) == []


def test_no_card_is_ever_given_twice_and_all_that_fits_runs(fleet: Cluster) -> None:
    began = time.monotonic()
    wants = draw_wants(random.Random(SEED), _pools(fleet), PODS)
    watch = CardWatch(fleet.admin, TEAM, wants)
    watch.start()
    assert len(watch.books.cards) == CARDS
    print(f"\nseed {SEED}: {PODS} Pods, {dict(Counter(want.family for want in wants))}")
    deleter = _Deleter(fleet.admin, watch, random.Random(SEED + 1))
    load = _Load(fleet.admin, wants)
    try:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda want: fleet.admin.create(pod_of(want, TEAM)), wants))
        created_s = time.monotonic() - began
        with ThreadPoolExecutor(2) as pool:
            disturbing = [pool.submit(load.run), pool.submit(deleter.run, DELETED, DELETED_OVER_S)]
            _kill_controllers(fleet.product, random.Random(SEED + 2))
            for disturbance in disturbing:
                disturbance.result()
        settled_s = watch.until_settled(SETTLED_S, QUIET_S)
        watch.until(lambda: not _ledger_differs(watch), lambda: _ledger_differs(watch)[:10], 20)
    finally:
        watch.end()
        print(f"{len(deleter.deleted)} deleted, {KILLS} kills, {watch}\n{load}")
    print(f"created in {created_s:.1f} s, settled {settled_s:.1f} s after the last disturbance, ", end="")
    print(f"{time.monotonic() - began:.0f} s in all")
    assert watch.faults == []
    assert watch.refused == {}
    assert load.failures == []
    fleet.product.check()
