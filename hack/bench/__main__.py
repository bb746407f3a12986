"""`python -m hack.bench chain [--engine devcluster|real] [--sizes N ...]`, `python -m hack.bench api [--small]`,
`python -m hack.bench admission [--small]`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from hack.bench import admission_webhooks
from hack.bench.admission_webhooks import bench_webhooks
from hack.bench.api import SMALL, Sizes, bench_api
from hack.bench.chain import DevclusterBench
from hack.bench.chain_cluster import terms
from hack.bench.chain_real import RealBench
from hack.bench.figures import as_table, say
from hack.bench.fleet import MACHINES
from hack.bench.processes import ProcessDied
from hack.controlplane.errors import ControlPlaneError

ENGINES: Mapping[str, type[DevclusterBench | RealBench]] = {"devcluster": DevclusterBench, "real": RealBench}
SIZES = (100, 1000, 5000)


def main() -> int:
    """Read the command line and measure; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.bench", description=__doc__)
    benches = parser.add_subparsers(dest="bench", required=True)
    chain = benches.add_parser("chain", help="the scheduling chain at growing fleets")
    chain.add_argument("--engine", choices=ENGINES, default="devcluster", help="what serves the API")
    chain.add_argument("--sizes", type=_size, nargs="+", default=list(SIZES), help="fleet sizes")
    api = benches.add_parser("api", help="the aggregated API against the custom resource asked directly")
    api.add_argument("--small", action="store_true", help="a smoke test")
    for entry in fields(Sizes):
        name = entry.name.replace("_", "-")
        api.add_argument(f"--{name}", type=type(entry.default), help=f"by default {entry.default}")
    admission = benches.add_parser("admission", help="the webhooks at 200 questions a second")
    admission.add_argument("--small", action="store_true", help="a smoke test")
    options = parser.parse_args()
    try:
        if options.bench == "api":
            given = {entry.name: getattr(options, entry.name) for entry in fields(Sizes)}
            chosen = {name: value for name, value in given.items() if value is not None}
            bench_api(replace(SMALL if options.small else Sizes(), **chosen))
        elif options.bench == "admission":
            bench_webhooks(admission_webhooks.SMALL if options.small else admission_webhooks.Sizes())
        else:
            bench_chain(options.engine, options.sizes)
    except (ControlPlaneError, ProcessDied, TimeoutError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, ControlPlaneError) else 1
    return 0


def _size(text: str) -> int:
    if not text.isdecimal() or int(text) < len(MACHINES):
        raise argparse.ArgumentTypeError(f"{text!r} is no fleet: {len(MACHINES)} nodes at least, one of each machine")
    return int(text)


def bench_chain(engine: str, sizes: Sequence[int]) -> None:
    """Measure every size on an empty store of its own, and print what is known after each."""
    cores, (load, _, _) = os.cpu_count(), os.getloadavg()
    say(f"engine {engine}, {cores} cores, load average {load:.1f}" + (f"; {terms()}" if engine == "real" else ""))
    results = []
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="gpustack-bench-") as name:
            results.append(ENGINES[engine](size, Path(name)).run())
        print(as_table(results), flush=True)


if __name__ == "__main__":
    sys.exit(main())
