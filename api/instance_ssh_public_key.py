"""InstanceSSHPublicKey: a public key, kept in a Secret of the same name.

For: the v1 resource and the instance controller (spec 02 §8). In/Out: specs and the Secret's data.
Promises: the key's text is kept as it is; displayName and description live in notes, not in the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from api.secret_data import decoded, encoded

RESOURCE_TYPE = "instancesshpublickeys"
DATA_KEY = "authorized-keys"


class InstanceSSHPublicKeySpec(TypedDict, total=False):
    """What a person gives."""

    displayName: str
    description: str
    data: str


def secret_data(spec: InstanceSSHPublicKeySpec) -> dict[str, str]:
    """Return the Secret's `data`."""
    return {DATA_KEY: encoded(spec.get("data", ""))}


def data_of(secret: Mapping[str, Any]) -> str:
    """Return the key's text; empty when the Secret holds none."""
    return decoded(secret, DATA_KEY)
