"""The harness's own view of kube-apiserver.

For: the harness, which deploys manifests, and tests, which create objects and wait for what becomes of them. It shares
no line with the product's client on purpose: a test must not ask the code under test what it did.
In: a kubeconfig's credential. Out: raw objects. Promises: every wait has a deadline, follows a watch, and fails with
the object's last states.
"""

from __future__ import annotations

import json
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import yaml

from hack.controlplane.errors import NotReadyError, RequestError
from hack.controlplane.pki import Pair
from nodefeature.fields import as_maps, as_str, at, metadata
from nodefeature.kinds import Kind

Object: TypeAlias = dict[str, Any]

FIELD_MANAGER = "controlplane"
_TIMEOUT_S = 30.0
# The plain loader takes ten seconds for Kueue's CRDs.
_LOADER: type[yaml.CSafeLoader | yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SHOWN = 3000
_KEPT_STATES = 3


class Admin:
    """A small synchronous client, by default of a user in group system:masters."""

    def __init__(self, server: str, *, authority: Path, client: Pair | None = None, token: str = "") -> None:
        context = ssl.create_default_context(cafile=str(authority))
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        headers = {"User-Agent": FIELD_MANAGER, **({"Authorization": f"Bearer {token}"} if token else {})}
        self._http = httpx.Client(base_url=server, verify=context, timeout=_TIMEOUT_S, headers=headers, trust_env=False)
        self._kinds: dict[tuple[str, str], Kind] = {}

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def post(self, path: str, body: object) -> Object:
        """Send one POST to any path, with its query; RequestError carries kube-apiserver's message."""
        return self._send("POST", path, body=body)

    def ready(self) -> bool:
        """Say whether kube-apiserver answers `/readyz` with ok."""
        try:
            return self._http.get("/readyz", timeout=2.0).is_success
        except httpx.TransportError:
            return False

    def version(self) -> str:
        """Return the version the server reports, such as `v1.36.3`."""
        return as_str(self._send("GET", "/version").get("gitVersion"))

    def page(self, kind: Kind, *, limit: int, token: str = "") -> Object:
        """Return one page of a list, with its `metadata.continue`."""
        options = {"limit": str(limit)} | ({"continue": token} if token else {})
        return self._send("GET", path_of(kind), options=options)

    def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object, or None."""
        try:
            return self._send("GET", path_of(kind, name, namespace))
        except RequestError as error:
            if error.code == httpx.codes.NOT_FOUND:
                return None
            raise

    def list(self, kind: Kind, namespace: str = "", *, label_selector: str = "") -> list[Object]:
        """Return all objects of a kind, in one page."""
        options = {"labelSelector": label_selector} if label_selector else {}
        return list(self._send("GET", path_of(kind, "", namespace), options=options).get("items") or [])

    def create(self, obj: Object) -> Object:
        """Create an object of any served kind; a Node keeps the status it is created with."""
        kind = self.kind_of(obj)
        return self._send("POST", path_of(kind, "", as_str(at(obj, "metadata", "namespace"))), body=obj)

    def replace(self, obj: Object, *, subresource: str = "") -> Object:
        """Update an object, or one of its subresources."""
        return self._send("PUT", self._path(obj, subresource), body=obj)

    def apply(self, obj: Object) -> Object:
        """Apply an object of any served kind, server-side, taking fields over."""
        return self._send(
            "PATCH",
            self._path(obj),
            body=obj,
            content_type="application/apply-patch+yaml",
            options={"fieldManager": FIELD_MANAGER, "force": "true"},
        )

    def patch(self, kind: Kind, name: str, patch: object, namespace: str = "", *, subresource: str = "") -> Object:
        """Send a merge patch."""
        path = path_of(kind, name, namespace, subresource)
        return self._send("PATCH", path, body=patch, content_type="application/merge-patch+json")

    def delete(
        self, kind: Kind, name: str, namespace: str = "", *, grace_s: int | None = None, propagation: str = ""
    ) -> None:
        """Ask for an object's deletion; an absent one is fine. `propagation`: what becomes of those it owns."""
        options = {} if grace_s is None else {"gracePeriodSeconds": str(grace_s)}
        options |= {"propagationPolicy": propagation} if propagation else {}
        try:
            self._send("DELETE", path_of(kind, name, namespace), options=options)
        except RequestError as error:
            if error.code != httpx.codes.NOT_FOUND:
                raise

    def watch(
        self, kind: Kind, namespace: str = "", *, since: str = "", name: str = "", timeout_s: float = 300.0
    ) -> Iterator[tuple[str, Object]]:
        """Yield (type, object) of one watch until the server or the timeout ends it."""
        options = {"watch": "true", "timeoutSeconds": str(max(1, int(timeout_s)))}
        options |= {"resourceVersion": since} if since else {}
        options |= {"fieldSelector": f"metadata.name={name}"} if name else {}
        limits = httpx.Timeout(_TIMEOUT_S, read=timeout_s + 5)
        patience = _Patience()
        while True:
            with self._http.stream("GET", path_of(kind, "", namespace), params=options, timeout=limits) as answer:
                if answer.is_error:
                    answer.read()
                    if patience.bears(answer):
                        continue
                    raise _refusal(answer)
                for line in answer.iter_lines():
                    event = json.loads(line)
                    yield event["type"], event["object"]
                return

    def wait(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        until: Callable[[Object | None], object],
        timeout_s: float = 60.0,
        what: str = "",
    ) -> Object | None:
        """Follow one object until `until` is true of it (None: absent); NotReadyError shows its last states."""
        began = time.monotonic()
        seen: deque[tuple[float, Object | None]] = deque(maxlen=_KEPT_STATES)
        trouble = "the server did not answer"
        while (left := began + timeout_s - time.monotonic()) > 0:
            try:
                for obj in self._states(kind, name, namespace, timeout_s=left):
                    if not seen or seen[-1][1] != obj:
                        seen.append((time.monotonic() - began, obj))
                    if until(obj):
                        return obj
            except (httpx.TransportError, RequestError) as error:
                if isinstance(error, RequestError) and error.code < httpx.codes.INTERNAL_SERVER_ERROR:
                    raise
                trouble = str(error) or trouble
                time.sleep(0.1)  # the server, or its store, is restarting; the deadline still holds
        where = f"{namespace}/{name}" if namespace else name
        states = "\n".join(f"after {at_s:.1f} s: {_shown(obj)}" for at_s, obj in seen) or trouble
        raise NotReadyError(
            f"{kind} {where}: not {what or 'as awaited'} within {timeout_s:.0f} s; its last states:\n{states}"
        )

    def _states(self, kind: Kind, name: str, namespace: str, *, timeout_s: float) -> Iterator[Object | None]:
        """Yield an object's present state, then each that follows, until the watch ends."""
        now = self.get(kind, name, namespace)
        yield now
        since = as_str(at(now, "metadata", "resourceVersion"))
        for change, obj in self.watch(kind, namespace, since=since, name=name, timeout_s=timeout_s):
            if change == "ERROR":
                return
            yield None if change == "DELETED" else obj

    def kind_of(self, obj: Mapping[str, Any]) -> Kind:
        """Return where the objects of a manifest's kind live, as discovery tells."""
        api_version, kind = as_str(obj.get("apiVersion")), as_str(obj.get("kind"))
        known = self._kinds.get((api_version, kind))
        if known is None:
            known = self._kinds[api_version, kind] = self._discover(api_version, kind)
        return known

    def _discover(self, api_version: str, kind: str) -> Kind:
        group, _, version = api_version.rpartition("/")
        root = f"/apis/{api_version}" if group else f"/api/{api_version}"
        for entry in as_maps(self._send("GET", root).get("resources")):
            if entry.get("kind") == kind and "/" not in entry["name"]:
                return Kind(group, version, entry["name"], kind, namespaced=bool(entry["namespaced"]))
        raise RequestError(f"{api_version} {kind}: not served; are its CRDs applied?", code=httpx.codes.NOT_FOUND)

    def _path(self, obj: Object, subresource: str = "") -> str:
        meta = metadata(obj)
        return path_of(self.kind_of(obj), as_str(meta.get("name")), as_str(meta.get("namespace")), subresource)

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = "application/json",
        options: Mapping[str, str] | None = None,
    ) -> Object:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if content is None else {"Content-Type": content_type}
        patience = _Patience()
        while True:
            answer = self._http.request(method, path, content=content, headers=headers, params=options or None)
            if not patience.bears(answer):
                break
        if answer.is_error:
            raise _refusal(answer)
        decoded = answer.json()
        return decoded if isinstance(decoded, dict) else {}


