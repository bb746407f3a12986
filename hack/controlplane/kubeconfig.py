"""Kubeconfig files.

For: every process of the control plane, the person at the keyboard, and the product.
In: a server, its authority and a credential. Out: one self-contained file, readable by its owner only.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane.pki import Pair


def write_kubeconfig(
    path: Path, *, server: str, authority: Path, client: Pair | None = None, token: str = "", namespace: str = ""
) -> Path:
    """Write a kubeconfig that carries either a client certificate or a bearer token."""
    user: dict[str, Any] = {"token": token} if token else {}
    if client is not None:
        user["client-certificate-data"] = _encoded(client.certificate)
        user["client-key-data"] = _encoded(client.key)
    cluster = {"server": server, "certificate-authority-data": _encoded(authority)}
    context = {"cluster": "controlplane", "user": "me", **({"namespace": namespace} if namespace else {})}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "controlplane", "cluster": cluster}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "controlplane", "context": context}],
        "current-context": "controlplane",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
