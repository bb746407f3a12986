"""What kube-apiserver asks and what it is answered: AdmissionReview `admission.k8s.io/v1`.

For: `route`, which reads and writes; webhooks, which see a `Request` and return an `Answer`.
In: bytes. Out: a frozen request; bytes.
Promises: only what every webhook needs is required of a review; anything else that is missing, null or of another type
reads as empty; an answer carries the uid of its question and a Status with every cause.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from api.problems import Fault, Problem
from apiserver.rest import status
from apiserver.rest.negotiation import decode_json
from apiserver.rest.status import Cause, Refusal
from apiserver.webhooks.patches import Operation
from nodefeature.fields import as_map, as_str, at, is_deleting, name_of
from nodefeature.kinds import Kind

API_VERSION = "admission.k8s.io/v1"
CREATE, UPDATE = "CREATE", "UPDATE"
_MOST_WARNING = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question. `old` is empty where there is none."""

    uid: str
    operation: str
    name: str = ""
    namespace: str = ""
    kind: str = ""
    group: str = ""
    subresource: str = ""
    object: Mapping[str, Any] = field(default_factory=dict)
    old: Mapping[str, Any] = field(default_factory=dict)

    @property
    def without_status(self) -> Mapping[str, Any]:
        """Return the object as it will be created: a status is not the creator's to give."""
        return {name: value for name, value in self.object.items() if name != "status"}

    @property
    def is_deleting(self) -> bool:
        """Say whether the object is on its way out: it must be let go, whatever is missing by now (case B011)."""
        return is_deleting(self.object) or is_deleting(self.old)


@dataclass(frozen=True, slots=True)
class Answer:
    """Yes, with changes and warnings; or no, with what is wrong."""

    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: Refusal | None = None


ALLOWED = Answer()


def read(body: bytes) -> Request:
    """Return the question of a body; raises Refusal 400 when it is none that can be answered."""
    review = decode_json(body)
    version, kind = as_str(at(review, "apiVersion")), as_str(at(review, "kind"))
    if (version, kind) != (API_VERSION, "AdmissionReview"):
        raise status.bad_request(f"expected AdmissionReview of {API_VERSION}, found {kind!r} of {version!r}"[:256])
    asked = as_map(at(review, "request"))
    uid = as_str(asked.get("uid"))
    if not uid:
        raise status.bad_request("request.uid: must name the question")
    obj = as_map(asked.get("object"))
    return Request(
        uid=uid,
        operation=as_str(asked.get("operation")),
        name=as_str(asked.get("name")) or name_of(obj),
        namespace=as_str(asked.get("namespace")),
        kind=as_str(at(asked, "kind", "kind")),
        group=as_str(at(asked, "kind", "group")),
        subresource=as_str(asked.get("subResource")),
        object=obj,
        old=as_map(asked.get("oldObject")),
    )


def write(uid: str, answer: Answer) -> bytes:
    """Return the body that answers a question."""
    response: dict[str, Any] = {"uid": uid, "allowed": answer.refusal is None}
    if answer.refusal is not None:
        response["status"] = answer.refusal.document()
    elif answer.patch:
        operations = orjson.dumps([operation.document() for operation in answer.patch])
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(operations).decode()}
    if answer.warnings:
        response["warnings"] = [text[:_MOST_WARNING] for text in answer.warnings]
    return orjson.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def fault_of(request: Request, kind: Kind) -> str:
    """Return why a request cannot be judged as one about `kind`; empty when it can."""
    if (request.group, request.kind) not in ((kind.group, kind.kind), ("", "")):
        return f"request.kind: {request.kind} of {request.group!r} is not judged here, {kind.kind} is"
    if request.operation in (CREATE, UPDATE) and not request.object:
        return f"request.object: must be a {kind.kind}"
    claimed = as_str(request.object.get("kind"))
    if claimed not in ("", kind.kind):
        return f"request.object.kind: is {claimed!r}, must be {kind.kind}"[:256]
    if request.operation == UPDATE and not request.old:
        return f"request.oldObject: must be the {kind.kind} as it is stored"
    return ""


def refused(request: Request, kind: Kind, problems: Sequence[Problem]) -> Answer:
    """Return the 422 that carries every problem once; allowed when there is none."""
    if not problems:
        return ALLOWED
    causes = [Cause(each.fault, _message(each), each.path) for each in dict.fromkeys(problems)]
    return Answer(refusal=status.invalid(kind.kind, kind.group, request.name, causes))


def retry(message: str, *, path: str = "") -> Answer:
    """Return the 500 that says: the request may be right, ask again."""
    refusal = status.internal_error(f"{path}: {message}" if path else message)
    refusal.details["causes"] = [Cause("InternalError", message, path).document()]
    return Answer(refusal=refusal)


def _message(found: Problem) -> str:
    if found.fault is Fault.REQUIRED:
        return f"Required value: {found.rule}"
    if found.fault is Fault.FORBIDDEN:
        return f"Forbidden: {found.rule}"
    if found.fault is Fault.NOT_FOUND:
        return f"Not found: {found.value}" + (f": {found.rule}" if found.rule else "")
    value = found.value or '""'
    return f"Invalid value: {value}: {found.rule}"
