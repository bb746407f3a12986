"""The other end of a TLS connection, as far as its certificate tells.

For: `serving.connection`, which reads it once a connection; `authenticator`, which judges it at every request.
In: the TLS object of a connection. Out: a frozen `Peer`: the leaf and the intermediates it brought along.
Promises: the leaf is one whose key the peer has proved to own and which OpenSSL accepted as a client certificate of
somebody we trust for something; for what it is trusted is decided later, against the trust of that moment, by
`issued_by`, never by one merged store.
Private: Python 3.11 and 3.12 show the presented chain only on the object behind `SSLObject`; 3.13 made it public.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

MAX_INTERMEDIATES = 4


@dataclass(frozen=True, slots=True)
class Peer:
    """A verified client certificate. `intermediates` are claims: each is checked when it is used."""

    leaf: x509.Certificate
    intermediates: tuple[x509.Certificate, ...] = ()

    @property
    def common_name(self) -> str:
        """Return the leaf's CN; empty when there is none."""
        names = name_values(self.leaf, NameOID.COMMON_NAME)
        return names[-1] if names else ""


def name_values(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    """Return the values of one kind of attribute of a subject, in order."""
    return tuple(str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid))


def peer_of(tls: ssl.SSLObject | ssl.SSLSocket | None) -> Peer | None:
    """Return who is at the other end of a finished handshake; None without a certificate, or with an unreadable one."""
    leaf = tls.getpeercert(binary_form=True) if tls is not None else None
    if leaf is None:
        return None
    try:
        parsed = x509.load_der_x509_certificate(leaf)
        rest = [x509.load_der_x509_certificate(der) for der in _presented(tls) if der != leaf]
    except ValueError:
        return None
    return Peer(parsed, tuple(rest[:MAX_INTERMEDIATES]))


def _presented(tls: Any) -> list[bytes]:
    if hasattr(tls, "get_unverified_chain"):
        return list(tls.get_unverified_chain())
    chain = tls._sslobj.get_unverified_chain() or ()
    return [ssl.PEM_cert_to_DER_cert(certificate.public_bytes()) for certificate in chain]


def issued_by(peer: Peer, authorities: Sequence[x509.Certificate], now: datetime) -> bool:
    """Say whether the leaf was issued by one of `authorities`, directly or through intermediates the peer showed."""
    if not is_current(peer.leaf, now):
        return False
    signed, depth = peer.leaf, 0
    remaining = list(peer.intermediates)
    while True:
        if any(_issued(signed, authority, now, depth) for authority in authorities):
            return True
        step = next((found for found in remaining if _issued(signed, found, now, depth)), None)
        if step is None:
            return False
        remaining.remove(step)
        signed, depth = step, depth + 1


def is_current(certificate: x509.Certificate, now: datetime) -> bool:
    """Say whether a certificate is valid at this moment."""
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _issued(signed: x509.Certificate, issuer: x509.Certificate, now: datetime, depth: int) -> bool:
    if signed == issuer or not is_current(issuer, now) or not _may_sign(issuer.extensions, depth):
        return False
    try:
        signed.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _may_sign(extensions: Iterable[x509.Extension[Any]], depth: int) -> bool:
    """Say whether a certificate is a CA that allows `depth` CAs below it."""
    may = False
    for extension in extensions:
        value = extension.value
        if isinstance(value, x509.BasicConstraints):
            may = value.ca and (value.path_length is None or depth <= value.path_length)
        elif isinstance(value, x509.KeyUsage) and not value.key_cert_sign:
            return False
    return may
