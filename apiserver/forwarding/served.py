"""A custom resource as a served v1 resource.

For: the resource modules. In: the kind. Out: a `Resource` whose every request is forwarded, and the RBAC it needs.
Promises: names, short names and schema are those of the CRD; a further kind is one call.
"""

from __future__ import annotations

from collections.abc import Iterable

from api.crds import CATEGORY, DEFINITIONS
from api.schema import structural
from apiserver.context import Context
from apiserver.forwarding.view import CrdView
from apiserver.rest.storage import Resource, Subresource, Unserved
from kube.reconciler import Rule
from nodefeature.kinds import Kind

VERSION = "v1"
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def crd_view(context: Context, kind: Kind, subresources: Iterable[Subresource] = ()) -> Resource:
    """Return the v1 view of a CRD of ours."""
    definition = next(row for row in DEFINITIONS if row.kind == kind)
    view = CrdView(
        kind,
        context.client,
        version=VERSION,
        authorize=context.authorize,
        open_streams=context.open_streams,
        impersonate=context.impersonate,
    )
    status = Subresource("status", kind.kind, ("get", "patch", "update"))
    return Resource(
        group=kind.group,
        version=VERSION,
        plural=kind.plural,
        kind=kind.kind,
        namespaced=kind.namespaced,
        storage=Unserved(),
        connector=view,
        short_names=definition.short_names,
        categories=(CATEGORY,),
        subresources={sub.name: sub for sub in (status, *subresources)},
        schema=structural(definition.model),
    )


def crd_rules(kind: Kind) -> tuple[Rule, ...]:
    """Return what forwarding to a CRD needs."""
    return (
        Rule(kind.group, kind.plural, VERBS),
        Rule(kind.group, f"{kind.plural}/status", ("get", "patch", "update")),
    )
