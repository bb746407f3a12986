"""Admission webhooks: other servers that change or refuse what is written.

For: `objects`, before a write of a whole object is stored. In: stored configurations. Out: the object as the webhooks
left it and their warnings, or a Refusal.
Promises: as kube-apiserver does it: configurations in the order of their names, mutating before validating; a server
must present a certificate of `caBundle` for `<service>.<namespace>.svc`; `failurePolicy` decides when it cannot be
asked; a dry run is asked as one. Of CEL exactly the conditions of `CONDITIONS` are known; whatever else a configuration
asks for refuses it (422), so that nothing is matched approximately.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from apiserver.rest import status
from apiserver.rest.negotiation import encode
from apiserver.rest.patch import Patch, PatchType
from apiserver.rest.status import Cause, Refusal
from apiserver.rest.storage import Call
from hack.devcluster.kinds import KindSpec
from hack.devcluster.store import Entry, Object, Shelf, Store
from hack.devcluster.upstream import Endpoint, UpstreamError, exchange
from nodefeature.fields import as_int, as_list, as_map, as_maps, as_str, at, labels_of
from nodefeature.kinds import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION, Kind

Condition = Callable[[Mapping[str, Any], Mapping[str, Any] | None], bool]

CONDITIONS: Mapping[str, Condition] = {
    "!has(object.metadata.deletionTimestamp)": lambda new, _old: "deletionTimestamp" not in new["metadata"],
    "has(object.spec.queueName) && object.spec.queueName.startsWith('gpustack-fnv64-')": lambda new, _old: as_str(
        at(new, "spec", "queueName")
    ).startswith("gpustack-fnv64-"),
    "oldObject == null || !has(oldObject.status) || !has(oldObject.status.admission)": lambda _new, old: (
        at(old, "status", "admission") is None
    ),
}
_OPERATORS: Mapping[str, Callable[[str | None, list[Any]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}


@dataclass(frozen=True, slots=True)
class Admitted:
    """What the webhooks made of a write."""

    object: Object
    warnings: tuple[str, ...] = ()


def check_configuration(obj: Object) -> list[Cause]:
    """Return what is wrong with a configuration, or what the devcluster does not do."""
    causes: list[Cause] = []

    def need(holds: bool, path: str, text: str) -> None:
        if not holds:
            causes.append(Cause("FieldValueForbidden", f"Forbidden: the devcluster {text}", path))

    for index, hook in enumerate(as_maps(obj.get("webhooks"))):
        path = f"webhooks[{index}]"
        need(bool(as_str(at(hook, "clientConfig", "service", "name"))), f"{path}.clientConfig", "asks Services only")
        need(_is_base64(at(hook, "clientConfig", "caBundle")), f"{path}.clientConfig.caBundle", "verifies every server")
        need("v1" in as_list(hook.get("admissionReviewVersions")), f"{path}.admissionReviewVersions", "speaks v1 only")
        need(hook.get("sideEffects") in ("None", "NoneOnDryRun"), f"{path}.sideEffects", "asks for dry runs too")
        need(hook.get("reinvocationPolicy") in (None, "Never"), f"{path}.reinvocationPolicy", "asks once")
        for condition in as_maps(hook.get("matchConditions")):
            known = as_str(condition.get("expression")) in CONDITIONS
            need(known, f"{path}.matchConditions", f"does not know the expression {condition.get('expression')!r}")
        for selector in ("namespaceSelector", "objectSelector"):
            for term in as_maps(at(hook, selector, "matchExpressions")):
                need(term.get("operator") in _OPERATORS, f"{path}.{selector}", "knows the four set operators")
        for rule in as_maps(hook.get("rules")):
            operations = set(as_list(rule.get("operations")))
            need(operations <= {"CREATE", "UPDATE"}, f"{path}.rules.operations", "asks about CREATE and UPDATE")
            whole = not any("/" in as_str(resource) for resource in as_list(rule.get("resources")))
            need(whole, f"{path}.rules.resources", "asks about whole objects")
    return causes


CONFIGURATIONS = tuple(
    KindSpec(kind, generation=True, check=check_configuration)
    for kind in (MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
)


class Admission:
    """Asks the webhooks of the stored configurations."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._mutating = store.shelf(MUTATING_WEBHOOK_CONFIGURATION.group_resource)
        self._validating = store.shelf(VALIDATING_WEBHOOK_CONFIGURATION.group_resource)
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._known: dict[str, tuple[list[Entry], list[Mapping[str, Any]]]] = {}
        """By resource: configurations as they were last read, and their webhooks."""

    def concerns(self, kind: Kind, call: Call) -> bool:
        """Say whether any webhook might want to see a write of this kind."""
        if call.info.subresource or not (self._mutating.entries or self._validating.entries):
            return False
        return any(_names(hook, kind) for shelf in (self._mutating, self._validating) for hook in self._hooks(shelf))

    async def review(self, kind: Kind, call: Call, new: Object, old: Object | None, *, dry_run: bool) -> Admitted:
        """Return what becomes of a write; raises Refusal."""
        warnings: list[str] = []
        for shelf in (self._mutating, self._validating):
            for hook in self._hooks(shelf):
                if not self._matches(hook, kind, new, old):
                    continue
                answer = await self._ask(hook, _review(kind, call, new, old, dry_run=dry_run))
                warnings += [as_str(text) for text in as_list(answer.get("warnings"))]
                if shelf is self._mutating and answer.get("patch"):
                    operations = orjson.loads(base64.b64decode(answer["patch"]))
                    new = Patch(PatchType.JSON, operations).apply(new)
        return Admitted(new, tuple(warnings))

    def _hooks(self, shelf: Shelf) -> list[Mapping[str, Any]]:
        """Return the webhooks of all configurations, which are read once."""
        entries = sorted(shelf.entries.values(), key=lambda entry: entry.name)
        known = self._known.get(shelf.resource)
        if known is None or known[0] != entries:  # an entry never changes
            hooks = [hook for entry in entries for hook in as_maps(entry.load().get("webhooks"))]
            known = self._known[shelf.resource] = (entries, hooks)
        return known[1]

    def _matches(self, hook: Mapping[str, Any], kind: Kind, new: Object, old: Object | None) -> bool:
        operation = "CREATE" if old is None else "UPDATE"
        if not _names(hook, kind, operation):
            return False
        namespace = self._store.shelf("namespaces").entries.get(("", as_str(at(new, "metadata", "namespace"))))
        if kind.namespaced and not _selects(hook.get("namespaceSelector"), namespace.labels if namespace else {}):
            return False
        if not any(_selects(hook.get("objectSelector"), labels_of(obj)) for obj in (new, old) if obj is not None):
            return False
        conditions = as_maps(hook.get("matchConditions"))
        return all(CONDITIONS[condition["expression"]](new, old) for condition in conditions)

    async def _ask(self, hook: Mapping[str, Any], review: Object) -> Mapping[str, Any]:
        name = as_str(hook.get("name"))
        try:
            answer = await self._exchange(hook, review)
        except (UpstreamError, OSError, TimeoutError, ValueError) as error:
            if hook.get("failurePolicy") == "Ignore":
                return {}
            text = f"failed calling webhook {name!r}: failed to call webhook: {error or type(error).__name__}"
            raise status.internal_error(text) from error
        if answer.get("allowed") is True:
            return answer
        said = as_map(answer.get("status"))
        text = f'admission webhook "{name}" denied the request'
        text += f": {said['message']}" if said.get("message") else " without explanation"
        code = max(as_int(said.get("code")), 400)
        raise Refusal(code, as_str(said.get("reason")), text, details=dict(as_map(said.get("details"))))

    async def _exchange(self, hook: Mapping[str, Any], review: Object) -> Mapping[str, Any]:
        service = as_map(at(hook, "clientConfig", "service"))
        seconds = as_int(hook.get("timeoutSeconds")) or 10
        endpoint = self._endpoint(service, as_str(at(hook, "clientConfig", "caBundle")))
        target = f"{as_str(service.get('path'))}?timeout={seconds}s".encode()
        headers = [(b"content-type", b"application/json"), (b"accept", b"application/json")]
        async with (
            asyncio.timeout(seconds),
            exchange(endpoint, "POST", target, headers=headers, body=encode(review), deadline_s=seconds) as answer,
        ):
            body = b"".join([piece async for piece in answer.pieces()])
        if answer.code != 200:
            raise UpstreamError(f"{target.decode()} answered {answer.code}: {body[:256].decode('utf-8', 'replace')}")
        response = as_map(at(orjson.loads(body), "response"))
        if response.get("uid") != review["request"]["uid"]:
            raise UpstreamError("expected response.uid to match request.uid")
        return response

    def _endpoint(self, service: Mapping[str, Any], bundle: str) -> Endpoint:
        namespace, name = as_str(service.get("namespace")), as_str(service.get("name"))
        entry = self._store.shelf("services").entries.get((namespace, name))
        host = as_str(at(entry.load(), "spec", "externalName")) if entry is not None else ""
        if not host:
            raise UpstreamError(f"service {namespace}/{name} does not exist or is not of type ExternalName")
        context = self._contexts.get(bundle)
        if context is None:
            self._contexts.clear()
            context = self._contexts[bundle] = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
        return Endpoint(host, as_int(service.get("port")) or 443, f"{name}.{namespace}.svc", context)


