"""What a webhook may ask the cluster, beside the request itself.

For: every webhook; `cached_world` answers from informers, tests from plain dicts.
In: names. Out: raw objects, shared: reading only.
Promises: what is asked for without `await` comes from memory; a look-up costs the same whatever the number of types and
nodes; an awaited question may reach the API server and then raises OperatorError when that cannot answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from api.settings import Settings
from kube.reconciler import Object
from nodefeature.manufacturers import Manufacturers


class World(Protocol):
    """Questions."""

    @property
    def registry(self) -> Manufacturers:
        """Return the known manufacturers."""

    @property
    def system_namespace(self) -> str:
        """Return the operator's own namespace."""

    def settings(self) -> Settings:
        """Return the settings in force."""

    def types_known(self, entrance: str) -> Sequence[Object]:
        """Return the InstanceTypes behind a LocalQueue's name, as far as they are cached."""

    async def types_behind(self, entrance: str) -> Sequence[Object]:
        """Return the InstanceTypes behind a LocalQueue's name: from the cache, else from a live list."""

    async def instance_type(self, name: str) -> Object | None:
        """Return an InstanceType: from the cache, else from a live read."""

    async def node_exists(self, name: str) -> bool:
        """Say whether a Node of this name exists."""

    async def services_may_begin_with_a_digit(self) -> bool:
        """Say whether the cluster takes a Service whose name begins with a digit, as it does since Kubernetes 1.36."""

    async def pool_of(self, namespace: str, local_queue: str) -> Object | None:
        """Return the InstanceType whose marked ClusterQueue a LocalQueue leads to; None when a link is missing."""
