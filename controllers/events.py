"""Warnings on objects that people look at with `kubectl describe`.

For: reconcilers that must name a mistake where no condition of ours has a place (Secrets, ResourceFlavors).
In: an object, a reason, a sentence. Out: a core/v1 Event in the object's namespace (`default` for cluster-scoped ones).
Promises: the Event's name is made of object and sentence, so each is stored once while the API server keeps it, also
across restarts; a warning that already stands costs a read and no write.
"""

from __future__ import annotations

from kube.client import Client
from kube.clock import Clock, second_time
from kube.errors import AlreadyExists, NotFound
from kube.events import event_of
from kube.reconciler import Object, Rule
from nodefeature.fields import name_of, namespace_of, uid_of
from nodefeature.kinds import EVENT, Kind

EVENT_RULE = Rule("", "events", ("get", "create"), "default")
"""For warnings on cluster-scoped objects, whose Events live in namespace `default`."""


class Events:
    """Writes warnings."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def warn(self, kind: Kind, obj: Object, *, reason: str, message: str) -> None:
        """Store a warning about `obj`, unless it stands already."""
        event = warning(kind, obj, reason=reason, message=message, at_time=second_time(self._clock.time()))
        try:
            await self._client.get(EVENT, name_of(event), namespace_of(event))
        except NotFound:
            try:
                await self._client.create(EVENT, event)
            except AlreadyExists:
                return


def warning(kind: Kind, obj: Object, *, reason: str, message: str, at_time: str) -> Object:
    """Return the Event; equal sentences about one object have equal names."""
    identity = f"{uid_of(obj)} {reason} {message}"
    return event_of(kind, obj, event_type="Warning", reason=reason, message=message, identity=identity, stamp=at_time)
