"""InstanceImagePullSecret: registry credentials, kept in a Secret of type dockerconfigjson (spec 02 §9).

Promises: every Secret of that type is one, whoever made it; credentials are never read back, so every write of the spec
brings them all again.
"""

from __future__ import annotations

from collections.abc import Mapping as Map
from typing import Any

from api.instance_image_pull_secret import SECRET_TYPE, InstanceImagePullSecretSpec, secret_data, spec_problems
from api.models.mapped_kinds import InstanceImagePullSecret
from api.problems import Problem
from api.validation import shape_problems
from apiserver.context import Context
from apiserver.mapping.mapping import Mapping
from apiserver.mapping.metadata import TEXTS, Object, described
from apiserver.mapping.served import mapped_resource
from apiserver.rest.storage import Resource
from kube.reconciler import Rule
from nodefeature.fields import as_map, as_str
from nodefeature.kinds import SECRET, Kind

KIND = Kind("worker.gpustack.ai", "v1", "instanceimagepullsecrets", "InstanceImagePullSecret", namespaced=True)
RBAC = (Rule("", "secrets", ("get", "list", "watch", "create", "update", "patch", "delete")),)
_FIELDS = ("registry", "username", "password", "email")


class ImagePullSecrets(Mapping):
    """Credentials in Secrets."""

    kind = KIND
    backing = SECRET
    model = InstanceImagePullSecret
    field_selector = f"type={SECRET_TYPE}"

    def owns(self, stored: Map[str, Any]) -> bool:
        """Say whether a Secret holds registry credentials."""
        return stored.get("type") == SECRET_TYPE

    def shown(self, stored: Map[str, Any]) -> Object:
        """Return the texts alone."""
        return {"spec": described(stored)}

    def notes(self, obj: Map[str, Any]) -> dict[str, str]:
        """Return the texts."""
        spec = as_map(obj.get("spec"))
        return {key: as_str(spec.get(key)) for key in TEXTS if spec.get(key)}

    def content(self, obj: Map[str, Any], stored: Map[str, Any] | None) -> Object:
        """Return the Secret's type and data."""
        return {"type": SECRET_TYPE, "data": secret_data(_spec(obj))}

    def problems(self, obj: Map[str, Any]) -> list[Problem]:
        """Return what is wrong; a missing credential is named in the rule's own words."""
        missing = spec_problems(_spec(obj))
        paths = {problem.path for problem in missing}
        return missing + [p for p in shape_problems(self.model, obj) if p.path not in paths and p.path != "spec"]


def _spec(obj: Map[str, Any]) -> InstanceImagePullSecretSpec:
    spec = as_map(obj.get("spec"))
    texts = {key: as_str(spec.get(key)) for key in _FIELDS if spec.get(key)}
    return texts  # type: ignore[return-value]  # the keys are those of the spec


def resource(context: Context) -> Resource:
    """Return the served resource."""
    return mapped_resource(context, ImagePullSecrets())
