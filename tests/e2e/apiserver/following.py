"""A kubectl that goes on: what it says, line by line."""

from __future__ import annotations

import subprocess
import threading

from hack.controlplane.replicas import Replicas


class Lines:
    """What a kubectl that goes on has said."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._said: list[str] = []
        self._changed = threading.Condition()
        self._at = 0
        self._eof = False
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._note(line.rstrip("\n"))
        with self._changed:
            self._eof = True
            self._changed.notify_all()

    def _note(self, line: str) -> None:
        with self._changed:
            self._said.append(line)
            self._changed.notify_all()

    def next(self) -> str:
        """Return the next line, within half a minute."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._said) > self._at or self._eof, 30), "nothing was said"
            assert len(self._said) > self._at, "it has ended"
            self._at += 1
            return self._said[self._at - 1]

    def ended(self) -> bool:
        """Say whether it ended by itself, within half a minute."""
        with self._changed:
            return self._changed.wait_for(lambda: self._eof, 30)


def following(pair: Replicas, *words: str) -> Lines:
    return Lines(pair.kubectl_command(*words))
