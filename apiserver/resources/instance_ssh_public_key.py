"""InstanceSSHPublicKey: a public key, kept in a Secret of the same name (spec 02 §8).

Promises: the key's text is kept byte for byte; a Secret without the mark is no key.
"""

from __future__ import annotations

from collections.abc import Mapping as Map
from typing import Any

from api.instance_ssh_public_key import RESOURCE_TYPE as MARK
from api.instance_ssh_public_key import data_of, secret_data
from api.models.mapped_kinds import InstanceSSHPublicKey
from apiserver.context import Context
from apiserver.mapping.mapping import Mapping
from apiserver.mapping.metadata import TEXTS, Object, described
from apiserver.mapping.served import mapped_resource
from apiserver.rest.storage import Resource
from kube.reconciler import Rule
from nodefeature.fields import as_map, as_str, labels_of
from nodefeature.kinds import SECRET, Kind
from nodefeature.labels import RESOURCE_TYPE

KIND = Kind("worker.gpustack.ai", "v1", MARK, "InstanceSSHPublicKey", namespaced=True)
RBAC = (Rule("", "secrets", ("get", "list", "watch", "create", "update", "patch", "delete")),)


class SSHPublicKeys(Mapping):
    """Keys in Secrets."""

    kind = KIND
    backing = SECRET
    model = InstanceSSHPublicKey
    mark = MARK
    label_selector = f"{RESOURCE_TYPE}={MARK}"

    def owns(self, stored: Map[str, Any]) -> bool:
        """Say whether a Secret is marked."""
        return labels_of(stored).get(RESOURCE_TYPE) == MARK

    def shown(self, stored: Map[str, Any]) -> Object:
        """Return the key and its texts."""
        return {"spec": {**described(stored), "data": data_of(stored)}}

    def notes(self, obj: Map[str, Any]) -> dict[str, str]:
        """Return the texts."""
        spec = as_map(obj.get("spec"))
        return {key: as_str(spec.get(key)) for key in TEXTS if spec.get(key)}

    def content(self, obj: Map[str, Any], stored: Map[str, Any] | None) -> Object:
        """Return the Secret's data."""
        return {"data": secret_data({"data": as_str(as_map(obj.get("spec")).get("data"))})}


def resource(context: Context) -> Resource:
    """Return the served resource."""
    return mapped_resource(context, SSHPublicKeys())
