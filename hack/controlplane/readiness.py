"""When a started process is ready.

For: `ControlPlane`, which asks until it is or its time is up. In: ports and the administrator's client.
Promises: one question is one or two requests and never waits; a process without a question is ready at once.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import httpx

from hack.controlplane.admin import Admin
from hack.controlplane.components import Components
from hack.controlplane.layout import Layout
from hack.controlplane.manifests import KUEUE_WEBHOOK_SECRET, SYSTEM_NAMESPACE
from nodefeature.fields import as_map, at
from nodefeature.kinds import SECRET, SERVICE_ACCOUNT

_TIMEOUT_S = 2.0
_CERTIFICATE_FILES = frozenset({"ca.crt", "tls.crt", "tls.key"})


class Readiness:
    """Asks the processes of one control plane."""

    def __init__(self, components: Components, admin: Admin) -> None:
        self._components = components
        self._ports = components.ports
        self._admin = admin

    def of(self, name: str) -> bool:
        """Say whether a process is ready."""
        questions: dict[str, Callable[[], bool]] = {
            "etcd": lambda: _answers(f"http://127.0.0.1:{self._ports.etcd_client}/health"),
            "kube-apiserver": self._admin.ready,
            "kube-controller-manager": self._controllers_work,
            "kube-scheduler": lambda: _answers(f"https://127.0.0.1:{self._ports.scheduler}/healthz"),
            "kwok": lambda: _answers(f"http://127.0.0.1:{self._ports.kwok}/healthz"),
            "kueue": self._kueue_serves,
            "nfd-master": lambda: _answers(f"http://127.0.0.1:{self._ports.nfd_master}/healthz"),
        }
        question = questions.get(name)
        return question is None or question()

    def _controllers_work(self) -> bool:
        """Pods are refused until kube-controller-manager has made the namespace's ServiceAccount."""
        if not _answers(f"https://127.0.0.1:{self._ports.controller_manager}/healthz"):
            return False
        return self._admin.get(SERVICE_ACCOUNT, "default", "default") is not None

    def _kueue_serves(self) -> bool:
        """Mount the webhook's certificate as a kubelet would, then ask the health endpoint."""
        secret = self._admin.get(SECRET, KUEUE_WEBHOOK_SECRET, SYSTEM_NAMESPACE)
        data = as_map(at(secret, "data"))
        if not data.keys() >= _CERTIFICATE_FILES:
            return False
        folder = kueue_certificates(self._components.layout)
        folder.mkdir(mode=0o700, exist_ok=True)
        for file in _CERTIFICATE_FILES:
            content, path = base64.b64decode(data[file]), folder / file
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)
        return _answers(f"http://127.0.0.1:{self._ports.kueue_health}/readyz")


def kueue_certificates(layout: Layout) -> Path:
    """Return the folder from which Kueue serves its webhook."""
    return layout.pki / "kueue-webhook"


def _answers(url: str) -> bool:
    try:
        # Health endpoints serve certificates that each process signed itself.
        return httpx.get(url, timeout=_TIMEOUT_S, trust_env=False, verify=False).is_success
    except httpx.TransportError:
        return False
