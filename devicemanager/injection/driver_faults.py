"""What a vendor's driver answers when it does not do what it is asked."""

from __future__ import annotations

from kube.errors import OperatorError


class DriverFault(OperatorError):
    """The driver could not do what it was told."""


class ApiMissing(DriverFault):
    """This driver, or its library, does not have the function at all."""


class NotDeclared(DriverFault):
    """This generation of the driver has no such thing, and needs none."""
