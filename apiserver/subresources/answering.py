"""Answers of sub-resources that are documents of their own.

For: `events`, `metrics`. In: a decoded document, the Accept header. Out: one answer.
Promises: JSON, or YAML when that is asked for; a Table clause is answered in JSON, since these documents have no rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from apiserver.rest import negotiation
from apiserver.rest.negotiation import View
from apiserver.rest.responses import NO_CACHE, Send, send_bytes


async def send_document(scope: Mapping[str, Any], send: Send, document: Mapping[str, Any]) -> None:
    """Send a document; raises Refusal 406."""
    accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
    form = negotiation.negotiate(accept, "get")
    body = negotiation.encode(document)
    if form.view is View.YAML:
        body = await asyncio.to_thread(negotiation.to_yaml, body)
        await send_bytes(send, body, content_type=form.content_type, headers=[NO_CACHE])
        return
    await send_bytes(send, body, headers=[NO_CACHE])
