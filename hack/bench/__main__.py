"""`python -m hack.bench chain [--sizes N ...]`."""

from __future__ import annotations

import argparse

from hack.bench.chain import bench_chain


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m hack.bench", description=__doc__)
    benches = parser.add_subparsers(dest="bench", required=True)
    chain = benches.add_parser("chain", help="the scheduling chain on the devcluster")
    chain.add_argument("--sizes", type=int, nargs="+", default=[100, 1000, 5000], help="fleet sizes")
    bench_chain(parser.parse_args().sizes)


if __name__ == "__main__":
    main()
