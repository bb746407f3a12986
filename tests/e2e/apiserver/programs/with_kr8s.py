"""kr8s: `with_kr8s.py KUBECONFIG NAMESPACE < Instance`."""

from __future__ import annotations

import json
import sys

import kr8s
from kr8s.objects import new_class


def main(kubeconfig: str, namespace: str) -> None:
    """Create, read, change, follow and delete an Instance."""
    api = kr8s.api(kubeconfig=kubeconfig)
    kind = new_class(kind="Instance", version="worker.gpustack.ai/v1", namespaced=True, plural="instances")
    made = kind(json.load(sys.stdin), api=api)
    made.create()
    made.label(a="b")
    made.annotate(c="d")
    listed = list(api.get("instances.v1.worker.gpustack.ai", namespace=namespace, label_selector="a=b"))
    assert [item["metadata"]["name"] for item in listed] == ["made"]
    made.patch({"spec": {"displayName": "shown"}})
    made.refresh()
    assert made.raw["spec"]["displayName"] == "shown"
    made.delete()
    made.wait("delete", timeout=30)
    assert not made.exists()


if __name__ == "__main__":
    main(*sys.argv[1:])
