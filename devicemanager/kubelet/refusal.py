"""Refusals of the device plugin, told apart by what the kubelet is told (spec 06 §7)."""

from __future__ import annotations

from enum import StrEnum

from kube.errors import OperatorError


class Code(StrEnum):
    """Names of gRPC's status codes, so that decisions need not know gRPC."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    INTERNAL = "INTERNAL"


class Refused(OperatorError):
    """The kubelet's call is answered with an error; the text reaches the Pod's status."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class Unclear(Refused):
    """It cannot be told yet which container the call is for; asking again a little later may help."""

    def __init__(self, text: str) -> None:
        super().__init__(Code.INTERNAL, text)


def precondition(text: str) -> Refused:
    """Return the refusal of something the node's state does not allow."""
    return Refused(Code.FAILED_PRECONDITION, text)


def bad_ids(text: str) -> Refused:
    """Return the refusal of ids that this plugin never offered."""
    return Refused(Code.INVALID_ARGUMENT, text)
