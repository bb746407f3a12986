"""A server's TLS context whose certificate and trust can change while it serves.

For: servers of ours. In: certificates as they change. Out: one `ssl.SSLContext` to listen with.
Promises: handshakes that begin after `swap` use the new certificate and the new client trust; open connections stay;
a server that asks for client certificates asks also while it trusts nobody (then every one that is shown is refused).
"""

from __future__ import annotations

import ssl

from kube.tls import server_context


class LiveContext:
    """`context` is for the listener; `swap` changes what it shows."""

    def __init__(
        self, *, certificate_pem: str, key_pem: str, client_ca_pem: str = "", asks_clients: bool = False
    ) -> None:
        self._current = server_context(certificate_pem=certificate_pem, key_pem=key_pem, client_ca_pem=client_ca_pem)
        self.context = server_context(certificate_pem=certificate_pem, key_pem=key_pem, client_ca_pem=client_ca_pem)
        if asks_clients:
            # OpenSSL takes the certificate and the trust of the chosen context, but whether to ask from this one.
            self.context.verify_mode = ssl.CERT_OPTIONAL
        self.context.sni_callback = self._choose

    def swap(self, *, certificate_pem: str, key_pem: str, client_ca_pem: str = "") -> None:
        """Use another certificate and trust from now on; when they cannot be used, raise and keep the old ones."""
        self._current = server_context(certificate_pem=certificate_pem, key_pem=key_pem, client_ca_pem=client_ca_pem)

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _own: ssl.SSLContext) -> None:
        # The callback runs in every handshake, with or without a server name.
        connection.context = self._current
