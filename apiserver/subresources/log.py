"""`log`: the log of an Instance's container, as a stream (spec 02 §7.1).

For: the `instances` resource. In: a call and its options. Out: text/plain, as kube-apiserver sends it.
Promises: all mistakes of the options in one 422; each piece is passed on when it comes, nothing is collected; the
stream ends when the container's log does, when the client is gone, or when this server drains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.problems import Problem, problem
from apiserver.context import Context
from apiserver.forwarding.open_streams import OpenStreams, until_ended
from apiserver.mapping.refusals import refusal_of, translated
from apiserver.rest import status
from apiserver.rest.request_info import boolean, parameters
from apiserver.rest.responses import Receive, Send, end_stream, send_piece, start_stream
from apiserver.rest.status import Cause
from apiserver.rest.storage import Call, Parameter, Subresource
from apiserver.subresources.pods import CONTAINER, pod_of
from kube import requests
from kube.client import Client
from kube.connection import Answer
from kube.errors import answer_error
from kube.reconciler import Rule
from kube.requests import Request
from nodefeature.kinds import INSTANCE, POD

OPTIONS_KIND = "InstanceLogOptions"
FIRST_S = 30.0
FLAGS = (
    Parameter("follow", "boolean", "Go on while the container writes"),
    Parameter("timestamps", "boolean", "Begin each line with when it was written"),
    Parameter("previous", "boolean", "What the container wrote before its last restart"),
)
FIGURES = (
    Parameter("sinceSeconds", "integer", "Only what was written in the last so many seconds", least=1),
    Parameter("limitBytes", "integer", "End after so many bytes", least=1),
    Parameter("tailLines", "integer", "Only the last so many lines", least=0),
)
SINCE = Parameter("sinceTime", "string", "Only what was written since a time such as 2026-01-01T00:00:00Z")
PARAMETERS = (*FLAGS, *FIGURES, SINCE)
RBAC = (
    Rule(INSTANCE.group, "instances", ("get",)),
    Rule("", "pods", ("get",)),
    Rule("", "pods/log", ("get",)),
)
_NAMES = frozenset(parameter.name for parameter in PARAMETERS)
_TEXT = "text/plain; charset=utf-8"


def log_options(query: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the Pod's log; raises Refusal 400 for no boolean, 422 for the rest, all at once."""
    out = {"container": CONTAINER}
    problems: list[Problem] = []
    out |= {flag.name: "true" for flag in FLAGS if boolean(query, flag.name)}
    for name, least in ((figure.name, figure.least or 0) for figure in FIGURES):
        text = query.get(name, "")
        if not text:
            continue
        if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 19):
            problems.append(problem(name, text, "must be an integer"))
        elif int(text) < least:
            rule = "greater than 0" if least else "greater than or equal to 0"
            problems.append(problem(name, int(text), f"must be {rule}"))
        else:
            out[name] = text
    causes = [Cause("FieldValueInvalid", f"Invalid value: {p.value}: {p.rule}", p.path) for p in problems]
    causes += _since(query, out)
    if causes:
        raise status.invalid(OPTIONS_KIND, "", "", causes)
    return out


def _since(query: Mapping[str, str], out: dict[str, str]) -> list[Cause]:
    text = query.get(SINCE.name, "")
    if not text:
        return []
    try:
        aware = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        aware = False
    causes = []
    if not aware:
        message = f"Invalid value: {problem('', text, '').value}: must be a time such as 2026-01-01T00:00:00Z"
        causes.append(Cause("FieldValueInvalid", message, "sinceTime"))
    if query.get("sinceSeconds"):
        message = "Forbidden: at most one of sinceTime or sinceSeconds may be specified"
        causes.append(Cause("FieldValueForbidden", message, "sinceTime"))
    out["sinceTime"] = text
    return causes


@dataclass(frozen=True, slots=True)
class Log:
    """The connector."""

    client: Client
    open_streams: OpenStreams

    async def __call__(self, call: Call, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Stream the log; raises Refusal before anything was sent."""
        info = call.info
        options = log_options(parameters(scope["query_string"], _NAMES))
        if self.open_streams.refusing:
            raise status.unavailable("the server is shutting down")
        await pod_of(self.client, info)
        request = Request(
            method="GET",
            path=requests.object_path(POD, info.name, info.namespace, "log"),
            query=tuple(options.items()),
            headers=(("accept", "*/*"),),
            what=f"log of {POD} {info.namespace}/{info.name}",
        )
        with translated(info, POD):
            async with self.client.connection.exchange(request, first_s=FIRST_S) as answer:
                if not answer.is_success:
                    error = answer_error(answer.code, answer.headers, await answer.body())
                    raise refusal_of(error, info, POD)
                await start_stream(send, content_type=_TEXT)
                await until_ended(_copy(answer, send), receive, self.open_streams)
                await end_stream(send)


async def _copy(answer: Answer, send: Send) -> None:
    async for chunk in answer.chunks:
        await send_piece(send, chunk)


def log_of_pod(context: Context) -> Subresource:
    """Return `instances/log`."""
    connector = Log(context.client, context.open_streams)
    return Subresource(
        "log",
        "InstanceLog",
        ("get",),
        connector=connector,
        long_running=True,
        parameters=PARAMETERS,
        media_type="text/plain",
    )
