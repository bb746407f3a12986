"""`python -m tests.bench.as_in_a_pod FOLDER WORDS...`: run a command with a Pod's credentials from a folder.

For: `process`. In: a folder with `token` and `ca.crt`, the command's words. Out: the command's exit code.
A Pod's image holds neither tools nor a kubeconfig; reading one would load a whole client library.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gpustack_operator.cli import main
from kube import credentials

if __name__ == "__main__":
    folder = Path(sys.argv.pop(1))
    credentials.in_cluster.__kwdefaults__ = {**(credentials.in_cluster.__kwdefaults__ or {}), "folder": folder}
    # Brought by development tools alone, and loaded by whoever finds it.
    sys.modules["rich"] = None  # type: ignore[assignment]  # None is how Python marks what must not be found
    sys.exit(main())
