"""One API server under test, spoken to in plain HTTP.

For: the tests of this folder. In: an HTTP client that is already an administrator. Out: answers and watch events.
Promises: nothing here interprets an answer, so that two servers are compared by what they sent; a watch that says
nothing for ten seconds fails the test.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from nodefeature.fields import as_maps, as_str, at
from tests.protocol.differences import DEVCLUSTER, DIFFERENCES, VIEW_OF, Backend

Object = dict[str, Any]
Test = Callable[[Object], object]

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
SILENCE_S = 10.0
END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; `json` is None when the body is no JSON."""

    code: int
    headers: Mapping[str, str]
    json: Any

    @property
    def reason(self) -> str:
        """Return the Status' reason."""
        return as_str(at(self.json, "reason"))

    @property
    def causes(self) -> dict[str, str]:
        """Return field -> reason of the Status' causes."""
        return {as_str(c.get("field")): as_str(c.get("reason")) for c in as_maps(at(self.json, "details", "causes"))}


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a watch."""

    type: str
    object: Object

    @property
    def name(self) -> str:
        """Return the object's name."""
        return as_str(at(self.object, "metadata", "name"))

    @property
    def is_end(self) -> bool:
        """Say whether this is the bookmark that ends a streaming list's first part."""
        return self.type == "BOOKMARK" and at(self.object, "metadata", "annotations", END) == "true"


@dataclass(slots=True)
class Server:
    """One API server, whose answers a test compares with what it expects of all of them."""

    backend: Backend
    http: httpx.Client
    forget: Callable[[], None]
    """Make old versions and page tokens unusable."""
    below: Server | None = None
    """The server under a view."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def answer_of(self, difference: str) -> Any:
        """Return what this server does where servers differ, from the suite's table."""
        row = DIFFERENCES[difference]
        return row.devcluster if VIEW_OF.get(self.backend, self.backend) == DEVCLUSTER else row.kube_apiserver

    def unused(self, prefix: str) -> str:
        """Return a name nobody has."""
        return f"{prefix}-{next(self._numbers)}"

    def ask(
        self, method: str, path: str, body: object = None, *, type_: str = "", accept: str = "", **query: str
    ) -> Answer:
        """Send one request."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"accept": accept or "application/json"}
        if content is not None:
            headers["content-type"] = type_ or "application/json"
        answer = self.http.request(method, path, content=content, headers=headers, params=query)
        try:
            decoded = answer.json()
        except ValueError:
            decoded = None
        return Answer(answer.status_code, answer.headers, decoded)

    def ok(
        self, method: str, path: str, body: object = None, *, type_: str = "", accept: str = "", **query: str
    ) -> Object:
        """Send one request that must succeed."""
        answer = self.ask(method, path, body, type_=type_, accept=accept, **query)
        assert answer.code < 300, f"{method} {path}: {answer.code}: {answer.json}"
        assert isinstance(answer.json, dict)
        return answer.json

    def patch(self, path: str, patch: object, *, type_: str = MERGE, **query: str) -> Object:
        """Send a patch that must succeed."""
        return self.ok("PATCH", path, patch, type_=type_, **query)

    @contextmanager
    def watch(self, path: str, *, accept: str = "", **query: str) -> Iterator[Iterator[Event]]:
        """Open a watch that the server accepts."""
        parameters = {"watch": "true", "timeoutSeconds": "30", **query}
        limits = httpx.Timeout(SILENCE_S)
        headers = {"accept": accept or "application/json"}
        with self.http.stream("GET", path, params=parameters, headers=headers, timeout=limits) as answer:
            if answer.status_code != 200:
                answer.read()
            assert answer.status_code == 200, answer.text
            yield (Event(line["type"], line["object"]) for line in map(json.loads, answer.iter_lines()))

    def until(
        self,
        path: str,
        test: Callable[[Answer], object],
        *,
        timeout_s: float = 20.0,
        pause_s: float = 0.05,
        **query: str,
    ) -> Answer:
        """Ask again until the answer passes: for what a server does behind a request and tells no watch."""
        deadline = time.monotonic() + timeout_s
        while True:
            answer = self.ask("GET", path, **query)
            if test(answer):
                return answer
            assert time.monotonic() < deadline, f"GET {path} stays {answer.code}: {answer.json}"
            time.sleep(pause_s)


def version_of(obj: Object) -> str:
    """Return an object's or a list's resourceVersion."""
    return as_str(at(obj, "metadata", "resourceVersion"))


def names(listed: Object) -> list[str]:
    """Return the names of a list's items."""
    return [as_str(at(item, "metadata", "name")) for item in listed["items"] or []]
