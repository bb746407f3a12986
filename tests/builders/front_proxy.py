"""ConfigMap `kube-system/extension-apiserver-authentication` in its variants, and whom a test cluster trusts."""

from __future__ import annotations

from typing import Any

from apiserver.authn.request_header import Trust, read_trust
from tests.builders.pki import authority

PROXY, PROXY_2, CLIENTS = (authority(name) for name in ("proxy-ca", "proxy-ca-2", "client-ca"))
ALLOWED = "front-proxy-client"


def config_map(**data: str | None) -> dict[str, Any]:
    """Return the ConfigMap; `client_ca_file=None` leaves a key out, other words replace it."""
    filled: dict[str, str | None] = {
        "client-ca-file": CLIENTS.pem,
        "requestheader-client-ca-file": PROXY.pem,
        "requestheader-allowed-names": f'["{ALLOWED}"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        **{key.replace("_", "-"): value for key, value in data.items()},
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {key: value for key, value in filled.items() if value is not None},
    }


def trust(**data: str | None) -> Trust:
    """Return the trust that a good ConfigMap gives."""
    found, problems = read_trust(config_map(**data)["data"])
    assert found is not None, problems
    return found
