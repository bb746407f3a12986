"""What the audit log tells of replicas that elect a leader.

For: the scenarios of two replicas. In: one account's requests in the log's order; replicas are told apart by their
tokens. Out: the requests in question. Promises: pure; refused requests and reads are no writes; only the Lease of the
controllers elects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hack.controlplane.audit import Request

ELECTED = "worker.gpustack.ai"
_LEASES = "leases.coordination.k8s.io"


def renewals(requests: Iterable[Request]) -> Iterator[Request]:
    """Yield the writes of the Lease."""
    return (request for request in requests if _is_done(request) and _elects(request))


def without_lease(requests: Iterable[Request]) -> Iterator[Request]:
    """Yield the writes that did not come with the token that had written the Lease last."""
    leading = ""
    for request in filter(_is_done, requests):
        if _elects(request):
            leading = request.credential
        elif leading and request.credential != leading:
            yield request


def of_successors(requests: Iterable[Request]) -> Iterator[Request]:
    """Yield the writes, the Lease aside, that came with another token than the one that wrote the Lease first."""
    first = ""
    for request in filter(_is_done, requests):
        if _elects(request):
            first = first or request.credential
        elif first and request.credential != first:
            yield request


def _is_done(request: Request) -> bool:
    return request.is_write and request.code < 400


def _elects(request: Request) -> bool:
    return request.resource == _LEASES and request.name == ELECTED
