"""What a mapped kind says of itself; `storage` does the rest.

For: the resource modules, one subclass each. In: views and backing objects as plain dicts. Out: the other side.
Promises: the methods without `async` are pure. The hooks with it may read the cluster and refuse; only `written` may
write.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping as Map
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel

from api.problems import Problem
from api.validation import shape_problems
from apiserver.mapping.metadata import TEXTS, Object
from apiserver.rest.options import WriteOptions
from apiserver.rest.storage import Call
from kube.client import Client
from nodefeature.kinds import Kind


@dataclass(frozen=True, slots=True)
class Write:
    """A write under way: who asks what, with which options, through a client that acts as the field manager."""

    call: Call
    client: Client
    options: WriteOptions


class Mapping(ABC):
    """A v1 kind that is kept in objects of another kind."""

    kind: ClassVar[Kind]
    backing: ClassVar[Kind]
    model: ClassVar[type[BaseModel]]
    mark: ClassVar[str] = ""
    """Value of the marker label; empty when every object that `owns` takes is one of the kind."""
    label_selector: ClassVar[str] = ""
    field_selector: ClassVar[str] = ""
    note_keys: ClassVar[tuple[str, ...]] = TEXTS
    """Notes that `notes` may give; those it does not give are taken off."""

    @abstractmethod
    def owns(self, stored: Map[str, Any]) -> bool:
        """Say whether a backing object is one of the kind."""

    @abstractmethod
    def shown(self, stored: Map[str, Any]) -> Object:
        """Return what a view shows beside its metadata: `spec`, `status`."""

    @abstractmethod
    def notes(self, obj: Map[str, Any]) -> dict[str, str]:
        """Return what of the view is kept in notes."""

    @abstractmethod
    def content(self, obj: Map[str, Any], stored: Map[str, Any] | None) -> Object:
        """Return the root fields of the backing object beside its metadata; `stored` None: all of them."""

    def problems(self, obj: Map[str, Any]) -> list[Problem]:
        """Return what of a written view has not the shape of its kind."""
        return shape_problems(self.model, obj)

    async def prepare(self, write: Write, obj: Object, stored: Map[str, Any] | None) -> Object:
        """Return the view with its defaults; raises Refusal for what must not be written."""
        return obj

    async def written(self, write: Write, stored: Map[str, Any], obj: Map[str, Any], *, created: bool) -> None:
        """Write what else belongs to the object; most kinds are one object alone."""
        return

    async def check_delete(self, client: Client, call: Call, stored: Map[str, Any]) -> None:
        """Raise Refusal for an object that must not go; most may."""
        return
