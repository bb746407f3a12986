"""Edits of our webhook configurations, seen when they are made (decision 0501).

For: `installation`, which looks at once instead of at its next round. In: the two configurations, by name; what was
installed. Out: a call for each edit.
Promises: what says the same as ours wakes nobody, so our own writes do not; after an edit the next one within `QUIET_S`
is left to the rounds, so that whoever insists on another text is met once a round and not at every write; what is
deleted is left to the rounds too: `uninstall` deletes before the last server is gone.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial

from apiserver.webhooks import configurations
from kube.client import Client
from kube.clock import Clock
from kube.informer import Informer
from kube.reconciler import Object, Rule, Selection
from kube.store import Change, Store
from nodefeature.fields import name_of
from nodefeature.kinds import MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION, Kind

_FOLLOWED = (
    (MUTATING_WEBHOOK_CONFIGURATION, configurations.MUTATION),
    (VALIDATING_WEBHOOK_CONFIGURATION, configurations.VALIDATION),
)
RBAC = tuple(Rule(kind.group, kind.plural, ("list", "watch")) for kind, _ in _FOLLOWED)
QUIET_S = 5.0

log = logging.getLogger(__name__)


class Edits:
    """Follows the configurations. `is_edited` says whether an object differs from what was installed."""

    def __init__(
        self,
        client: Client,
        is_edited: Callable[[Kind, Object], bool],
        on_edit: Callable[[], None],
        *,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._is_edited = is_edited
        self._on_edit = on_edit
        self._clock = clock
        self._quiet_until = float("-inf")
        self._informers = [
            Informer(
                client,
                Store(kind),
                partial(self._observe, kind),
                selection=Selection(field_selector=f"metadata.name={name}"),
                clock=clock,
                rng=rng,
            )
            for kind, name in _FOLLOWED
        ]

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for (_, name), informer in zip(_FOLLOWED, self._informers, strict=True):
                group.create_task(informer.run(), name=f"edits of {name}")

    def _observe(self, kind: Kind, change: Change) -> None:
        now = self._clock.now()
        if change.new is None or now < self._quiet_until or not self._is_edited(kind, change.new):
            return
        self._quiet_until = now + QUIET_S
        log.info("admission object edited", extra={"kind": kind.kind, "object": name_of(change.new)})
        self._on_edit()
