"""The dynamic client of the official Python package: `official.py KUBECONFIG NAMESPACE < Instance`."""

from __future__ import annotations

import json
import sys

from kubernetes import config, dynamic
from kubernetes.dynamic.exceptions import NotFoundError

VERSION = "worker.gpustack.ai/v1"


def main(kubeconfig: str, namespace: str) -> None:
    """Create, read, change, follow and delete an Instance."""
    client = dynamic.DynamicClient(  # type: ignore[no-untyped-call]  # the library has no types
        config.new_client_from_config(kubeconfig)  # type: ignore[no-untyped-call]  # the library has no types
    )
    found = client.resources.get(api_version=VERSION, kind="Instance")
    one = {"name": "made", "namespace": namespace}
    merge = {**one, "content_type": "application/merge-patch+json"}
    made = found.create(body=json.load(sys.stdin), namespace=namespace)
    assert made.apiVersion == VERSION
    changed = found.patch(body={"metadata": {"labels": {"a": "b"}}}, **merge)
    assert changed.metadata.labels["a"] == "b"
    applied = {"apiVersion": VERSION, "kind": "Instance", "metadata": {"name": "made", "labels": {"c": "d"}}}
    found.server_side_apply(body=applied, field_manager="test", force_conflicts=True, **one)
    listed = found.get(namespace=namespace, label_selector="a=b")
    assert [item.metadata.name for item in listed.items] == ["made"]
    version = listed.metadata.resourceVersion
    found.patch(body={"metadata": {"labels": {"a": "c"}}}, **merge)
    for event in found.watch(namespace=namespace, resource_version=version, timeout=30):
        assert event["object"].metadata.labels["a"] == "c"
        break
    found.delete(name="made", namespace=namespace)
    try:
        found.get(name="made", namespace=namespace)
    except NotFoundError:
        return
    raise AssertionError("the object is still there")


if __name__ == "__main__":
    main(*sys.argv[1:])
