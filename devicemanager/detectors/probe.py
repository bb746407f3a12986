"""The helper process: loads one manufacturer's library and answers questions on its standard input.

For: `helper.HelperProbes`, which starts `python -m devicemanager.detectors.probe <manufacturer>`.
In: one line a question. Out: one JSON line an answer; nothing else ever reaches standard output.
Promises: libraries are imported here and nowhere else; whatever a library raises becomes a Failed answer; the process
ends with its parent and at the end of its input.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import TextIO

from devicemanager.answers import Answer, Failed
from devicemanager.detectors import nvml, vendor_runtime
from devicemanager.detectors.wire import dump_answer

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Serve one manufacturer until the input ends."""
    manufacturer = arguments[0]
    die_with_parent()
    with os.fdopen(os.dup(1), "w", encoding="ascii") as out:
        os.dup2(2, 1)  # libraries print where they like; the answers' stream must stay clean
        serve(lambda: detect(manufacturer), sys.stdin, out)
    return 0


def serve(ask: Callable[[], Answer], questions: TextIO, answers: TextIO) -> None:
    """Answer every line of `questions`."""
    for _line in questions:
        answers.write(dump_answer(_caught(ask)) + "\n")
        answers.flush()


def detect(manufacturer: str) -> Answer:
    """Ask the library of a manufacturer: NVML for NVIDIA, gpustack-runtime for the others."""
    return nvml.detect() if manufacturer == "nvidia" else vendor_runtime.detect(manufacturer)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies; where it cannot, the end of the input does it."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return


def _caught(ask: Callable[[], Answer]) -> Answer:
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - whatever a vendor's binding raises is this pass's failure
        return Failed(f"{type(error).__name__}: {error}"[:512])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
