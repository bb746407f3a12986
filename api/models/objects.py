"""The parts that every kind has."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.schema import Message, Model, Word


class Object(Model):
    """A whole object; its metadata is the API server's business."""

    api_version: str = ""
    kind: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)


class Reference(Model):
    """An object of the same namespace by name."""

    name: Word


class Condition(Model):
    """One observation of a controller or an agent."""

    type: Word
    status: Word = Field(description="True, False or Unknown")
    reason: Word | None = None
    message: Message | None = None
    last_transition_time: Word | None = Field(default=None, description="When the status last changed")
    observed_generation: int | None = Field(
        default=None,
        ge=0,
        json_schema_extra={"format": "int64"},
        description="Generation of the object that this was said about",
    )
