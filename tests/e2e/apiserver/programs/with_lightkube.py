"""lightkube: `with_lightkube.py KUBECONFIG NAMESPACE < Instance`."""

from __future__ import annotations

import json
import sys

from lightkube import ApiError, Client, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta

VERSION = "worker.gpustack.ai/v1"


def main(kubeconfig: str, namespace: str) -> None:
    """Create, read, change, follow and delete an Instance."""
    kind = create_namespaced_resource("worker.gpustack.ai", "v1", "Instance", "instances")
    client = Client(config=KubeConfig.from_file(kubeconfig), namespace=namespace, field_manager="lightkube-test")
    made = client.create(kind(json.load(sys.stdin)))
    assert made.metadata is not None
    client.patch(kind, "made", {"metadata": {"labels": {"a": "b"}}})
    assert [item.metadata.name for item in client.list(kind, labels={"a": "b"}) if item.metadata] == ["made"]
    labelled = ObjectMeta(name="made", labels={"c": "d"})
    client.apply(kind(apiVersion=VERSION, kind="Instance", metadata=labelled), force=True)
    for change, obj in client.watch(kind, resource_version=made.metadata.resourceVersion):
        assert change == "MODIFIED"
        assert obj.metadata is not None
        break
    client.delete(kind, "made")
    try:
        client.get(kind, "made")
    except ApiError as error:
        if error.status.code == 404:
            return
        raise
    raise AssertionError("the object is still there")


if __name__ == "__main__":
    main(*sys.argv[1:])