def path_of(kind: Kind, name: str = "", namespace: str = "", subresource: str = "") -> str:
    """Return the URL path of an object, or of a collection when `name` is empty."""
    parts = ["/apis", kind.group, kind.version] if kind.group else ["/api", kind.version]
    if namespace and kind.namespaced:
        parts += ["namespaces", namespace]
    return "/".join([*parts, *(part for part in (kind.plural, name, subresource) if part)])


def load_manifests(text: str) -> list[Object]:
    """Return the objects of a YAML stream, leaving empty documents out."""
    return [document for document in yaml.load_all(text, Loader=_LOADER) if isinstance(document, dict)]


def _shown(obj: Object | None) -> str:
    if obj is None:
        return "absent"
    meta = {key: value for key, value in metadata(obj).items() if key != "managedFields"}
    return json.dumps({**obj, "metadata": meta}, indent=1)[:_SHOWN]


class _Patience:
    """How long one request is sent again because the server asks for it: a definition's storage is being set up."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _TIMEOUT_S

    def bears(self, answer: httpx.Response) -> bool:
        """Wait as long as a 429 asks for; False when the answer is none, or has come for too long."""
        if answer.status_code != httpx.codes.TOO_MANY_REQUESTS or time.monotonic() > self._until:
            return False
        said = answer.headers.get("Retry-After", "")
        time.sleep(min(float(said), 5.0) if said.isdigit() else 1.0)
        return True


def _refusal(answer: httpx.Response) -> RequestError:
    try:
        status = answer.json()
    except ValueError:
        status = {}
    message = as_str(at(status, "message")) or answer.text[:256]
    request = answer.request
    return RequestError(
        f"{request.method} {request.url.path}: {answer.status_code}: {message}",
        code=answer.status_code,
        reason=as_str(at(status, "reason")),
    )
