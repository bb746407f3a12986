"""InstanceImagePullSecret: registry credentials, kept in a Secret of type dockerconfigjson.

For: the v1 resource (spec 02 §9). In: the write-only spec. Out: the Secret's data, problems.
Promises: credentials never stand in a problem and are never read back.
"""

from __future__ import annotations

import base64
import json
from typing import TypedDict

from api.problems import Problem, require
from api.secret_data import encoded

SECRET_TYPE = "kubernetes.io/dockerconfigjson"  # noqa: S105  # a Secret's type, not a credential
DATA_KEY = ".dockerconfigjson"


class InstanceImagePullSecretSpec(TypedDict, total=False):
    """What a person gives; the first four are never returned."""

    registry: str
    username: str
    password: str
    email: str
    displayName: str
    description: str


def spec_problems(spec: InstanceImagePullSecretSpec) -> list[Problem]:
    """Return a problem for each credential that is missing; an update needs them all again."""
    problems: list[Problem] = []
    for name in ("registry", "username", "password"):
        problems += require(bool(spec.get(name)), f"spec.{name}", None, f"{name} is required")
    return problems


def secret_data(spec: InstanceImagePullSecretSpec) -> dict[str, str]:
    """Return the Secret's `data`."""
    pair = f"{spec.get('username', '')}:{spec.get('password', '')}"
    entry = {"auth": base64.b64encode(pair.encode()).decode()}
    if spec.get("email"):
        entry["email"] = spec["email"]
    config = {"auths": {spec.get("registry", ""): entry}}
    return {DATA_KEY: encoded(json.dumps(config, separators=(",", ":")))}
