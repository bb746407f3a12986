"""Our webhook configurations and admission policies in the cluster (design §4, §6, §8.7; spec 05 §4).

For: `installation`, the command `uninstall`. In: how kube-apiserver reaches us, the CA bundle of our certificate.
Out: `gpustack-worker-mutation`, `gpustack-worker-validation`, two ValidatingAdmissionPolicies with their bindings.
Promises:
- what is absent is created, what somebody edited is written back, a settled cluster is not written; what a newer
  version of ours wrote is left to it, but for the CA bundle, which every replica reads from the same Secret;
- a kind that the cluster does not serve is said once and passed over until this process starts anew;
- removal takes only configurations that lead to our Service; absent is done.
Why they are never left behind: without a server every labelled Pod and every Instance would be refused for good.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from apiserver.route import Route
from apiserver.webhooks import configurations, policies
from kube.client import Client
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.meaning import meaning_differs
from kube.reconciler import Object, Rule
from nodefeature.fields import as_map, as_maps, as_str, at, is_deleting, labels_of, name_of, uid_of
from nodefeature.kinds import (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
    VALIDATING_WEBHOOK_CONFIGURATION,
    Kind,
)

_VERBS = ("get", "create", "update", "delete")
_GROUP = MUTATING_WEBHOOK_CONFIGURATION.group
RBAC = tuple(
    Rule(_GROUP, kind.plural, _VERBS)
    for kind in (
        MUTATING_WEBHOOK_CONFIGURATION,
        VALIDATING_WEBHOOK_CONFIGURATION,
        VALIDATING_ADMISSION_POLICY,
        VALIDATING_ADMISSION_POLICY_BINDING,
    )
)
"""Creation cannot be limited to names."""

NAMES: Mapping[Kind, tuple[str, ...]] = {
    MUTATING_WEBHOOK_CONFIGURATION: (configurations.MUTATION,),
    VALIDATING_WEBHOOK_CONFIGURATION: (configurations.VALIDATION,),
    VALIDATING_ADMISSION_POLICY: (policies.ALLOCATIONS, policies.OWN_NODE),
    VALIDATING_ADMISSION_POLICY_BINDING: (policies.ALLOCATIONS, policies.OWN_NODE),
}
VERSION_LABEL = "app.kubernetes.io/version"
_OURS = ("webhooks", "spec")

log = logging.getLogger(__name__)


def is_newer(have: Object, version: str) -> bool:
    """Say whether an object was written by a later version than `version`."""
    return _numbers(labels_of(have).get(VERSION_LABEL, "")) > _numbers(version)


def next_object(have: Object, want: Object, *, version: str) -> Object | None:
    """Return the object to write, or None when nothing is to change."""
    if is_deleting(have):
        return None
    wanted = _with_bundles(have, want) if is_newer(have, version) else want
    labels = {**labels_of(have), **labels_of(wanted)}
    if labels == labels_of(have) and not any(meaning_differs(have.get(part), wanted.get(part)) for part in _OURS):
        return None
    parts = {part: wanted[part] for part in _OURS if part in wanted}
    return {**have, **parts, "metadata": {**as_map(have.get("metadata")), "labels": labels}}


def leads_to(obj: Object, service: str, namespace: str) -> bool:
    """Say whether a configuration leads to this Service; a policy leads nowhere and is known by its name."""
    if "webhooks" not in obj:
        return True
    places = {
        (as_str(at(hook, "clientConfig", "service", "name")), as_str(at(hook, "clientConfig", "service", "namespace")))
        for hook in as_maps(obj.get("webhooks"))
    }
    return places <= {(service, namespace)}


class WebhookInstaller:
    """Installs, repairs and removes them."""

    def __init__(self, client: Client, *, service: str, namespace: str, version: str) -> None:
        self._client = client
        self._service = service
        self._namespace = namespace
        self._version = version
        self._unserved: set[Kind] = set()
        self._installed: dict[tuple[Kind, str], Object] = {}

    async def install(self, route: Route) -> None:
        """Create what is absent, write back what differs."""
        for kind, want in self._wanted(route):
            self._installed[kind, name_of(want)] = want
            if kind not in self._unserved:
                await self._ensure(kind, want)

    def is_edited(self, kind: Kind, have: Object) -> bool:
        """Say whether an object would be written back; before the first installation nothing is."""
        want = self._installed.get((kind, name_of(have)))
        return want is not None and next_object(have, want, version=self._version) is not None

    async def remove(self) -> None:
        """Delete those that are ours."""
        for kind, names in NAMES.items():
            for name in names:
                await self._remove(kind, name)

    def _wanted(self, route: Route) -> Iterable[tuple[Kind, Object]]:
        for kind, manifest in (*policies.manifests(self._namespace), *configurations.manifests(route)):
            metadata = manifest["metadata"]
            labels = {**metadata["labels"], VERSION_LABEL: self._version}
            yield kind, {**manifest, "metadata": {**metadata, "labels": labels}}

    async def _ensure(self, kind: Kind, want: Object) -> None:
        try:
            have = await self._client.get(kind, name_of(want))
        except NotFound:
            await self._create(kind, want)
            return
        wanted = next_object(have, want, version=self._version)
        if wanted is None:
            return
        try:
            await self._client.update(kind, wanted)
        except Conflict:
            return  # another replica was faster; the next look judges what it wrote
        self._say(logging.INFO, "admission object updated", kind, name_of(want))

    async def _create(self, kind: Kind, want: Object) -> None:
        try:
            await self._client.create(kind, want)
        except AlreadyExists:
            return  # another replica was faster
        except NotFound:
            self._unserved.add(kind)
            reason = "this cluster does not serve the kind; what it guards is not guarded here"
            self._say(logging.WARNING, "admission object not installed", kind, name_of(want), reason=reason)
            return
        self._say(logging.INFO, "admission object created", kind, name_of(want))

    async def _remove(self, kind: Kind, name: str) -> None:
        try:
            have = await self._client.get(kind, name)
            if leads_to(have, self._service, self._namespace):
                await self._client.delete(kind, name, uid=uid_of(have))
                self._say(logging.INFO, "admission object removed", kind, name)
        except (NotFound, Conflict):
            return  # gone, or somebody else's by now

    def _say(self, level: int, what: str, kind: Kind, name: str, *, reason: str = "") -> None:
        why = {"reason": reason} if reason else {}
        log.log(level, what, extra={"kind": kind.kind, "object": name, **why})


def _with_bundles(have: Object, want: Object) -> Object:
    """Return what stands with our CA bundle in every hook."""
    bundles = {at(hook, "clientConfig", "caBundle") for hook in as_maps(want.get("webhooks"))}
    if len(bundles) != 1 or None in bundles:
        return have
    bundle: Any = next(iter(bundles))
    hooks = [
        {**hook, "clientConfig": {**as_map(hook.get("clientConfig")), "caBundle": bundle}}
        for hook in as_maps(have.get("webhooks"))
    ]
    return {**have, "webhooks": hooks}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
