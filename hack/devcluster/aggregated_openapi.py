"""OpenAPI documents of extension servers, so that `kubectl explain` describes their kinds here too.

For: `aggregator`, which asks when it looks at an APIService; `server`, which shows them. In: an address and headers.
Out: v3 documents by their path below `/openapi/v3/`.
Promises: a document that cannot be read makes nothing unavailable, and the last one stands; the mapping is another one
only when a document has changed, since what is made of it is kept until then.
Left out: version 2, which kube-aggregator merges; here it is made of these documents.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from hack.devcluster.upstream import Endpoint, UpstreamError, exchange

log = logging.getLogger(__name__)

Document = Mapping[str, Any]
Headers = Sequence[tuple[bytes, bytes]]
_DEADLINE_S = 5.0


class AggregatedDocuments:
    """The last document of each aggregated group version."""

    def __init__(self) -> None:
        self._documents: Mapping[str, Document] = {}
        self._tags: dict[str, bytes] = {}

    async def __call__(self) -> Mapping[str, Document]:
        """Return the documents."""
        return self._documents

    async def refresh(self, key: str, endpoint: Endpoint, headers: Headers) -> None:
        """Read the document of one group version, `apis/<group>/<version>`; only when it has changed is it sent."""
        known = [(b"if-none-match", self._tags[key])] if key in self._tags else []
        target = f"/openapi/v3/{key}".encode()
        try:
            async with exchange(endpoint, "GET", target, headers=[*headers, *known], deadline_s=_DEADLINE_S) as answer:
                body = b"".join([piece async for piece in answer.pieces()])
            document = orjson.loads(body) if answer.code == 200 else None
        except (UpstreamError, OSError, ValueError) as error:
            log.info("OpenAPI of an extension server not read: %s: %s", key, error)
            return
        if isinstance(document, dict):
            self._tags[key] = next((value for name, value in answer.headers if name == b"etag"), b"")
            self._documents = {**self._documents, key: document}

    def forget(self, key: str) -> None:
        """Drop the document of a group version that is no longer aggregated."""
        if key in self._documents:
            self._documents = {name: document for name, document in self._documents.items() if name != key}
        self._tags.pop(key, None)
