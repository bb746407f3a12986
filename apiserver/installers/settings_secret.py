"""The Secret that holds the settings (spec 03 A5).

For: `installation`. In: the declarations, seeds from the environment. Out: a Secret with a key for each setting.
Promises: an absent Secret or key is added with its seed, else its default; a key that is there is never touched; a
settled Secret is not written.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping

from api.settings import DECLARATIONS, SECRET_NAME
from kube.client import Client
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.reconciler import Rule
from nodefeature.fields import as_map
from nodefeature.kinds import SECRET
from nodefeature.labels import SYSTEM_NAMESPACE

RBAC = (Rule(SECRET.group, SECRET.plural, ("get", "create", "patch"), SYSTEM_NAMESPACE),)

_ATTEMPTS = 5

log = logging.getLogger(__name__)


class SettingsInstaller:
    """Keeps every setting present."""

    def __init__(self, client: Client, *, namespace: str, seeds: Mapping[str, str]) -> None:
        self._client = client
        self._namespace = namespace
        values = {each.name: seeds.get(each.name, each.default) for each in DECLARATIONS}
        self._wanted = {name: base64.b64encode(text.encode()).decode() for name, text in values.items()}

    async def ensure(self) -> None:
        """Add what is absent."""
        for attempt in range(_ATTEMPTS):
            try:
                await self._ensure_once()
            except (AlreadyExists, Conflict):
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return

    async def _ensure_once(self) -> None:
        try:
            secret = await self._client.get(SECRET, SECRET_NAME, self._namespace)
        except NotFound:
            metadata = {"name": SECRET_NAME, "namespace": self._namespace}
            await self._client.create(SECRET, {"metadata": metadata, "type": "Opaque", "data": self._wanted})
            self._say("settings created")
            return
        data = as_map(secret.get("data"))
        absent = {name: value for name, value in self._wanted.items() if name not in data}
        if absent:
            # The version makes it conditional: a setting that somebody adds meanwhile is not overwritten.
            version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
            await self._client.patch(SECRET, SECRET_NAME, {"metadata": version, "data": absent}, self._namespace)
            self._say("settings added")

    def _say(self, what: str) -> None:
        log.info(what, extra={"kind": SECRET.kind, "object": f"{self._namespace}/{SECRET_NAME}"})
