"""The form of a CDI specification, as far as engines refuse a file for it.

For: `cdi`. In: decoded YAML or JSON. Out: a checked specification, or pydantic's ValidationError.
Promises: as strict as the published schema about what it names, and open to fields of newer versions; the kind must
be qualified, which engines demand though the schema does not.
"""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

_KIND = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, alias_generator=to_camel)


class DeviceNode(_Part):
    """One device node."""

    path: str
    host_path: str = ""
    permissions: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0


class Mount(_Part):
    """One mount."""

    host_path: str
    container_path: str
    options: list[str] = []
    type: str = ""


class Hook(_Part):
    """One program that the engine runs."""

    hook_name: str
    path: str
    args: list[str] = []
    env: list[str] = []
    timeout: int = Field(0, ge=0)


class ContainerEdits(_Part):
    """What an engine changes of a container."""

    env: list[str] = []
    device_nodes: list[DeviceNode] = []
    mounts: list[Mount] = []
    hooks: list[Hook] = []


class Device(_Part):
    """One named device."""

    name: str = Field(min_length=1)
    annotations: dict[str, str] = {}
    container_edits: ContainerEdits


class CdiSpec(_Part):
    """One specification file."""

    cdi_version: str = Field(min_length=1)
    kind: str = Field(pattern=_KIND)
    annotations: dict[str, str] = {}
    devices: list[Device]
    container_edits: ContainerEdits = ContainerEdits()
