"""The served kinds, one module each; every module has `resource(context) -> Resource` and `RBAC`."""

from __future__ import annotations

from apiserver.resources.context import Context
from apiserver.rest.storage import Resource
from kube.reconciler import Rule

__all__ = ["RBAC", "Context", "build_resources"]

RBAC: tuple[Rule, ...] = ()
"""What the server's own account needs for all of them."""


def build_resources(context: Context) -> list[Resource]:
    """Return every resource for the catalog, in the order of discovery: `Catalog(build_resources(context))`."""
    return []
