"""The kinds the protocol tests use: a built-in one, and ours, namespaced and cluster-wide.

For: the tests of this folder. In: names. Out: paths and valid objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodefeature.kinds import CONFIG_MAP, INSTANCE, INSTANCE_TYPE, Kind
from tests.protocol.wire import Object, Server

KINDS = (CONFIG_MAP, INSTANCE, INSTANCE_TYPE)
OURS = (INSTANCE, INSTANCE_TYPE)


def kind_id(kind: Kind) -> str:
    """Return a test id."""
    return kind.plural


def collection(kind: Kind, namespace: str) -> str:
    """Return the path of a collection."""
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
    return f"{root}/namespaces/{namespace}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


def sample(kind: Kind, name: str, *, labels: Mapping[str, str] | None = None, **metadata: Any) -> Object:
    """Return a valid object."""
    meta = {"name": name, **({"labels": dict(labels)} if labels else {}), **metadata}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **_content(kind)}


def _content(kind: Kind) -> Object:
    if kind == CONFIG_MAP:
        return {"data": {"text": "a"}}
    if kind == INSTANCE:
        return {
            "spec": {"type": "cards", "image": "registry.example/app:1", "volume": {"persistent": {"name": "data"}}}
        }
    unit = {"cpu": "4", "ram": "16Gi"}
    return {
        "spec": {"acceleratable": False, "os": "linux", "arch": "amd64", "unitResources": unit, "localStorage": "100Gi"}
    }


def type_status(**more: Any) -> Object:
    """Return a status that an InstanceType may have."""
    view = {"onceMaxRequest": "0", "remaining": "0", "capacity": "0"}
    views = ("accelerator", "acceleratorShared", "acceleratorSliced", "acceleratorPartitioned", "cpu")
    return {"phase": "Active", **dict.fromkeys(views, view), **more}


def status(kind: Kind) -> Object:
    """Return a status of one of our kinds."""
    return type_status() if kind == INSTANCE_TYPE else {"phase": "Active"}


def change(kind: Kind, text: str) -> Object:
    """Return a merge patch that changes one field."""
    return {"data": {"text": text}} if kind == CONFIG_MAP else {"spec": {"displayName": text}}


class Shelf:
    """One kind's collection, holding the objects of one test: cluster-wide kinds are told apart by a label."""

    def __init__(self, server: Server, kind: Kind, namespace: str) -> None:
        self.server = server
        self.kind = kind
        self.path = collection(kind, namespace)
        self.mark = {"test": namespace}
        self.select = f"test={namespace}"
        self.prefix = namespace

    @property
    def is_view(self) -> bool:
        """Say whether the collection is a view of ours; kinds that are none are asked below it."""
        return self.server.below is not None and self.kind != CONFIG_MAP

    def name(self, word: str) -> str:
        """Return the full name of one of the test's objects."""
        return f"{self.prefix}-{word}"

    def at(self, word: str, subresource: str = "") -> str:
        """Return the path of one of the test's objects."""
        path = f"{self.path}/{self.name(word)}"
        return f"{path}/{subresource}" if subresource else path

    def object(self, word: str, *, labels: Mapping[str, str] | None = None, **metadata: Any) -> Object:
        """Return an object that may be created."""
        return sample(self.kind, self.name(word), labels={**self.mark, **(labels or {})}, **metadata)

    def create(self, word: str, *, labels: Mapping[str, str] | None = None, **metadata: Any) -> Object:
        """Create an object."""
        return self.server.ok("POST", self.path, self.object(word, labels=labels, **metadata))

    def list(self, **query: str) -> Object:
        """List the test's objects."""
        return self.server.ok("GET", self.path, labelSelector=self.select, **query)
