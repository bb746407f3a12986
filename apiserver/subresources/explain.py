"""`explain`: why an Instance waits, gate by gate.

For: the `instances` resource. In: a call. Out: InstanceExplanation as JSON or YAML, or a Table.
Promises: reads alone; of other namespaces an answer holds counts and names of nodes, never an object or its name
(decision 0450); at most ten seconds; what cannot be read besides the Instance becomes a gate that is Unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.explain.document import KIND_OF_INSTANCE, document, table
from api.explain.evidence import Evidence
from api.explain.verdicts import explain
from api.models.answers import InstanceExplanation
from api.schema import structural
from apiserver.context import Context
from apiserver.mapping.refusals import not_found, translated
from apiserver.rest import negotiation, status
from apiserver.rest import table as tables
from apiserver.rest.negotiation import View
from apiserver.rest.request_info import RequestInfo, parameters
from apiserver.rest.responses import NO_CACHE, Send, send_bytes
from apiserver.rest.storage import Call, Parameter, Subresource
from apiserver.subresources.answering import send_document
from apiserver.subresources.explain_reading import RBAC, ExplainReader
from kube.errors import NotFound
from nodefeature.kinds import INSTANCE

__all__ = ["RBAC", "Explain", "explain_of_instance"]

BUDGET_S = 10.0
INCLUDE = Parameter("includeObject", "string", "What a Table's rows carry", choices=tables.INCLUDES)


@dataclass(frozen=True, slots=True)
class Explain:
    """The connector."""

    reader: ExplainReader

    async def __call__(self, call: Call, scope: Mapping[str, Any], receive: Any, send: Send) -> None:
        """Answer with the explanation; raises Refusal 400, 404, 406, 503."""
        info = call.info
        form = negotiation.negotiate(_accept(scope), "get")
        include = _include(scope) if form.view is View.TABLE else ""
        try:
            async with asyncio.timeout(BUDGET_S):
                evidence = await self._read(info)
        except TimeoutError as error:
            raise status.unavailable(f"{info.name!r} could not be explained within {BUDGET_S:.0f} s") from error
        about = evidence.instance or {}
        explained = document(explain(evidence), about, kind=KIND_OF_INSTANCE, api_version=info.api_version)
        if form.view is not View.TABLE:
            await send_document(scope, send, explained)
            return
        behind = {"None": None, "Object": explained}.get(include, tables.partial(explained, form.version))
        body = negotiation.encode(table(explained, version=form.version, obj=behind))
        await send_bytes(send, body, headers=[NO_CACHE])

    async def _read(self, info: RequestInfo) -> Evidence:
        with translated(info, INSTANCE):
            try:
                return await self.reader.of_instance(info.namespace, info.name)
            except NotFound as error:
                raise not_found(info) from error


def _include(scope: Mapping[str, Any]) -> str:
    return tables.check_include(parameters(scope["query_string"], {INCLUDE.name}).get(INCLUDE.name, ""))


def _accept(scope: Mapping[str, Any]) -> str:
    accept: bytes = dict(scope["headers"]).get(b"accept", b"")
    return accept.decode("latin-1")


def explain_of_instance(context: Context) -> Subresource:
    """Return `instances/explain`."""
    reader = ExplainReader(context.client, context.manufacturers, context.clock)
    return Subresource(
        "explain",
        KIND_OF_INSTANCE,
        ("get",),
        connector=Explain(reader),
        parameters=(INCLUDE,),
        schema=structural(InstanceExplanation),
    )
