"""Objects that tests of the aggregated API make."""

from __future__ import annotations

import json
from typing import Any

Object = dict[str, Any]


def instance(name: str, *, version: str = "v1", **metadata: Any) -> Object:
    """Return a stopped Instance: it is admitted whatever its type, which need not exist."""
    return {
        "apiVersion": f"worker.gpustack.ai/{version}",
        "kind": "Instance",
        "metadata": {"name": name, **metadata},
        "spec": {
            "type": "cards",
            "stop": True,
            "image": "registry.example/app:1",
            "volume": {"ephemeral": {"capacity": "1Gi"}},
        },
    }


def text(*objects: Object) -> str:
    """Return manifests as kubectl reads them."""
    return "\n---\n".join(json.dumps(obj) for obj in objects)
