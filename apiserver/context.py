"""What every resource is built from.

For: the resource modules and whoever assembles the server. In: a client with the server's own identity, an authorizer.
Out: one frozen value. Promises: nothing here is opened or started.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from apiserver.forwarding.open_streams import OpenStreams
from apiserver.rest.app import Authorize
from kube.client import Client
from kube.clock import Clock, SystemClock
from nodefeature.labels import SYSTEM_NAMESPACE
from nodefeature.manufacturers import Manufacturers, build_manufacturers


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """`authorize` is the engine's own authorizer, which raises Refusal 403 for what a user may not do.

    `impersonate`: forwarded writes carry the user, so that audit and policies of the cluster see who asked.
    """

    client: Client
    authorize: Authorize
    clock: Clock = field(default_factory=SystemClock)
    open_streams: OpenStreams = field(default_factory=OpenStreams)
    system_namespace: str = SYSTEM_NAMESPACE
    impersonate: bool = False
    manufacturers: Manufacturers = field(default_factory=lambda: build_manufacturers({}))
