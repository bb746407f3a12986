"""Events: what happened to an object, for people who look at it with `kubectl describe`.

For: reconcilers that tell the steps of an object's life. In: an object, a reason, a sentence. Out: core/v1 Events.
Promises:
- one Event an object, subject and reason: its name is made of them, so a second process, or this one after a restart,
  meets the first one's Event instead of writing another;
- the Event remembers the resourceVersion of the object it was decided on: the same step told again changes nothing;
- the same step taken anew is counted on the same Event, at most once in `PAUSE_S`, with the newest sentence;
- what cannot be written (rights, a namespace that is going, a full server, no answer) is logged at debug level and
  lost: an Event never holds up the work it tells of.
Core/v1, not events.k8s.io/v1: both are one storage, kubectl reads the former, and only there may an update change the
sentence and the count (decision 0442).
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Literal

from kube.client import Client
from kube.clock import Clock, second_time
from kube.errors import AlreadyExists, ApiError, NotFound, Unreachable
from kube.reconciler import Object, Rule
from nodefeature.fields import as_int, as_map, as_str, at, name_of, namespace_of, uid_of
from nodefeature.hashing import fnv64
from nodefeature.kinds import EVENT, Kind

log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]
RULE = Rule("", "events", ("get", "create", "patch"))
COMPONENT = "gpustack-operator"
PAUSE_S = 60.0
_MAX_MESSAGE = 1024


class EventRecorder:
    """Writes Events about objects of one kind."""

    def __init__(self, client: Client, clock: Clock, kind: Kind) -> None:
        self._client = client
        self._clock = clock
        self._kind = kind

    async def record(
        self, obj: Object, reason: str, message: str, *, event_type: EventType = "Normal", subject: str = ""
    ) -> None:
        """Tell that `reason` happened to `obj`. `subject` tells apart what may happen once each, such as Pods' uids."""
        now = self._clock.time()
        identity = f"{uid_of(obj)} {subject} {reason}"
        event = event_of(
            self._kind,
            obj,
            event_type=event_type,
            reason=reason,
            message=message,
            identity=identity,
            stamp=second_time(now),
        )
        try:
            try:
                await self._client.create(EVENT, event)
            except AlreadyExists:
                await self._again(event, now)
        except (ApiError, Unreachable) as lost:
            log.debug("event lost", extra={"kind": self._kind.kind, "object": name_of(obj), "reason": str(lost)})

    async def _again(self, event: Object, now: datetime) -> None:
        try:
            stored = await self._client.get(EVENT, name_of(event), namespace_of(event))
        except NotFound:
            return  # it just expired
        patch = repetition(stored, event, now)
        if patch:
            await self._client.patch(EVENT, name_of(event), patch, namespace_of(event))


def event_of(
    kind: Kind, obj: Object, *, event_type: EventType, reason: str, message: str, identity: str, stamp: str
) -> Object:
    """Return an Event about `obj`; equal identities give equal names."""
    name, namespace = name_of(obj), namespace_of(obj)
    version = as_str(at(obj, "metadata", "resourceVersion"))
    return {
        "metadata": {
            "name": f"{name[:200].rstrip('-.')}.{fnv64(identity)}",
            "namespace": namespace or "default",
        },
        "involvedObject": {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "name": name,
            "uid": uid_of(obj),
            **({"namespace": namespace} if namespace else {}),
            **({"resourceVersion": version} if version else {}),
        },
        "type": event_type,
        "reason": reason,
        "message": message[:_MAX_MESSAGE],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def repetition(stored: Object, event: Object, now: datetime) -> Object | None:
    """Return the merge patch that counts `event` on its stored namesake; None when there is nothing to count."""
    version = at(event, "involvedObject", "resourceVersion")
    if at(stored, "involvedObject", "resourceVersion") == version:
        return None
    last = _moment(as_str(stored.get("lastTimestamp")))
    if last is not None and (now - last).total_seconds() < PAUSE_S:
        return None
    return {
        "metadata": {"resourceVersion": at(stored, "metadata", "resourceVersion")},
        "involvedObject": {**as_map(stored.get("involvedObject")), "resourceVersion": version},
        "message": event["message"],
        "lastTimestamp": event["lastTimestamp"],
        "count": max(as_int(stored.get("count")), 1) + 1,
    }


def _moment(stamp: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return moment if moment.tzinfo else None
