"""`bench-api`: the aggregated API against the same custom resource asked directly, in one run.

For: `make bench-api`. In: sizes. Out: one table of direct, floor, ours and goal (issue 5); nothing is judged.
The way measured is the one people take: kube-apiserver's aggregator, a Service, two replicas under their own account.
Reads and watches go to one replica alone, so that its memory, CPU and loop are those of the whole load, and straight to
it: the program that plays kube-proxy, which works in the kernel, is no part of what they cost.
The floor is what any server behind the aggregator costs here: `api_floor`.
"""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.bench.api_floor import Floor
from hack.bench.api_load import Load, Result
from hack.bench.api_replica import Replica
from hack.bench.figures import say
from hack.controlplane.control_plane import REPOSITORY, ControlPlane
from hack.controlplane.manifests import namespace_manifest
from hack.controlplane.pki import Pki
from hack.controlplane.replicas import REPLICAS, Replicas

NAMESPACE = "bench"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
FORMS = {
    "LIST": ("", "application/json"),
    "LIST, resourceVersion 0": ("?resourceVersion=0", "application/json"),
    "LIST as Table": ("", TABLE),
    "LIST, metadata only": ("", METADATA),
}
OBJECT_BYTES = 1300
KILL_EVERY_S = 30.0
TIMES = ("--shutdown-delay-duration", "5s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything."""

    objects: int = 10_000
    lists: int = 10
    gets: int = 2_000
    watchers: int = 300
    watch_s: float = 15.0
    rate: float = 500.0
    write_s: float = 30.0
    churn_s: float = 600.0


SMALL = Sizes(objects=300, lists=2, gets=100, watchers=20, watch_s=3, rate=50, write_s=4, churn_s=0)
"""A smoke test."""


@dataclass(slots=True)
class Row:
    """One line of the table."""

    case: str
    direct: float
    ours: float
    unit: str
    goal: str
    floor: float = 0

    def cells(self) -> list[str]:
        """Return the line."""
        shown = [f"{value:,.2f} {self.unit}" if value else "-" for value in (self.direct, self.floor)]
        ratios = [f"{value / self.direct:.2f}" if self.direct and value else "-" for value in (self.floor, self.ours)]
        return [self.case, *shown, f"{self.ours:,.2f} {self.unit}", *ratios, self.goal]


class ApiBench:
    """All measurements beside one control plane."""

    def __init__(self, control_plane: ControlPlane, replicas: Replicas, sizes: Sizes, folder: Path) -> None:
        self.control_plane = control_plane
        self.replicas = replicas
        self.sizes = sizes
        self.folder = folder
        self.rows: list[Row] = []
        self._seen: list[Replica] = []
        self._floor: Floor | None = None
        self.load = Load(control_plane.tools.binary("load"), control_plane.kubeconfig, folder / "load.log")
        self.ways = {
            version: f"/apis/worker.gpustack.ai/{version}/namespaces/{NAMESPACE}/instances"
            for version in ("v1alpha1", "v1")
        }
        self.templates = {version: self._template(version) for version in self.ways}

    def run(self) -> list[Row]:
        """Take all measurements."""
        try:
            self._measure()
        finally:
            for replica in self._seen:
                replica.close()
            if self._floor is not None:
                self._floor.close()
        return self.rows

    def _measure(self) -> None:
        self._start()
        replica, self._floor = self.replica("a"), Floor(self.control_plane, self.folder, namespace=NAMESPACE)
        self.ways["floor"] = f"{self._floor.path}/namespaces/{NAMESPACE}/instances"
        self._fill()
        for form, (query, accept) in FORMS.items():
            self._list(replica, form, query, accept)
        self._get(replica, self._floor)
        self._watch(replica)
        self.replicas.stop("a")
        self.replicas.start("a", *TIMES)
        self.replicas.start("b", *TIMES)
        self.replicas.until(self.replica("a").is_ready, "the first replica is back")
        self.replicas.until(self.replica("b").is_ready, "the second replica is ready")
        self._write()
        if self.sizes.churn_s:
            self._churn()

    def replica(self, name: str) -> Replica:
        """Return one replica as it runs now."""
        admin = Pki(self.control_plane.layout.pki).pair("admin")
        found = Replica(self.replicas.pid(name), self.replicas.address(name), admin)
        self._seen.append(found)
        return found

    def _template(self, version: str) -> Path:
        """Write an Instance that takes `OBJECT_BYTES` as it is stored."""
        path = self.folder / f"{version}.json"
        path.write_text(json.dumps(instance(version)))
        return path

    def _start(self) -> None:
        say("start")
        for what in ("first start to Ready", "start to Ready"):
            started = time.monotonic()
            self.replicas.start("a", *TIMES, alone=True)
            self.replicas.until(self.replica("a").is_ready, "ready")
            self.rows.append(Row(what, 0, time.monotonic() - started, "s", "3 s"))
            self.replicas.until_available()
            self.replicas.until(lambda: self.replicas.is_ready("a"), "behind the Service, where webhooks are asked")
            if what.startswith("first"):
                self.replicas.stop("a", kill=True)
        self.control_plane.admin.apply(namespace_manifest(NAMESPACE))

    def _fill(self) -> None:
        say(f"{self.sizes.objects} Instances")
        direct, template = self.ways["v1alpha1"], self.templates["v1alpha1"]
        self.load.run("fill", direct, template=template, clients=16, objects=self.sizes.objects)

    def _each(self, load: str, flags: Mapping[str, Any], *, query: str = "") -> list[Result]:
        """Run a load directly, over the floor and over ours."""
        return [self.load.run(load, self.ways[way] + query, **flags) for way in ("v1alpha1", "floor", "v1")]

    def _list(self, replica: Replica, form: str, query: str, accept: str) -> None:
        say(form)
        self.load.run("list", self.ways["v1"] + query, accept=accept, n=1)
        before = replica.memory_mib()
        replica.forget_peak()
        replica.longest_hold_ms()
        direct, floor, ours = self._each("list", {"accept": accept, "n": self.sizes.lists}, query=query)
        held, grown = replica.longest_hold_ms(), replica.peak_mib() - before
        self.rows += [
            Row(form, direct["best"], ours["best"], "ms", "1.10 times", floor["best"]),
            Row(f"{form}: memory above rest", ours["bytes"] / 2**20, grown, "MiB", "flat (direct: the answer's size)"),
            Row(f"{form}: loop held at most", 0, held, "ms", "20 ms"),
        ]

    def _get(self, replica: Replica, floor: Floor) -> None:
        for case, objects in (("GET one", 1), ("GET any, an access review each", self.sizes.objects)):
            say(case)
            flags: dict[str, Any] = {"n": self.sizes.gets, "objects": objects}
            self.load.run("get", self.ways["v1"], n=50, objects=objects)
            used = (floor.cpu_s(), replica.cpu_s())
            direct, least, ours = self._each("get", flags)
            floor_ms, cpu_ms = (
                (now - before) * 1000 / self.sizes.gets
                for now, before in zip((floor.cpu_s(), replica.cpu_s()), used, strict=True)
            )
            goals = ("2.5 times", "3 times", "0.7 ms") if objects == 1 else ("-", "-", "-")
            self.rows += [
                Row(f"{case}: p50", direct["p50"], ours["p50"], "ms", goals[0], least["p50"]),
                Row(f"{case}: p99", direct["p99"], ours["p99"], "ms", goals[1], least["p99"]),
                Row(f"{case}: CPU of the server", 0, cpu_ms, "ms", goals[2], floor_ms),
            ]

    def _watch(self, replica: Replica) -> None:
        say(f"{self.sizes.watchers} watches")
        held: list[float] = []
        before = replica.memory_mib()
        flags: dict[str, Any] = {
            "direct": self.ways["v1alpha1"],
            "clients": self.sizes.watchers,
            "seconds": self.sizes.watch_s,
        }
        direct, floor = (
            self.load.run("watch", self.ways[way], while_open=lambda: None, **flags) for way in ("v1alpha1", "floor")
        )
        ours = self.load.run(
            "watch", self.ways["v1"], while_open=lambda: held.append(replica.memory_mib() - before), **flags
        )
        goal = "none missed, in order"
        self.rows += [
            Row("watch: changes missed or out of order", 0, faults(ours), "", f"{goal} (direct: {faults(direct):.0f})"),
            Row("watch: delay, p50", direct["p50"], ours["p50"], "ms", "-", floor["p50"]),
            Row("watch: delay, p99", direct["p99"], ours["p99"], "ms", "1.5 times", floor["p99"]),
            Row("watch: memory each", 0, held[0] * 1024 / self.sizes.watchers, "KiB", "100 KiB"),
        ]

    def _write(self) -> None:
        say(f"{self.sizes.rate:.0f} writes a second")
        flags: dict[str, Any] = {"rate": self.sizes.rate, "seconds": self.sizes.write_s, "clients": 64}
        direct, floor, ours = (
            self.load.run("write", self.ways[way], template=self.templates[version], **flags)
            for way, version in (("v1alpha1", "v1alpha1"), ("floor", "v1alpha1"), ("v1", "v1"))
        )
        self.rows += [
            Row("writes done", direct["rate"], ours["rate"], "/s", f"{self.sizes.rate:.0f}/s", floor["rate"]),
            Row("writes failed", direct["failed"], ours["failed"], "", "none", floor["failed"]),
            Row("writes, p50", direct["p50"], ours["p50"], "ms", "-", floor["p50"]),
            Row("writes, p99", direct["p99"], ours["p99"], "ms", "2.5 times", floor["p99"]),
        ]

    def _churn(self) -> None:
        for how in ("SIGTERM", "SIGKILL"):
            say(f"{self.sizes.churn_s / 2:.0f} s of load, {how} to one of two replicas every {KILL_EVERY_S:.0f} s")
            result = churn(
                self.load,
                self.replicas,
                self.ways,
                self.templates["v1"],
                seconds=self.sizes.churn_s / 2,
                kill=how == "SIGKILL",
            )
            self.rows += [
                Row(f"{how}: requests", 0, result["requests"], "", "-"),
                Row(f"{how}: repeated once", 0, result["retried"], "", "none with SIGTERM"),
                Row(f"{how}: failed", 0, result["failed"], "", "none"),
                Row(f"{how}: writes lost", 0, result["lost"], "", "none"),
                Row(f"{how}: watch changes missed", 0, result["missed"] + result["behind"], "", "none"),
            ]


def churn(
    load: Load,
    replicas: Replicas,
    ways: Mapping[str, str],
    template: Path,
    *,
    seconds: float,
    kill: bool,
    every_s: float = KILL_EVERY_S,
    rate: float = 40.0,
) -> Result:
    """Load two running replicas while one of them, in turn, ends and starts again."""
    over = threading.Event()

    def disturb() -> None:
        for turn in itertools.count():
            if over.wait(every_s):
                return
            # As in a rolling update: the next one ends only when this one is back.
            replicas.restart(REPLICAS[turn % 2], *TIMES, kill=kill)

    disturber = threading.Thread(target=disturb, name="disturb")
    disturber.start()
    try:
        flags: dict[str, Any] = {"direct": ways["v1alpha1"], "template": template, "clients": 10, "watchers": 10}
        return load.run("churn", ways["v1"], rate=rate, seconds=seconds, **flags)
    finally:
        over.set()
        disturber.join()


def faults(watched: Result) -> float:
    """Return how many changes watches did not tell, or told out of order."""
    return float(watched["faults"] + watched["wanted"] - watched["events"])


def instance(version: str) -> dict[str, Any]:
    """Return an Instance named NAME that is stored in about `OBJECT_BYTES`; a stopped one needs no type."""
    return {
        "apiVersion": f"worker.gpustack.ai/{version}",
        "kind": "Instance",
        "metadata": {"name": "NAME", "annotations": {"bench/filling": "x" * (OBJECT_BYTES - 800)}},
        "spec": {"type": "bench", "stop": True, "image": "bench", "volume": {"ephemeral": {"capacity": "1Gi"}}},
    }


def as_table(rows: list[Row]) -> str:
    """Return the rows under a header."""
    lines = [["", "direct", "floor", "ours", "floor's ratio", "ratio", "goal"], *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def bench_api(sizes: Sizes) -> None:
    """Measure and print the table; logs stay in `.state/bench-api` until the next run."""
    folder = REPOSITORY / ".state" / "bench-api"
    engines = ("etcd", "kube-apiserver", "kube-controller-manager")
    control_plane = ControlPlane(folder / "controlplane", engines=engines, chain=())
    control_plane.stop()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with control_plane:
        replicas = Replicas(control_plane, folder)
        bench = ApiBench(control_plane, replicas, sizes, folder)
        try:
            bench.run()
        finally:
            print(as_table(bench.rows), flush=True)
            replicas.clear()
