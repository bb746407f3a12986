"""What an API server's clients notice, measured by the program `load` (hack/controlplane/tools/clients).

For: `hack.bench.api`. In: a kubeconfig, a collection. Out: its figures as decoded JSON.
Promises: a load that fails is named with its last lines.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]
_WITHIN_S = 1200.0


class LoadFailed(RuntimeError):
    """A load ended with an error."""


class Load:
    """Runs one load after the other."""

    def __init__(self, binary: Path, kubeconfig: Path, log: Path) -> None:
        self._binary = binary
        self._kubeconfig = kubeconfig
        self.log = log

    def run(self, load: str, path: str, *, while_open: Callable[[], None] | None = None, **flags: object) -> Result:
        """Run one; `while_open` is called once the watches of `watch` are open."""
        command = [str(self._binary), load, "-kubeconfig", str(self._kubeconfig), "-path", path]
        command += [word for name, value in flags.items() for word in (f"-{name}", str(value))]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            if while_open is not None and process.stdout is not None and process.stdin is not None:
                process.stdout.readline()
                while_open()
                process.stdin.write("\n")
                process.stdin.flush()
            told, _ = process.communicate(timeout=_WITHIN_S)
        finally:
            process.kill()
        if process.returncode:
            lines = "\n".join(self.log.read_text(errors="replace").splitlines()[-10:])
            raise LoadFailed(f"load {load} {path} ended with {process.returncode}:\n{lines}")
        result: Result = json.loads(told)
        return result
