"""The parts that every kind has."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.schema import Model, Word


class Object(Model):
    """A whole object; its metadata is the API server's business."""

    api_version: str = ""
    kind: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)


class Reference(Model):
    """An object of the same namespace by name."""

    name: Word
