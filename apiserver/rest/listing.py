"""Answers to lists.

For: `app`. In: a `Page` and the form asked for. Out: the list document in pieces of at most 500 objects.
Promises: `items` is never null; stored bytes are joined, never parsed, in the plain form; between two pieces the event
loop runs (design §5: no step over 20 ms).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from itertools import islice
from typing import Any

from apiserver.rest import table
from apiserver.rest.negotiation import Form, View, encode
from apiserver.rest.storage import Document, Page, Resource

STEP = 500
_SINGLE_ANSWER = 64


def list_metadata(page: Page) -> dict[str, Any]:
    """Return the `metadata` of a list."""
    meta: dict[str, Any] = {"resourceVersion": page.resource_version}
    if page.continue_token:
        meta["continue"] = page.continue_token
    if page.remaining:
        meta["remainingItemCount"] = page.remaining
    return meta


def is_short(page: Page) -> bool:
    """Say whether the list is small enough for one answer with a Content-Length."""
    return len(page.items) <= _SINGLE_ANSWER


async def pieces(page: Page, resource: Resource, form: Form, *, include: str, now: datetime) -> AsyncIterator[bytes]:
    """Yield the JSON of a list in the asked form."""
    head, item = _opening(page, resource, form, include=include, now=now)
    yield encode(head)[:-1] + (b',"rows":[' if form.view is View.TABLE else b',"items":[')
    documents = iter(page.items)
    separator = b""
    while chunk := list(islice(documents, STEP)):
        yield separator + b",".join([item(document) for document in chunk])
        separator = b","
        await asyncio.sleep(0)
    yield b"]}\n"


async def whole(page: Page, resource: Resource, form: Form, *, include: str, now: datetime) -> bytes:
    """Return the JSON of a list in the asked form."""
    return b"".join([piece async for piece in pieces(page, resource, form, include=include, now=now)])


def _opening(
    page: Page, resource: Resource, form: Form, *, include: str, now: datetime
) -> tuple[dict[str, Any], Callable[[Document], bytes]]:
    """Return the fields before the items, and how an item is written."""
    meta = list_metadata(page)
    if form.view is View.TABLE:
        head: dict[str, Any] = {"kind": "Table", "apiVersion": f"meta.k8s.io/{form.version}", "metadata": meta}
        head["columnDefinitions"] = table.definitions(resource.columns)

        def write_row(document: Document) -> bytes:
            return encode(table.row(document.load(), resource.columns, include=include, version=form.version, now=now))

        return head, write_row
    if form.view is View.METADATA_LIST:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": f"meta.k8s.io/{form.version}", "metadata": meta}
        return head, lambda document: encode(table.partial(document.load(), form.version))
    return {"kind": resource.list_name, "apiVersion": resource.api_version, "metadata": meta}, lambda d: d.data
