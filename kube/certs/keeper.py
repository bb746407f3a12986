"""Shares one set of certificates among replicas by a Secret, and keeps it fresh.

For: servers of ours. In: a client, the Secret's place, the names to serve. Out: the current `Certificates`.
Promises:
- of replicas that start together one creates the Secret, the others read the winner's;
- a change is written against the version it was decided on; who loses reads again;
- an unreachable API server keeps the last certificates in use.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from kube.certs.rotation import Certificates, first, from_data, next_step
from kube.client import Client
from kube.clock import Clock
from kube.errors import AlreadyExists, Conflict, NotFound, OperatorError
from kube.reconciler import Object, Rule
from nodefeature.fields import as_map
from nodefeature.kinds import SECRET

CHECK_S = 300.0
"""How old a look at the Secret may be; far below `rotation.SPREAD`."""
RETRY_S = 5.0
"""After a look that failed: a server that starts has nothing to show yet."""

RBAC = (Rule("", "secrets", ("get", "create", "update")),)
"""In the Secret's namespace."""

log = logging.getLogger(__name__)


class CertificateKeeper:
    """Keeps the certificates of one server."""

    def __init__(
        self, client: Client, *, name: str, namespace: str, names: tuple[str, ...], clock: Clock, rng: random.Random
    ) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._names = names
        self._clock = clock
        self._rng = rng
        self._jitter = rng.random()
        self._last: Certificates | None = None

    async def ensure(self) -> Certificates:
        """Return what the Secret holds, after any step that is due now."""
        while True:
            try:
                self._last = await self._ensure_once()
                return self._last
            except (Conflict, AlreadyExists):
                await self._clock.sleep(self._rng.uniform(0.05, 0.5))  # another replica was faster: read what it wrote

    async def run(self, on_change: Callable[[Certificates], None]) -> None:
        """Look again for ever; report every change."""
        last: Certificates | None = None
        while True:
            wait_s = RETRY_S
            try:
                found = await self.ensure()
            except OperatorError as error:
                log.warning("certificates not checked", extra={"object": self._place(), "reason": str(error)})
            else:
                if found != last:
                    on_change(found)
                last = found
                wait_s = CHECK_S
            await self._clock.sleep(wait_s * self._rng.uniform(0.8, 1.2))

    async def _ensure_once(self) -> Certificates:
        now = self._clock.time()
        try:
            secret = await self._client.get(SECRET, self._name, self._namespace)
        except NotFound:
            made = first(self._names, now, lost=self._last)
            await self._client.create(SECRET, self._secret(made))
            log.info("certificates created", extra={"object": self._place()})
            return made
        have = from_data(as_map(secret.get("data")))
        due = next_step(have, self._names, now, self._jitter) if have is not None else None
        if have is not None and due is None:
            return have
        made = due or first(self._names, now, lost=self._last)
        await self._client.update(SECRET, {**secret, "data": made.to_data()})
        log.info(
            "certificates changed", extra={"object": self._place(), "reason": "unreadable" if have is None else "due"}
        )
        return made

    def _secret(self, made: Certificates) -> Object:
        metadata = {"name": self._name, "namespace": self._namespace}
        return {"metadata": metadata, "type": "Opaque", "data": made.to_data()}

    def _place(self) -> str:
        return f"{self._namespace}/{self._name}"
