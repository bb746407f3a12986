"""Our APIServices: what makes the aggregator send people's requests to us (spec 03 A1, B1, cases B021, B057).

For: `installation`, the command `uninstall`. In: the Service that leads here, the CA bundle of our certificate.
Out: `v1.worker.gpustack.ai` and `v1.gpustack.ai`.
Promises: an APIService that leads to another Service is left alone and named; one that leads here gets this version's
priorities and port at a start, later only its CA bundle, which every replica reads from the same Secret; removal takes
only what leads to our Service, and absent is done.
Why it is never left behind: a dead APIService holds up the deletion of every namespace of the cluster.
"""

from __future__ import annotations

import logging
from typing import Any

from apiserver.route import Route
from kube.client import Client
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.meaning import asks_change
from kube.reconciler import Object, Rule
from nodefeature.fields import as_map, as_str, at, name_of, uid_of
from nodefeature.kinds import API_SERVICE

RBAC = (Rule(API_SERVICE.group, API_SERVICE.plural, ("get", "create", "update", "delete")),)
"""Creation cannot be limited to names."""

GROUPS = ("worker.gpustack.ai", "gpustack.ai")
VERSION = "v1"
GROUP_PRIORITY = 1100
"""Above the 1000 of groups that CRDs make: groups of equal priority are put in order by their names."""
VERSION_PRIORITY = 100
"""That of CRD versions; then the order of Kubernetes decides and v1 is preferred. A lower one would prefer v1alpha1."""

log = logging.getLogger(__name__)


def manifest(group: str, route: Route) -> Object:
    """Return the APIService of a group."""
    trust: dict[str, Any] = {"insecureSkipTLSVerify": True}
    if route.bundle:
        trust = {"caBundle": route.ca_bundle}
    return {
        "metadata": {
            "name": f"{VERSION}.{group}",
            "labels": {"app.kubernetes.io/part-of": "gpustack-operator"},
        },
        "spec": {
            "group": group,
            "version": VERSION,
            "groupPriorityMinimum": GROUP_PRIORITY,
            "versionPriority": VERSION_PRIORITY,
            "service": {"name": route.service, "namespace": route.namespace, "port": route.port},
            **trust,
        },
    }


def leads_to(obj: Object, service: str, namespace: str) -> bool:
    """Say whether an APIService leads to this Service."""
    return (as_str(at(obj, "spec", "service", "name")), as_str(at(obj, "spec", "service", "namespace"))) == (
        service,
        namespace,
    )


def next_api_service(have: Object, want: Object, *, bundle_only: bool) -> Object | None:
    """Return the object to write, or None when nothing is to change. `have` leads to our Service."""
    spec = as_map(have.get("spec"))
    trust = {key: as_map(want["spec"]).get(key) for key in _TRUST}
    wanted = {**spec, **trust} if bundle_only else {**spec, **want["spec"], **trust}
    wanted = {key: value for key, value in wanted.items() if value is not None}
    dropped = any(spec.get(key) and key not in wanted for key in _TRUST)
    if not dropped and not asks_change(spec, wanted):
        return None
    return {**have, "spec": wanted}


_TRUST = ("caBundle", "insecureSkipTLSVerify")


class ApiServiceInstaller:
    """Installs, repairs and removes our APIServices."""

    def __init__(self, client: Client, *, service: str, namespace: str) -> None:
        self._client = client
        self._service = service
        self._namespace = namespace

    async def install(self, route: Route) -> None:
        """Create them, or bring those that lead here up to date."""
        for group in GROUPS:
            await self._ensure(manifest(group, route), bundle_only=False)

    async def repair(self, route: Route) -> None:
        """Create what is absent; renew CA bundles."""
        for group in GROUPS:
            await self._ensure(manifest(group, route), bundle_only=True)

    async def remove(self) -> None:
        """Delete those that lead here."""
        for group in GROUPS:
            await self._remove(f"{VERSION}.{group}")

    async def _ensure(self, want: Object, *, bundle_only: bool) -> None:
        name = name_of(want)
        try:
            have = await self._client.get(API_SERVICE, name)
        except NotFound:
            await self._create(want)
            return
        if at(have, "metadata", "deletionTimestamp"):
            return
        if not leads_to(have, self._service, self._namespace):
            service = as_map(at(have, "spec", "service"))
            where = f"{service.get('namespace')}/{service.get('name')}" if service else "kube-apiserver itself"
            self._say(logging.WARNING, "APIService of somebody else", name, reason=f"it leads to {where}")
            return
        wanted = next_api_service(have, want, bundle_only=bundle_only)
        if wanted is not None:
            await self._client.update(API_SERVICE, wanted)
            self._say(logging.INFO, "APIService updated", name)

    async def _create(self, want: Object) -> None:
        try:
            await self._client.create(API_SERVICE, want)
        except AlreadyExists:
            return  # another replica was faster
        self._say(logging.INFO, "APIService created", name_of(want))

    async def _remove(self, name: str) -> None:
        try:
            have = await self._client.get(API_SERVICE, name)
            if leads_to(have, self._service, self._namespace):
                await self._client.delete(API_SERVICE, name, uid=uid_of(have))
                self._say(logging.INFO, "APIService removed", name)
        except (NotFound, Conflict):
            return  # gone, or somebody else's by now

    def _say(self, level: int, what: str, name: str, *, reason: str = "") -> None:
        why = {"reason": reason} if reason else {}
        log.log(level, what, extra={"kind": API_SERVICE.kind, "object": name, **why})
