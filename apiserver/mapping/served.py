"""A mapped kind as a served v1 resource.

For: the resource modules. In: the mapping, names, columns. Out: a `Resource`.
Promises: schema and names come from the kind's model; columns of ours end with the age, shown with `-o wide` only
(spec 03 A3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from api.crds import CATEGORY
from api.schema import structural
from apiserver.context import Context
from apiserver.mapping.mapping import Mapping
from apiserver.mapping.storage import MappedStorage
from apiserver.rest.patch import PatchType
from apiserver.rest.storage import Column, Resource, Subresource
from apiserver.rest.table import AGE, NAME

PATCH_TYPES = (PatchType.JSON, PatchType.MERGE, PatchType.APPLY, PatchType.STRATEGIC)


def mapped_resource(
    context: Context, mapping: Mapping, *, columns: Sequence[Column] = (), subresources: Iterable[Subresource] = ()
) -> Resource:
    """Return the served resource of a mapping."""
    kind = mapping.kind
    return Resource(
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.kind,
        namespaced=kind.namespaced,
        storage=MappedStorage(mapping, context.client, context.authorize),
        categories=(CATEGORY,),
        columns=with_name_and_age(columns),
        subresources={sub.name: sub for sub in subresources},
        patch_types=PATCH_TYPES,
        schema=structural(mapping.model),
    )


def with_name_and_age(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return a kind's columns between its name and its age."""
    last = max((column.priority for column in columns), default=0) + 1
    return (NAME, *columns, replace(AGE, priority=last))
