"""Our CustomResourceDefinitions in the cluster (case B057).

For: `installation`. In: the manifests of this version. Out: CRDs that serve them.
Promises: a start creates what is absent and brings what is old up to date, when the meaning differs and never
otherwise; afterwards only absence is repaired, so that an old replica never pushes its specification back during a
rolling update; `spec.conversion` is somebody else's; a CRD that is being deleted is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from kube.client import Client
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.meaning import meaning_differs
from kube.reconciler import Object, Rule
from nodefeature.fields import as_map, at, name_of
from nodefeature.kinds import CUSTOM_RESOURCE_DEFINITION as CRD

RBAC = (Rule(CRD.group, CRD.plural, ("get", "create", "update")),)
"""Creation cannot be limited to names."""

_FOREIGN = "conversion"
_ATTEMPTS = 5

log = logging.getLogger(__name__)


class CrdInstaller:
    """Installs and repairs `manifests`."""

    def __init__(self, client: Client, manifests: Sequence[Object]) -> None:
        self._client = client
        self._manifests = tuple(manifests)

    async def install(self) -> None:
        """Create or update every CRD."""
        for manifest in self._manifests:
            await self._install_one(manifest)

    async def repair(self) -> None:
        """Create what is absent."""
        for manifest in self._manifests:
            try:
                await self._client.get(CRD, name_of(manifest))
            except NotFound:
                await self._create(manifest)

    async def _install_one(self, manifest: Object) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                have = await self._client.get(CRD, name_of(manifest))
            except NotFound:
                await self._create(manifest)
                return
            wanted = next_crd(have, manifest)
            if wanted is None:
                return
            try:
                await self._client.update(CRD, wanted)
            except Conflict:
                if attempt + 1 == _ATTEMPTS:
                    raise
                continue
            log.info("CRD updated", extra={"kind": CRD.kind, "object": name_of(manifest)})
            return

    async def _create(self, manifest: Object) -> None:
        try:
            await self._client.create(CRD, dict(manifest))
        except AlreadyExists:
            return  # another replica was faster
        log.info("CRD created", extra={"kind": CRD.kind, "object": name_of(manifest)})


def next_crd(have: Object, want: Object) -> Object | None:
    """Return the object to write, or None when nothing is to change."""
    if at(have, "metadata", "deletionTimestamp"):
        log.warning("CRD is being deleted", extra={"kind": CRD.kind, "object": name_of(have)})
        return None
    if not meaning_differs(_ours(have), _ours(want)):
        return None
    kept = {key: value for key, value in as_map(have.get("spec")).items() if key == _FOREIGN}
    return {**have, "spec": {**want["spec"], **kept}}


def _ours(crd: Object) -> dict[str, Any]:
    return {key: value for key, value in as_map(crd.get("spec")).items() if key != _FOREIGN}
