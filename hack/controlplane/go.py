"""Which Go builds the tools, with which variables, and where what it makes is kept.

For: `tools`. In: the environment of whoever builds. Out: a Go that is new enough, and what it runs with.
Promises: a person's Go settings (GOFLAGS, GOROOT, GOOS, workspaces) do not change what is built, save those that say
where modules come from; where there is no home, or none that can be written to, folders of the checkout serve; without
a Go that is new enough one line says what is missing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from hack.controlplane.errors import BuildError, MissingError

_CHECKOUT = Path(__file__).parents[2]
_GO = (1, 26)
_INSTALL = "install Go 1.26 or newer and put `go` on PATH, then build again"
_LAST_LINES = 15
_FIXED = {"CGO_ENABLED": "0", "GOWORK": "off", "GO111MODULE": "on", "GOFLAGS": "-mod=readonly"}
_LEFT_OUT = frozenset({"GOOS", "GOARCH", "GOEXPERIMENT", "GOROOT", "GOTOOLDIR"})


def default_cache(
    environment: Mapping[str, str], *, home: Callable[[], Path] = Path.home, checkout: Path = _CHECKOUT
) -> Path:
    """Return where built tools are kept: outside the checkout, so that one build serves every clone on the machine."""
    if named := environment.get("CONTROLPLANE_CACHE_DIR"):
        return Path(named).absolute()
    base = environment.get("XDG_CACHE_HOME") or _under_home(home)
    folder = Path(base, "gpustack-operator", "controlplane").absolute() if base else None
    if folder is None or not (folder.is_dir() or can_hold(folder)):
        return checkout / ".state" / "tools"
    return folder


def _under_home(home: Callable[[], Path]) -> Path | None:
    try:
        return home() / ".cache"
    except RuntimeError:  # neither HOME nor an entry for this user
        return None


def can_hold(folder: Path) -> bool:
    """Say whether a folder can be made, or written to where it is there."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def find_go(environment: Mapping[str, str]) -> str:
    """Return the path of a Go that can build the tools; MissingError says in one line what is missing."""
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        raise MissingError(f"Go is missing: {_INSTALL}")
    version = _asked(go, "GOVERSION", environment)
    found = re.match(r"go(\d+)\.(\d+)(?!rc|beta|\d)", version)  # go.mod asks for a release
    if found is None or tuple(map(int, found.groups())) < _GO:
        raise MissingError(f"{go}: {version or 'of unknown version'} is too old: {_INSTALL}")
    return go


def go_environment(go: str, environment: Mapping[str, str], *, spare: Path) -> dict[str, str]:
    """Return what Go builds with; caches of its own go under `spare` where it has no place for them."""
    env = {key: value for key, value in environment.items() if key not in _LEFT_OUT} | _FIXED
    for variable in ("GOCACHE", "GOMODCACHE"):
        folder = Path(_asked(go, variable, environment))
        if not (folder.is_absolute() and can_hold(folder)):
            env[variable] = str(spare / variable.lower())
            env["GOFLAGS"] = "-mod=readonly -modcacherw"  # a folder of ours must be removable
    return env


def _asked(go: str, variable: str, environment: Mapping[str, str]) -> str:
    """Return a setting of Go's, outside of any module; the empty string when it has none."""
    asked = subprocess.run([go, "env", variable], cwd="/", env=environment, capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def run_go(command: list[str], *, cwd: Path, env: Mapping[str, str]) -> str:
    """Run Go and return its output; BuildError ends with its last lines."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = "\n".join(done.stderr.strip().splitlines()[-_LAST_LINES:])
        raise BuildError(f"{' '.join(command[:2])} in {cwd} ended with {done.returncode}:\n{lines}")
    return done.stdout
