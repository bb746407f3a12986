"""Helper processes: answers on lines, crashes, hangs, nonsense; and the helper's own loop."""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from devicemanager.answers import Answer, Empty, Failed, Found, RawCard, Roce, Unknown
from devicemanager.detectors.helper import HelperProbes, probe_command
from devicemanager.detectors.probe import serve
from devicemanager.detectors.wire import dump_answer, load_answer
from devicemanager.usage import CardUsage, Measured, load_usage
from kube.clock import SystemClock
from tests.builders.cards import ONE_SLICE, T4

FULL = replace(
    T4,
    physical_indexes=(3, 128),
    profiles=(ONE_SLICE,),
    partition_mode=None,
    roce=Roce("10.0.0.1", "255.0.0.0", "10.0.0.2"),
    ecc_enabled="On-die, EDC",
    product="Tesla\udcff T4",
    virtual=True,
)


@pytest.mark.parametrize("answer", [Found((FULL, T4)), Found(()), Empty("a"), Unknown("b"), Failed("c\udcff\n")])
def test_an_answer_survives_the_wire(answer: Answer) -> None:
    line = dump_answer(answer)
    assert "\n" not in line
    assert line.isascii()
    assert load_answer(line, "nvidia") == answer


@pytest.mark.parametrize("line", ["", "{", "[]", "{}", '{"found": 7}', "null"])
def test_a_line_that_is_no_answer(line: str) -> None:
    answer = load_answer(line, "nvidia")
    assert isinstance(answer, Failed) or answer == Found(())


def test_fields_of_a_wrong_type_are_no_answers() -> None:
    answer = load_answer(
        '{"found": [{"index": "x", "uuid": 7, "memory_mib": "all", "numa": true, "profiles": {}}]}', "amd"
    )
    assert answer == Found((RawCard("amd", 0, partition_mode=None),))


def script(tmp_path: Path, body: str) -> Any:
    path = tmp_path / "helper.py"
    path.write_text("import json, os, sys, time\nfor line in sys.stdin:\n" + body)
    return lambda _maker: (sys.executable, "-I", "-S", str(path))


async def ask(command: Any, times: int = 1, deadline_s: float = 30.0) -> list[Answer]:
    probes = HelperProbes(SystemClock(), deadline_s=deadline_s, command=command)
    try:
        return [await probes.ask("nvidia") for _ in range(times)]
    finally:
        await probes.close()


ANSWERS: list[tuple[str, str, str]] = [
    ("crash", "    os.kill(os.getpid(), 11)\n", "the library's process ended: SIGSEGV"),
    ("exit", "    sys.exit(3)\n", "the library's process ended: exit status 3"),
    ("nonsense", "    print('hello', flush=True)\n", "a line that is no JSON"),
    ("half", "    print('{\"found\"', end='', flush=True); os._exit(0)\n", "exit status 0"),
]


@pytest.mark.component
@pytest.mark.parametrize(("body", "want"), [a[1:] for a in ANSWERS], ids=[a[0] for a in ANSWERS])
def test_what_a_helper_does_wrong_is_a_failed_pass(body: str, want: str, tmp_path: Path) -> None:
    (answer,) = asyncio.run(ask(script(tmp_path, body)))
    assert isinstance(answer, Failed)
    assert want in answer.reason


@pytest.mark.component
def test_a_hanging_library_is_killed_at_its_deadline(tmp_path: Path) -> None:
    started = time.monotonic()
    (answer,) = asyncio.run(ask(script(tmp_path, "    time.sleep(600)\n"), deadline_s=0.3))
    assert answer == Failed("the library did not answer within 0.3 s; its process was killed")
    assert time.monotonic() - started < 30


@pytest.mark.component
def test_a_helper_is_kept_while_it_answers_and_started_anew_after_a_failure(tmp_path: Path) -> None:
    body = (
        "    marker = os.path.join(os.path.dirname(__file__), 'crashed')\n"
        "    if not os.path.exists(marker):\n"
        "        open(marker, 'w').close(); os._exit(1)\n"
        "    print(json.dumps({'found': [{'index': os.getpid(), 'uuid': 'x'}]}), flush=True)\n"
    )
    first, second, third = asyncio.run(ask(script(tmp_path, body), times=3))
    assert isinstance(first, Failed)
    assert isinstance(second, Found)
    assert second == third


@pytest.mark.component
def test_the_real_helper_answers_for_a_library_that_is_not_installed() -> None:
    def command(maker: str) -> Sequence[str]:
        blocked = "import sys; sys.modules['pynvml'] = None; from devicemanager.detectors.probe import main; "
        return (probe_command(maker)[0], "-c", blocked + f"main(['{maker}'])")

    (answer,) = asyncio.run(ask(command))
    assert answer == Empty("the Python package nvidia-ml-py is not installed")


def test_a_helper_that_cannot_be_started() -> None:
    (answer,) = asyncio.run(ask(lambda _maker: ("/does/not/exist",)))
    assert isinstance(answer, Failed)
    assert "could not be started" in answer.reason


def test_whatever_a_library_raises_is_a_failed_answer() -> None:
    def ask_library() -> Answer:
        raise KeyError("libamd_smi.so")

    out = io.StringIO()
    serve(ask_library, io.StringIO("detect\ndetect\n"), out)
    assert [load_answer(line, "amd") for line in out.getvalue().splitlines()] == [
        Failed("KeyError: 'libamd_smi.so'")
    ] * 2


def test_measuring_asks_the_same_helper_one_question_at_a_time(tmp_path: Path) -> None:
    body = (
        "    time.sleep(0.01)\n"
        "    said = {'used': [{'uuid': 'GPU-0', 'cores': 5}]} if line.strip() == 'measure' else {'found': []}\n"
        "    print(json.dumps(said | {'pid': os.getpid()}), flush=True)\n"
    )

    async def scenario() -> tuple[Answer, Measured | Failed]:
        probes = HelperProbes(SystemClock(), command=script(tmp_path, body))
        try:
            found, used = await asyncio.gather(probes.ask("nvidia"), probes.measure("nvidia"))
            return found, used
        finally:
            await probes.close()

    found, used = asyncio.run(scenario())
    assert found == Found(())
    assert used == Measured((CardUsage("GPU-0", cores=5, process_memory="", process_cores=""),))


def test_a_helper_that_cannot_measure_is_started_anew(tmp_path: Path) -> None:
    async def scenario() -> list[Measured | Failed]:
        probes = HelperProbes(SystemClock(), command=script(tmp_path, "    sys.exit(3)\n"))
        try:
            return [await probes.measure("nvidia") for _ in range(2)]
        finally:
            await probes.close()

    assert asyncio.run(scenario()) == [Failed("the library's process ended: exit status 3")] * 2


def test_the_helpers_own_loop_answers_both_questions() -> None:
    out = io.StringIO()
    serve(lambda: Empty("none"), io.StringIO("detect\nmeasure\n"), out, measure=lambda: Measured(()))
    first, second = out.getvalue().splitlines()
    assert load_answer(first, "nvidia") == Empty("none")
    assert load_usage(second) == Measured(())
