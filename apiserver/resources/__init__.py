"""The served kinds, one module each; every module has `resource(context) -> Resource` and `RBAC`."""

from __future__ import annotations

from apiserver.context import Context
from apiserver.resources import (
    devices,
    instance,
    instance_image_pull_secret,
    instance_persistent_volume,
    instance_persistent_volume_type,
    instance_ssh_public_key,
    instance_type,
    instance_type_flavor,
    setting,
)
from apiserver.rest.storage import Resource
from kube.reconciler import Rule

__all__ = ["RBAC", "Context", "build_resources"]

MODULES = (
    devices,
    instance,
    instance_type,
    instance_type_flavor,
    instance_ssh_public_key,
    instance_image_pull_secret,
    instance_persistent_volume,
    instance_persistent_volume_type,
    setting,
)
RBAC: tuple[Rule, ...] = tuple(rule for module in MODULES for rule in module.RBAC)
"""What the server's own account needs for all of them."""


def build_resources(context: Context) -> list[Resource]:
    """Return every resource for the catalog, in the order of discovery: `Catalog(build_resources(context))`."""
    return [module.resource(context) for module in MODULES]
