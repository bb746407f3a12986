"""Generates the messages' Python modules and their types from the `.proto` files.

For: `gpustack_operator.generate`, and the test that compares the committed files.
In: nothing. Out: path below the repository's root -> text. Needs `grpcio-tools`, which only developers install.
Promises: the same `.proto` text gives the same bytes; file names inside the descriptors are full paths, so that no
other package's `api.proto` in the process can collide with them.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

FOLDER = "devicemanager/proto"
NAMES = ("deviceplugin", "podresources")


@functools.cache
def rendered() -> dict[str, str]:
    """Return every generated module's text."""
    from grpc_tools import protoc  # a tool of developers, absent where the agent runs

    root = Path(__file__).resolve().parents[2]
    sources = [f"{FOLDER}/{name}.proto" for name in NAMES]
    with tempfile.TemporaryDirectory() as out:
        code = protoc.main(["protoc", f"-I{root}", f"--python_out={out}", f"--pyi_out={out}", *sources])
        if code:
            raise RuntimeError(f"protoc ended with {code} for {', '.join(sources)}; its own words are above")
        return {
            str(path.relative_to(out)): path.read_text(encoding="utf-8")
            for path in sorted(Path(out).rglob("*_pb2.py*"))
        }
