"""Where kube-apiserver asks: one path a webhook, behind the server's own TLS (design §6).

For: `app`, which asks `serves` first: kube-apiserver has no credentials here, and needs none, for an answer changes
nothing by itself and tells no more than a rule. In: POSTs of AdmissionReviews. Out: AdmissionReviews.
Promises: an answer comes before kube-apiserver stops waiting; a body that is no review is a 4xx; an error of ours is a
500 that says nothing of the inside and is logged once; bodies and questions in flight are bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import CollectorRegistry, Histogram

from apiserver.rest import status
from apiserver.rest.responses import Receive, Scope, Send, read_body, send_bytes, send_refusal
from apiserver.webhooks import instance, instance_type, pod, review, workload
from apiserver.webhooks.configurations import MUTATING, TIMEOUT_S, VALIDATING
from apiserver.webhooks.review import Answer, Request
from apiserver.webhooks.world import World
from nodefeature.kinds import Kind

MAX_BODY_BYTES = 2 * status.MAX_BODY_BYTES + 1024 * 1024
"""Two objects of the largest size a client may send, and what is said about them."""
DEADLINE_S = TIMEOUT_S - 1.0
BODY_S = 5.0
"""How long a question may take to come."""
MOST_IN_FLIGHT = 400
MOST_BYTES = 96 * 1024 * 1024
"""Of all questions in flight together."""

log = logging.getLogger(__name__)

Handler = Callable[[Request, World], Awaitable[Answer]]

HANDLERS: Mapping[str, tuple[Kind, Handler]] = {
    entry.path: (entry.kind, handler)
    for entry, handler in zip(
        (*MUTATING, *VALIDATING),
        (
            instance.mutate,
            instance_type.mutate,
            pod.mutate,
            workload.mutate,
            instance.validate,
            instance_type.validate,
            pod.validate,
        ),
        strict=True,
    )
}


class Webhooks:
    """The webhooks' part of the application. `fault` says why nothing can be judged yet."""

    def __init__(self, world: World, *, fault: Callable[[], str], registry: CollectorRegistry) -> None:
        self._world = world
        self._fault = fault
        self._in_flight = 0
        self._bytes = 0
        self._seconds = Histogram(
            "apiserver_webhook_duration_seconds",
            "Time from a question to its answer.",
            ("webhook", "outcome"),
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10),
            registry=registry,
        )

    def serves(self, scope: Scope) -> bool:
        """Say whether a request is for a webhook."""
        return scope["raw_path"].partition(b"?")[0].decode("latin-1") in HANDLERS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        path = scope["raw_path"].partition(b"?")[0].decode("latin-1")
        try:
            body = await self._answer(path, scope, receive)
        except status.Refusal as refusal:
            await send_refusal(send, refusal)
            return
        await send_bytes(send, body)

    async def _answer(self, path: str, scope: Scope, receive: Receive) -> bytes:
        if scope["method"] != "POST":
            raise status.method_not_allowed("admissionreviews", review.API_VERSION, scope["method"].lower())
        why = self._fault()
        if why:
            raise status.unavailable(f"webhooks are starting: {why}")
        if self._in_flight >= MOST_IN_FLIGHT:
            raise status.too_many_requests("too many questions in flight")
        size = _announced(scope)
        if self._bytes + size > MOST_BYTES:
            raise status.too_many_requests("too many long questions in flight")
        self._in_flight += 1
        self._bytes += size
        try:
            request = review.read(await _body_of(scope, receive))
            loop = asyncio.get_running_loop()
            asked = loop.time()
            answer = await self._judge(path, request)
            outcome = "refused" if answer.refusal is not None else "patched" if answer.patch else "allowed"
            self._seconds.labels(path[1:], outcome).observe(loop.time() - asked)
            return review.write(request.uid, answer)
        finally:
            self._in_flight -= 1
            self._bytes -= size

    async def _judge(self, path: str, request: Request) -> Answer:
        kind, handler = HANDLERS[path]
        why = review.fault_of(request, kind)
        if why:
            return Answer(refusal=status.bad_request(why))
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await handler(request, self._world)
        except TimeoutError:
            return review.retry("the webhook could not answer in time; retry")
        except Exception:
            extra = {"kind": kind.kind, "object": f"{request.namespace}/{request.name}", "reason": path}
            log.exception("webhook failed", extra=extra)
            return review.retry("the webhook failed; its log says why")


def _announced(scope: Scope) -> int:
    """Return how long a body says it is; as long as it may be, when it says nothing."""
    text = dict(scope["headers"]).get(b"content-length", b"")
    return min(int(text), MAX_BODY_BYTES) if text.isdigit() else MAX_BODY_BYTES


async def _body_of(scope: Scope, receive: Receive) -> bytes:
    """Read a question; one that dawdles would keep its place from those of kube-apiserver: nobody needs credentials."""
    announced = dict(scope["headers"]).get(b"content-length", b"")
    try:
        async with asyncio.timeout(BODY_S):
            return await read_body(receive, limit=MAX_BODY_BYTES, announced=announced)
    except TimeoutError as error:
        raise status.timed_out("the question did not come in time") from error
