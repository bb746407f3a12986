"""The kinds that are stored in Kubernetes' own: one case each, and what their tests share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.apiserver.resources.cluster import SYSTEM, V1, Server

SECRETS = "/api/v1/namespaces/team/secrets"
CLAIMS = "/api/v1/namespaces/team/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SETTINGS_SECRET = f"/api/v1/namespaces/{SYSTEM}/secrets"
MARK = "resource.gpustack.ai/type"


@dataclass(frozen=True)
class Case:
    """One mapped kind under the shared table."""

    plural: str
    kind: str
    spec: dict[str, Any]
    backing: str
    namespaced: bool = True
    shown: dict[str, Any] = field(default_factory=dict)
    """What of the spec reads back, when it is not all of it."""

    @property
    def path(self) -> str:
        return f"{V1}/namespaces/team/{self.plural}" if self.namespaced else f"{V1}/{self.plural}"

    def object(self, name: str = "a", **metadata: Any) -> dict[str, Any]:
        return {
            "apiVersion": "worker.gpustack.ai/v1",
            "kind": self.kind,
            "metadata": {"name": name, **metadata},
            "spec": self.spec,
        }


CREDENTIALS = {"registry": "reg.example.com", "username": "bob", "password": "s3"}
NFS = {"server": "10.0.0.1", "share": "/exports"}
S3 = {"endpoint": "https://s3.example.com", "region": "eu", "bucket": "data", "accessKey": "AK1", "secretKey": "SK1"}
CASES = (
    Case("instancesshpublickeys", "InstanceSSHPublicKey", {"displayName": "mine", "data": "ssh-ed25519 AAA"}, SECRETS),
    Case(
        "instanceimagepullsecrets",
        "InstanceImagePullSecret",
        {"displayName": "mine", **CREDENTIALS},
        SECRETS,
        shown={"displayName": "mine"},
    ),
    Case(
        "instancepersistentvolumes",
        "InstancePersistentVolume",
        {"displayName": "mine", "type": "fast", "capacity": "1Gi", "accessMode": "ReadWriteOnce"},
        CLAIMS,
    ),
    Case(
        "instancepersistentvolumetypes",
        "InstancePersistentVolumeType",
        {"displayName": "mine", "nfs": {**NFS, "mountOptions": ["hard"]}},
        CLASSES,
        namespaced=False,
    ),
)


async def prepare(server: Server) -> None:
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "p"}
    await server.put_below(CLASSES, body)


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]
