"""What is in the cluster because of us, from the first start to the end of our namespace (design §4).

For: `apiserver.process`. In: the installers, the state of the listener. Out: a cluster that has what we need and keeps
it, until our namespace goes.
The order: CRDs and settings -> (the listener serves) -> a probe of the listener -> Service, APIServices and webhooks ->
absence repaired every 30 s, edits of webhooks at once. One step's failure does not hold up another's repair.
Promises:
- a server that cannot be reached, or refuses, is asked again with pauses; nothing here ends the process;
- APIServices and webhooks exist only once a listener answered, and go at the moment our namespace begins to go:
  afterwards our account may be gone before the last Pod is, and nobody could take them away;
- after that nothing is repaired any more.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from apiserver.installers.api_services import ApiServiceInstaller
from apiserver.installers.crds import CrdInstaller
from apiserver.installers.edits import Edits
from apiserver.installers.outside_service import OutsideService
from apiserver.installers.settings_secret import SettingsInstaller
from apiserver.installers.webhooks import WebhookInstaller
from apiserver.route import Route
from kube.client import Client
from kube.clock import Clock
from kube.errors import Forbidden, NotFound, OperatorError
from kube.informer import Informer
from kube.reconciler import Rule, Selection
from kube.store import Change, Store
from nodefeature.fields import at
from nodefeature.kinds import NAMESPACE

RBAC = (Rule(NAMESPACE.group, NAMESPACE.plural, ("get", "list", "watch")),)
"""Of our own namespace."""

REPAIR_S = 30.0
FIRST_PAUSE_S, MOST_PAUSE_S = 0.5, 15.0

log = logging.getLogger(__name__)

Step = tuple[str, Callable[[], Awaitable[None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installers:
    """Everything that is installed. `outside` is set for a server outside its cluster."""

    crds: CrdInstaller
    settings: SettingsInstaller
    api_services: ApiServiceInstaller
    webhooks: WebhookInstaller
    outside: OutsideService | None = None


class Installation:
    """Runs the installers."""

    def __init__(self, installers: Installers, client: Client, *, namespace: str, clock: Clock, rng: random.Random):
        self._installers = installers
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._rng = rng
        self._going = False
        self._wake = asyncio.Event()
        self._complaints: dict[str, str] = {}
        self.prepared = False
        self.registered = False
        self._informer = Informer(
            client,
            Store(NAMESPACE),
            self._observe,
            selection=Selection(field_selector=f"metadata.name={namespace}"),
            clock=clock,
            rng=rng,
        )
        self._edits = Edits(client, installers.webhooks.is_edited, self.look_again, clock=clock, rng=rng)

    @property
    def going(self) -> bool:
        """Say whether our namespace is being deleted, or is gone."""
        return self._going

    async def follow_namespace(self) -> None:
        """Notice the end of our namespace at once. Runs until cancelled."""
        await self._informer.run()

    async def follow_webhooks(self) -> None:
        """Notice edits of our webhooks at once. Runs until cancelled."""
        await self._edits.run()

    async def prepare(self) -> None:
        """Install what must be there before anybody is served; returns when it is."""
        await self._insist([("CRDs", self._installers.crds.install), ("settings", self._installers.settings.ensure)])
        self.prepared = True

    async def register(self, probe: Callable[[], Awaitable[None]], route: Callable[[], Route]) -> None:
        """Lead the aggregator and admission here once the listener answers."""
        outside = self._installers.outside

        async def api_services() -> None:
            await self._installers.api_services.install(route())

        async def webhooks() -> None:
            await self._installers.webhooks.install(route())

        await self._insist([("listener", probe)])
        await self._insist([("Service", outside.ensure)] if outside is not None else [])
        await self._insist([("APIServices", api_services), ("webhooks", webhooks)])
        self.registered = True

    def look_again(self) -> None:
        """Let `repair` look now: a CA bundle changed, a webhook was edited, or the namespace goes."""
        self._wake.set()

    async def repair(self, route: Callable[[], Route]) -> None:
        """Repair absence until our namespace goes, then take away what leads to us."""
        installers = self._installers

        async def api_services() -> None:
            await installers.api_services.repair(route())

        async def webhooks() -> None:
            await installers.webhooks.install(route())

        steps: list[Step] = [
            ("CRDs", installers.crds.repair),
            ("settings", installers.settings.ensure),
            ("APIServices", api_services),
            ("webhooks", webhooks),
        ]
        if installers.outside is not None:
            steps.append(("Service", installers.outside.ensure))
        while not self._going:
            await self._wait(REPAIR_S * self._rng.uniform(0.8, 1.2))
            for name, step in steps:
                if not self._going:
                    await self._try(name, step)
        await self._insist(self._removals(), even_going=True)

    async def leave(self) -> None:
        """Take away what leads to us if our namespace goes or is gone; if it stands, other replicas need it."""
        try:
            found = await self._client.get(NAMESPACE, self._namespace)
            self._going = self._going or bool(at(found, "metadata", "deletionTimestamp"))
        except NotFound:
            self._going = True
        except OperatorError as error:
            log.warning("namespace not read", extra={"object": self._namespace, "reason": str(error)})
        if self._going:
            for name, step in self._removals():
                await self._try(name, step)

    def _removals(self) -> list[Step]:
        """Webhooks first: without a server they refuse, which is worse than an API that is away."""
        installers = self._installers
        return [
            ("removal of webhooks", installers.webhooks.remove),
            ("removal of APIServices", installers.api_services.remove),
        ]

    def _observe(self, change: Change) -> None:
        going = change.new is None or bool(at(change.new, "metadata", "deletionTimestamp"))
        if going and not self._going:
            log.info("namespace is going", extra={"kind": "Namespace", "object": self._namespace})
            self._going = True
            self.look_again()

    async def _wait(self, seconds: float) -> None:
        try:
            async with self._clock.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _insist(self, steps: Sequence[Step], *, even_going: bool = False) -> None:
        """Try each step until it succeeds; what is forbidden is said and left to others."""
        for name, step in steps:
            pause_s = FIRST_PAUSE_S
            while not await self._try(name, step) and (even_going or not self._going):
                await self._clock.sleep(pause_s * self._rng.uniform(0.5, 1.0))
                pause_s = min(MOST_PAUSE_S, pause_s * 2)

    async def _try(self, name: str, step: Callable[[], Awaitable[None]]) -> bool:
        """Run one step; say a failure once. A refusal for lack of rights counts as done."""
        try:
            await step()
        except OperatorError as error:
            text = f"{type(error).__name__}: {error}"
            level = logging.DEBUG if self._complaints.get(name) == text else logging.WARNING
            self._complaints[name] = text
            log.log(level, "not installed", extra={"step": name, "reason": text})
            return isinstance(error, Forbidden)
        if self._complaints.pop(name, ""):
            log.info("installed after all", extra={"step": name})
        return True
