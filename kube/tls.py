"""The one place where TLS contexts are made.

For: `kube.connection` (towards the API server), servers of ours, the front-proxy.
In: PEM text. Out: `ssl.SSLContext`.
Promises: TLS 1.2 or newer everywhere; key material is never left on disk; towards the API server
`VERIFY_X509_STRICT` is off, because Python 3.13 turns it on and many clusters' CAs lack the extensions it wants; a
read takes memory for one record.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import Any

from kube.errors import CredentialsError

RECORD_BYTES = 16 * 1024
"""The most that one TLS record carries, and so the most that one read returns."""


class RecordObject(ssl.SSLObject):
    """A TLS connection whose reads do not ask for more memory than they fill, and that knows who ended it.

    uvloop reads 256 KiB at a time: fresh pages from the kernel for an event of 1 KiB, 40 % of what relaying it cost.
    """

    has_ended = False
    """Whether the peer said that it sends no more. An end without that word may be anybody's on the way."""

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        """Read at most one record; nothing at the peer's own end."""
        data = super().read(min(len, RECORD_BYTES), buffer)
        if not data:
            self.has_ended = True
        return data


def api_server_context(
    *, ca_pem: str = "", certificate_pem: str = "", key_pem: str = "", verify: bool = True
) -> ssl.SSLContext:
    """Return the client side towards an API server. An empty CA means the machine's own trust store."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslobject_class = RecordObject
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_pem:
        _trust(context, ca_pem)
    else:
        context.load_default_certs()
    if certificate_pem:
        load_pair(context, certificate_pem, key_pem)
    return context


def server_context(*, certificate_pem: str, key_pem: str, client_ca_pem: str = "") -> ssl.SSLContext:
    """Return a server side; with a client CA it asks for, but does not insist on, a client certificate.

    A CA of `client_ca_pem` need not be a root. Sessions are never resumed: a resumed one would carry a certificate that
    was checked under the trust of its first handshake, and without its chain.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = RecordObject
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    load_pair(context, certificate_pem, key_pem)
    if client_ca_pem:
        _trust(context, client_ca_pem)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def load_pair(context: ssl.SSLContext, certificate_pem: str, key_pem: str) -> None:
    """Load a certificate chain and its key; OpenSSL reads them from a file only, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tls-") as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_text(f"{certificate_pem.strip()}\n{key_pem.strip()}\n")
        try:
            context.load_cert_chain(pair)
        except (ssl.SSLError, OSError) as error:
            raise CredentialsError("client certificate and key must be PEM and belong together") from error


def _trust(context: ssl.SSLContext, ca_pem: str) -> None:
    try:
        context.load_verify_locations(cadata=ca_pem)
    except (ssl.SSLError, ValueError) as error:
        raise CredentialsError("the CA bundle is not readable PEM") from error
