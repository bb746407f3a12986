"""How kube-apiserver reaches this server.

For: what leads requests and questions here: APIServices, webhook configurations. In: our Service, the CA of our
certificate. Out: one frozen value.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way here."""

    service: str
    namespace: str
    port: int
    bundle: str
    """CA that signed our certificate; empty when the certificate was brought without its CA."""

    @property
    def ca_bundle(self) -> str:
        """Return the bundle as objects carry it; empty when there is none."""
        return base64.b64encode(self.bundle.encode()).decode()
