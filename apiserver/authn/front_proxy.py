"""Keeps what the cluster says about callers (design §6, case B022).

For: `authenticator`, which reads `trust`; the TLS listener, which must ask for certificates of these CAs; `/readyz`.
In: ConfigMap `kube-system/extension-apiserver-authentication`, watched. Out: the last good `Trust`.
Promises: until a first good reading nobody is trusted and `fault` says why; a ConfigMap that is bad or gone keeps the
last good trust and is logged once; a change needs no restart and ends no watch.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from apiserver.authn.request_header import NOBODY, Trust, read_trust
from kube.client import Client
from kube.clock import Clock
from kube.informer import Informer
from kube.reconciler import Rule, Selection
from kube.store import Change, Store
from nodefeature.fields import as_map
from nodefeature.kinds import CONFIG_MAP

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
RBAC = (Rule(CONFIG_MAP.group, CONFIG_MAP.plural, ("get", "list", "watch"), NAMESPACE),)
"""Of this one object; the cluster's own Role `extension-apiserver-authentication-reader` grants the same."""

SELECTION = Selection(namespace=NAMESPACE, field_selector=f"metadata.name={NAME}")

log = logging.getLogger(__name__)


class FrontProxyTrust:
    """The trust of this moment. `on_change` hears of every new one."""

    def __init__(
        self, client: Client, *, clock: Clock, rng: random.Random, on_change: Callable[[Trust], None] = lambda _: None
    ) -> None:
        self.trust = NOBODY
        self._on_change = on_change
        self._known = False
        self._complaint = ""
        self._informer = Informer(client, Store(CONFIG_MAP), self.observe, selection=SELECTION, clock=clock, rng=rng)

    async def run(self) -> None:
        """Follow the ConfigMap until cancelled."""
        await self._informer.run()

    def current(self) -> Trust:
        """Return the trust of this moment."""
        return self.trust

    def fault(self) -> str:
        """Say why nobody can be trusted yet; empty once a good ConfigMap was read."""
        if self._known:
            return ""
        if self._complaint:
            return self._complaint
        state = "does not exist" if self._informer.synced.is_set() else "has not been read"
        return f"ConfigMap {NAMESPACE}/{NAME} {state}"

    def observe(self, change: Change) -> None:
        """Take a change of the ConfigMap."""
        if change.new is None:
            self._complain("it was deleted")
            return
        trust, problems = read_trust(as_map(change.new.get("data")))
        if trust is None:
            self._complain("; ".join(str(problem) for problem in problems))
            return
        self._complaint = ""
        self._known = True
        if trust != self.trust:
            self.trust = trust
            log.info("trust in callers changed", extra={"kind": "ConfigMap", "object": f"{NAMESPACE}/{NAME}"})
            self._on_change(trust)

    def _complain(self, why: str) -> None:
        self._complaint = f"ConfigMap {NAMESPACE}/{NAME} cannot be used: {why}"
        kept = "the last good trust stays" if self._known else "nobody is trusted"
        extra = {"kind": "ConfigMap", "object": f"{NAMESPACE}/{NAME}", "reason": f"{why}; {kept}"}
        log.error("trust in callers not readable", extra=extra)
