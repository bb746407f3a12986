"""What kube-apiserver's audit log says about somebody's requests.

For: tests that assert the wire: nothing forbidden, and silence when settled.
In: the log. Out: one `Request` a request, in the log's order. Promises: reads complete lines only, so a log that is
being written can be read; `position` and `since` cut a run out of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodefeature.fields import as_int, as_list, as_map, as_str, at

_STAGES = {"ResponseComplete", "ResponseStarted", "Panic"}
_QUIET_VERBS = {"watch"}
_STEP = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One answered request."""

    user: str
    agent: str
    verb: str
    resource: str
    """`<plural>.<group>`, with `/<subresource>` where there is one; the path of a request for no resource."""
    namespace: str
    name: str
    code: int
    time: str
    """When the request came; RFC 3339 with microseconds, as all times here."""
    answered: str = ""
    decision: str = ""
    """What authorization said: `allow` or `forbid`; admission may still refuse with 403, in a namespace that goes."""
    credential: str = ""
    """The id of the token the request came with, where it came with one of a ServiceAccount."""

    @property
    def is_write(self) -> bool:
        """Say whether the request was to change something."""
        return self.verb in {"create", "update", "patch", "delete", "deletecollection"}

    @property
    def is_refused(self) -> bool:
        """Say whether the request lacked an identity (401) or a right (403 by authorization)."""
        return self.code == 401 or (self.code == 403 and self.decision != "allow")

    @property
    def is_quiet(self) -> bool:
        """Say whether a settled client may still send it: a watch, or the renewal of a lease it holds."""
        renews = self.resource == "leases.coordination.k8s.io" and self.verb in {"get", "update", "patch"}
        return self.verb in _QUIET_VERBS or renews

    def __str__(self) -> str:
        target = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.time} {self.user} {self.verb} {self.resource} {target} -> {self.code}"


def position(log: Path) -> int:
    """Return the end of the log's last complete line, to be handed to `read` as `since`."""
    if not log.exists():
        return 0
    with log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:  # a line may be half-written, and longer than one step back
            begin = max(0, end - _STEP)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                return begin + newline + 1
            end = begin
    return 0


def read(log: Path, *, user: str = "", since: int = 0) -> Iterator[Request]:
    """Yield the requests of one user (all of them when empty) after a position."""
    with log.open("rb") as file:
        file.seek(since)
        yield from parse(file, user=user)


def parse(lines: Iterable[bytes], *, user: str = "") -> Iterator[Request]:
    """Yield the requests of one user (all of them when empty) that these lines of the log tell of."""
    started: set[str] = set()
    for line in lines:
        if not line.endswith(b"\n"):
            return
        event = json.loads(line)
        if event.get("stage") not in _STAGES or (user and at(event, "user", "username") != user):
            continue
        identity = as_str(event.get("auditID"))
        if identity in started:  # a watch is logged when it starts and when it ends
            started.discard(identity)
            continue
        if event["stage"] == "ResponseStarted":
            started.add(identity)
        yield _request(event)


def forbidden(log: Path, *, user: str, since: int = 0) -> list[Request]:
    """Return the requests that were refused for lack of a right or of an identity."""
    return [request for request in read(log, user=user, since=since) if request.is_refused]


def unquiet(log: Path, *, user: str, since: int = 0) -> list[Request]:
    """Return what a settled user should not have sent: anything but watches and lease renewals."""
    return [request for request in read(log, user=user, since=since) if not request.is_quiet]


def _request(event: dict[str, Any]) -> Request:
    ref = as_map(event.get("objectRef"))
    parts = [as_str(ref.get("resource")), as_str(ref.get("apiGroup"))]
    resource = ".".join(part for part in parts if part) or as_str(event.get("requestURI")).partition("?")[0]
    subresource = as_str(ref.get("subresource"))
    return Request(
        user=as_str(at(event, "user", "username")),
        agent=as_str(event.get("userAgent")),
        verb=as_str(event.get("verb")),
        resource=f"{resource}/{subresource}" if subresource else resource,
        namespace=as_str(ref.get("namespace")),
        name=as_str(ref.get("name")),
        code=as_int(at(event, "responseStatus", "code")),
        time=as_str(event.get("requestReceivedTimestamp")),
        answered=as_str(event.get("stageTimestamp")),
        decision=as_str(as_map(event.get("annotations")).get("authorization.k8s.io/decision")),
        credential="".join(as_list(at(event, "user", "extra", "authentication.kubernetes.io/credential-id"))[:1]),
    )
