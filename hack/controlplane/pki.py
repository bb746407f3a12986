"""Keys and certificates of one control plane.

For: the start of a control plane, and whoever needs a client certificate of its own.
In: the `pki` folder. Out: PEM files `<name>.crt` and `<name>.key`.
Promises: two authorities that do not trust each other (clients and servers; the aggregator's front proxy), as in a
real cluster; private keys are readable by their owner only; files that exist are kept.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALIDITY = datetime.timedelta(days=365)
_CLOCK_SKEW = datetime.timedelta(minutes=5)

CLUSTER_CA = "ca"
FRONT_PROXY_CA = "front-proxy-ca"
SERVICE_ACCOUNT_KEY = "service-account"


@dataclass(frozen=True, slots=True)
class Pair:
    """Paths of a certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Pki:
    """Issues certificates into one folder."""

    folder: Path

    def pair(self, name: str) -> Pair:
        """Return where the certificate and key of `name` are, existing or not."""
        return Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")

    def create(self, server_names: Sequence[str]) -> None:
        """Issue both authorities, kube-apiserver's and the aggregator's certificates and the token signing key."""
        for authority in (CLUSTER_CA, FRONT_PROXY_CA):
            self._authority(authority)
        self.issue("kube-apiserver", common_name="kube-apiserver", server_names=server_names)
        self.issue("front-proxy-client", common_name="front-proxy-client", authority=FRONT_PROXY_CA)
        key = self.pair(SERVICE_ACCOUNT_KEY).key
        if not key.exists():
            signing = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            _write_key(key, signing)
            public = signing.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            key.with_suffix(".pub").write_bytes(public)

    def issue(
        self,
        name: str,
        *,
        common_name: str,
        groups: Sequence[str] = (),
        server_names: Sequence[str] = (),
        authority: str = CLUSTER_CA,
    ) -> Pair:
        """Issue a certificate; for a user the common name is the user and `groups` are its groups."""
        pair = self.pair(name)
        if pair.certificate.exists():
            return pair
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server_names else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = _builder(x509.Name(subject), key.public_key(), is_authority=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if server_names:
            alternatives = x509.SubjectAlternativeName([_general_name(entry) for entry in server_names])
            builder = builder.add_extension(alternatives, critical=False)
        signer = self.pair(authority)
        ca = x509.load_pem_x509_certificate(signer.certificate.read_bytes())
        ca_key = serialization.load_pem_private_key(signer.key.read_bytes(), password=None)
        if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{signer.key}: not an elliptic curve key")
        certificate = builder.issuer_name(ca.subject).sign(ca_key, hashes.SHA256())
        _write_key(pair.key, key)
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return pair

    def _authority(self, name: str) -> None:
        pair = self.pair(name)
        if pair.certificate.exists():
            return
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"controlplane-{name}")])
        certificate = (
            _builder(subject, key.public_key(), is_authority=True).issuer_name(subject).sign(key, hashes.SHA256())
        )
        _write_key(pair.key, key)
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _builder(subject: x509.Name, key: ec.EllipticCurvePublicKey, *, is_authority: bool) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
