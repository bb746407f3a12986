"""What can go wrong in the control plane, by who must act.

For: `__main__`, which turns each into one line and an exit code; tests, which show them as they are.
"""

from __future__ import annotations


class ControlPlaneError(Exception):
    """Everything this package raises on purpose."""

    exit_code = 1


class MissingError(ControlPlaneError):
    """Something the machine lacks: Go, or binaries nobody has built yet. The message says what to do."""

    exit_code = 2


class BuildError(ControlPlaneError):
    """A Go build failed; the message ends with the compiler's last lines."""


class ProcessDiedError(ControlPlaneError):
    """A process ended on its own; the message names it and ends with its last log lines."""


class NotReadyError(ControlPlaneError):
    """A deadline passed; the message says what was waited for and what was seen last."""


class BusyError(ControlPlaneError):
    """Another process starts or uses a control plane in the same folder."""


class RequestError(ControlPlaneError):
    """kube-apiserver refused a request of the harness."""

    def __init__(self, message: str, *, code: int, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
