"""Certificates as tests need them: of any age, name and signer."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.now(UTC)
PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key."""

    parsed: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.parsed.public_bytes(PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()


def make(
    common_name: str = "",
    *groups: str,
    by: Certificate | None = None,
    ca: bool = False,
    path_length: int | None = None,
    usage: x509.ObjectIdentifier | None = ExtendedKeyUsageOID.CLIENT_AUTH,
    names: tuple[str, ...] = (),
    valid: tuple[timedelta, timedelta] = (timedelta(hours=-1), timedelta(days=1)),
    now: datetime = NOW,
) -> Certificate:
    """Issue a certificate; without `by` it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    attributes += [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
    subject = x509.Name(attributes)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.parsed.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + valid[0])
        .not_valid_after(now + valid[1])
        .add_extension(x509.BasicConstraints(ca=ca, path_length=path_length if ca else None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False)
    if usage is not None and not ca:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return Certificate(builder.sign(by.key if by else key, hashes.SHA256()), key)


@functools.cache
def authority(name: str) -> Certificate:
    """Return a root CA; the same one for the same name."""
    return make(name, ca=True)
