"""The helper process: loads one manufacturer's library and answers questions on its standard input.

For: `helper.HelperProbes`, which starts `python -m devicemanager.detectors.probe <manufacturer>`.
In: one line a question, `detect` or `measure`. Out: one JSON line an answer; nothing else ever reaches standard output.
Promises: libraries are imported here and nowhere else; whatever a library raises becomes a Failed answer; the process
ends with its parent and at the end of its input.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import TextIO, TypeVar

from devicemanager.answers import Answer, Failed
from devicemanager.detectors import nvml, usage, vendor_runtime
from devicemanager.detectors.wire import dump_answer
from devicemanager.usage import Measured, dump_usage

_PR_SET_PDEATHSIG = 1
MEASURE = "measure"
T = TypeVar("T")


def main(arguments: list[str]) -> int:
    """Serve one manufacturer until the input ends."""
    manufacturer = arguments[0]
    die_with_parent()
    with os.fdopen(os.dup(1), "w", encoding="ascii") as out:
        os.dup2(2, 1)  # libraries print where they like; the answers' stream must stay clean
        serve(lambda: detect(manufacturer), sys.stdin, out, measure=lambda: usage.measure(manufacturer))
    return 0


def serve(
    ask: Callable[[], Answer],
    questions: TextIO,
    answers: TextIO,
    *,
    measure: Callable[[], Measured | Failed] = lambda: Failed("nothing to measure with"),
) -> None:
    """Answer every line of `questions`."""
    for line in questions:
        if line.strip() == MEASURE:
            answers.write(dump_usage(_caught(measure)) + "\n")
        else:
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


def _caught(ask: Callable[[], T]) -> T | Failed:
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - whatever a vendor's binding raises is this pass's failure
        return Failed(f"{type(error).__name__}: {error}"[:512])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
