"""The OpenAPI of forwarded kinds: kube-apiserver's own document under the view's version (design §6, spec 03 B4).

For: the server's OpenAPI endpoints. In: a client. Out: a v3 document, to which the kinds we answer ourselves are added.
Promises: what `kubectl explain` shows of a view is what the CRD says, metadata included; upstream is read at most once
in `KEPT_S`; while it cannot be read the last document stands, and before there was one, the models' own schemas do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import orjson

from apiserver.context import Context
from apiserver.forwarding.rewriting import Renaming
from kube.client import Client
from kube.clock import Clock
from kube.errors import OperatorError
from nodefeature.kinds import INSTANCE

log = logging.getLogger(__name__)

KEPT_S = 60.0
FIRST_S = 5.0
"""How long the first reader waits for upstream."""
Document = Mapping[str, Any]


def renamed(document: Document, renaming: Renaming) -> dict[str, Any]:
    """Return a document whose paths, schema names and kinds are those of the view's version."""
    domain = ".".join(reversed(renaming.group.split(".")))
    text = orjson.dumps(document)
    for before, after in (
        (f"/apis/{renaming.old_api_version}", f"/apis/{renaming.new_api_version}"),
        (f"{domain}.{renaming.old}.", f"{domain}.{renaming.new}."),
    ):
        text = text.replace(before.encode(), after.encode())
    out: dict[str, Any] = orjson.loads(text)
    _rename_kinds(out, renaming)
    return out


def _rename_kinds(root: Any, renaming: Renaming) -> None:
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if (value.get("group"), value.get("version")) == (renaming.group, renaming.old):
                value["version"] = renaming.new
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


class CrdDocuments:
    """The documents by their path below `/openapi/v3/`."""

    def __init__(self, client: Client, clock: Clock, renaming: Renaming) -> None:
        self._client = client
        self._clock = clock
        self._renaming = renaming
        self._read_at = -KEPT_S
        self._last: dict[str, Document] = {}
        self._reading: asyncio.Task[None] | None = None

    async def __call__(self) -> Mapping[str, Document]:
        """Return what is known now, an older document while it is read again; empty when none could be read yet."""
        idle = self._reading is None or self._reading.done()
        if idle and self._clock.now() - self._read_at >= KEPT_S:
            self._read_at = self._clock.now()
            self._reading = asyncio.create_task(self._read(), name="upstream OpenAPI")
        if not self._last and self._reading is not None:
            await asyncio.wait({self._reading}, timeout=FIRST_S)
        return self._last

    async def _read(self) -> None:
        path = f"/openapi/v3/apis/{self._renaming.old_api_version}"
        try:
            document = await self._client.get_path(path)
        except OperatorError as error:
            log.warning("upstream OpenAPI not read", extra={"reason": str(error)})
            return
        key = f"apis/{self._renaming.new_api_version}"
        self._last = {key: await asyncio.to_thread(renamed, document, self._renaming)}


def crd_documents(context: Context, version: str = "v1") -> CrdDocuments:
    """Return the documents of our CRDs' group under the views' version."""
    renaming = Renaming(INSTANCE.group, INSTANCE.version, version, "")
    return CrdDocuments(context.client, context.clock, renaming)
