"""settings: the live settings of the controllers, and what is wrong with them (design §8.9, spec 01 §12).

For: every reconciler that reads a setting (`LiveSettings.now`) or must run when one changes (`wakes`); administrators,
who learn from an Event which value was refused.
In: Secret `gpustack-settings`, seeds from the environment. Out: `Settings`, wake-ups, Events, log lines.
Promises: no cache of time: a value holds from the moment the watch brings it; a missing key has its default; a value
that does not parse keeps the last good one; a problem is reported once, also across restarts; sensitive values never
reach a log or an Event.
Trusts: whoever may write Secrets in the operator's namespace.
State: the last good values, in this process; after a restart a broken value falls back to its default.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from api.settings import BY_NAME, DEFAULTS, SECRET_NAME, Reading, Settings, changed, settings_of, woken
from controllers.events import Events
from controllers.reports import Reports
from kube.client import Client
from kube.clock import Clock
from kube.reconciler import DONE, Caches, Index, Key, Object, Outcome, Rule, Watch
from nodefeature.fields import as_map, at, name_of, namespace_of
from nodefeature.kinds import SECRET, Kind
from nodefeature.labels import SYSTEM_NAMESPACE

log = logging.getLogger(__name__)


class LiveSettings:
    """The values in force. Reading costs nothing while the Secret stands still."""

    def __init__(
        self, caches: Caches, *, namespace: str = SYSTEM_NAMESPACE, seeds: Mapping[str, str] | None = None
    ) -> None:
        self._caches = caches
        self._key = Key(SECRET_NAME, namespace)
        self._seeds = dict(seeds or {})
        self._seen: Object | None = None
        self._reading: Reading | None = None

    def reading(self) -> Reading:
        """Return the values in force and what was refused."""
        secret = self._caches[SECRET].get(self._key)
        if self._reading is None or secret is not self._seen:
            last = self._reading.settings if self._reading is not None else None
            self._reading = settings_of(secret, seeds=self._seeds, last=last)
            self._seen = secret
        return self._reading

    def now(self) -> Settings:
        """Return the values in force."""
        return self.reading().settings


def wakes(reconciler: str, keys: Callable[[Caches], Iterable[Key]]) -> Watch:
    """Return the watch that runs `keys(caches)` when a setting that concerns `reconciler` changes."""

    def on_change(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
        if name_of(new if new is not None else old) != SECRET_NAME:
            return ()
        return keys(caches) if reconciler in woken(changed_names(old, new)) else ()

    return Watch(SECRET, on_change)


def changed_names(old: object, new: object) -> frozenset[str]:
    """Return the settings whose stored text differs; an absent key is a text of its own."""
    before, after = as_map(at(old, "data")), as_map(at(new, "data"))
    return frozenset(name for name in BY_NAME if before.get(name) != after.get(name))


def _settings_key(old: Object | None, new: Object | None, caches: Caches) -> Iterable[Key]:
    shown = new if new is not None else old
    return (Key(name_of(shown), namespace_of(shown)),) if name_of(shown) == SECRET_NAME else ()


class SettingsWatch:
    """Says what changed and what was refused."""

    NAME: ClassVar[str] = "settings"
    WATCHES: ClassVar[tuple[Watch, ...]] = (Watch(SECRET, _settings_key),)
    READS: ClassVar[tuple[Kind, ...]] = ()
    INDEXES: ClassVar[tuple[Index, ...]] = ()
    RBAC: ClassVar[tuple[Rule, ...]] = (
        Rule("", "secrets", ("get", "list", "watch"), SYSTEM_NAMESPACE),
        Rule("", "events", ("get", "create"), SYSTEM_NAMESPACE),
    )

    def __init__(self, client: Client, caches: Caches, *, settings: LiveSettings, clock: Clock) -> None:
        self.client = client.as_manager("gpustack-settings")
        self.caches = caches
        self.settings = settings
        self.events = Events(self.client, clock)
        self._before: Settings = DEFAULTS
        self._reports = Reports()

    async def reconcile(self, key: Key) -> Outcome:
        """Log the changes; report each refused value once."""
        secret = self.caches[SECRET].get(key)
        reading = self.settings.reading()
        for name in sorted(changed(self._before, reading.settings)):
            log.info("setting in force", extra={"kind": "Secret", "object": str(key), "setting": name})
        self._before = reading.settings
        for message in self._reports.news("unknown", (f"data[{name}]" for name in reading.unknown)):
            log.warning("setting nobody knows", extra={"kind": "Secret", "object": str(key), "reason": message})
        messages = [str(problem) for problem in reading.problems]
        for message in self._reports.news("refused", messages):
            log.warning("setting refused", extra={"kind": "Secret", "object": str(key), "reason": message})
        if secret is None:
            return DONE
        for message in messages:
            text = f"{message}; the last good value stays in force"
            await self.events.warn(SECRET, secret, reason="SettingRefused", message=text)
        return DONE
