"""Command line: `python -m hack.controlplane build|up|down|status|go`.

For: `make controlplane`, `make controlplane-down`, `make e2e`. Out: on `up` one line for the shell that sets
KUBECONFIG; everything else goes to standard error. Exit codes: 0 done, 1 failed, 2 something is missing here.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from hack.controlplane.control_plane import CHAIN, DEFAULT_STATE, ENGINES, ControlPlane
from hack.controlplane.errors import ControlPlaneError, ProcessDiedError
from hack.controlplane.go import find_go
from hack.controlplane.tools import DEFAULT_CACHE, Toolbox, build
from hack.controlplane.tools import ENGINES as ENGINE_TOOLS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    # Who ends a command half-way must leave neither its processes, which have sessions of their own, nor half a build.
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        return _COMMANDS[options.command](options)
    except ControlPlaneError as error:
        _say(f"controlplane: {error}")
        return error.exit_code
    finally:
        signal.signal(signal.SIGTERM, before)


def _build(options: argparse.Namespace) -> int:
    build(options.cache_dir, say=_say, jobs=options.jobs, environment=os.environ)
    return 0


def _go(_options: argparse.Namespace) -> int:
    print(find_go(os.environ))
    return 0


def _up(options: argparse.Namespace) -> int:
    if Toolbox(options.cache_dir).missing(ENGINE_TOOLS):
        _build(options)
    control_plane = ControlPlane(options.state_dir, cache=options.cache_dir)
    control_plane.claim()
    try:
        _start_or_find(control_plane)
    finally:
        control_plane.release()
    print(f"export KUBECONFIG={shlex.quote(str(control_plane.kubeconfig))}")
    return 0


def _start_or_find(control_plane: ControlPlane) -> None:
    # After a restart of the machine all are gone: that is an earlier run's folder, not a control plane that broke.
    lives = any(process.is_alive() for process in control_plane.running.values())
    whole = control_plane.running.keys() >= {*ENGINES, *CHAIN}
    if lives and not whole:
        _say(f"an earlier start in {control_plane.layout.root} was broken off; starting anew")
    if lives and whole:
        try:
            control_plane.wait_ready()
        except ProcessDiedError as error:
            stop = f"python -m hack.controlplane down --state-dir {shlex.quote(str(control_plane.layout.root))}"
            raise ProcessDiedError(f"{error}\nstop the others with `{stop}`, then start anew") from error
        _say(f"already runs in {control_plane.layout.root}")
    else:
        try:
            control_plane.start()
        except BaseException:
            control_plane.stop()
            raise
        _say(f"ready in {control_plane.ready_in_s:.1f} s; logs in {control_plane.layout.logs}")


def _down(options: argparse.Namespace) -> int:
    control_plane = ControlPlane(options.state_dir, cache=options.cache_dir)
    names = list(control_plane.running)
    control_plane.stop()
    _say(f"stopped {', '.join(names)}" if names else f"nothing runs in {options.state_dir}")
    return 0


def _status(options: argparse.Namespace) -> int:
    tools = Toolbox(options.cache_dir)
    absent = [f"{tool.name} {tool.version}" for tool in tools.missing()]
    _say(f"not built: {', '.join(absent)}" if absent else f"all tools are in {options.cache_dir}")
    control_plane = ControlPlane(options.state_dir, cache=options.cache_dir)
    for name, running in control_plane.running.items():
        print(f"{name:<24} {running.pid:>8} {'runs' if running.is_alive() else 'died'}")
    control_plane.check()
    return 0


_COMMANDS = {"build": _build, "up": _up, "down": _down, "status": _status, "go": _go}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.controlplane", description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("--state-dir", type=Path, default=DEFAULT_STATE, help="everything of one control plane")
    parser.add_argument("--cache-dir", type=Path, default=DEFAULT_CACHE, help="built tools, shared by all")
    parser.add_argument("--jobs", type=_jobs, default=0, help="parallel compilations of a build; 0 leaves it to Go")
    return parser


def _jobs(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of compilations; 0 leaves it to Go")
    return int(text)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