def _names(hook: Mapping[str, Any], kind: Kind, operation: str = "") -> bool:
    return any(
        kind.group in as_list(rule.get("apiGroups"))
        and kind.version in as_list(rule.get("apiVersions"))
        and kind.plural in as_list(rule.get("resources"))
        and (not operation or operation in as_list(rule.get("operations")))
        for rule in as_maps(hook.get("rules"))
    )


def _selects(selector: object, labels: Mapping[str, str]) -> bool:
    pairs = as_map(at(selector, "matchLabels"))
    terms = as_maps(at(selector, "matchExpressions"))
    return all(labels.get(key) == value for key, value in pairs.items()) and all(
        _OPERATORS[term["operator"]](labels.get(as_str(term.get("key"))), as_list(term.get("values"))) for term in terms
    )


def _review(kind: Kind, call: Call, new: Object, old: Object | None, *, dry_run: bool) -> Object:
    kinds = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    resources = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    metadata = as_map(new.get("metadata"))
    request = {
        "uid": str(uuid.uuid4()),
        "kind": kinds,
        "resource": resources,
        "requestKind": kinds,
        "requestResource": resources,
        "name": metadata.get("name"),
        **({"namespace": metadata.get("namespace")} if kind.namespaced else {}),
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": call.user.name, "groups": list(call.user.groups)},
        "object": new,
        "oldObject": old,
        "dryRun": dry_run,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions" if old is None else "UpdateOptions"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _is_base64(value: object) -> bool:
    try:
        return bool(base64.b64decode(as_str(value), validate=True))
    except binascii.Error:
        return False
