"""The devcluster's own CA and serving certificate, and the kubeconfig that trusts them.

For: `__main__`, tests. In: the data directory. Out: PEM files, a kubeconfig.
Promises: made once per data directory, so that clients keep trusting a restarted process; keys are readable by their
owner only.
"""

from __future__ import annotations

import base64
import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEAR = timedelta(days=365)
CA_FILE, CERT_FILE, KEY_FILE = "ca.crt", "server.crt", "server.key"
PROXY_CA_FILE, PROXY_CERT_FILE, PROXY_KEY_FILE = "front-proxy-ca.crt", "front-proxy.crt", "front-proxy.key"
FRONT_PROXY_NAME = "front-proxy-client"


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _YEAR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _make_ca(key: ec.EllipticCurvePrivateKey, name: str = "devcluster-ca") -> x509.Certificate:
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(name, name, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def _make_leaf(ca_key: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePublicKey) -> x509.Certificate:
    names = [
        x509.DNSName("localhost"),
        x509.DNSName("kubernetes.default.svc"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _builder("devcluster", "devcluster-ca", key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _make_client(ca_key: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePublicKey) -> x509.Certificate:
    return (
        _builder(FRONT_PROXY_NAME, "devcluster-front-proxy-ca", key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def ensure_front_proxy(folder: Path) -> None:
    """Write the front-proxy CA and the client certificate that extension servers see, unless they are there."""
    if all((folder / name).exists() for name in (PROXY_CA_FILE, PROXY_CERT_FILE, PROXY_KEY_FILE)):
        return
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write_private(folder / PROXY_KEY_FILE, private)
    (folder / PROXY_CA_FILE).write_bytes(_make_ca(ca_key, "devcluster-front-proxy-ca").public_bytes(pem))
    (folder / PROXY_CERT_FILE).write_bytes(_make_client(ca_key, key.public_key()).public_bytes(pem))


def ensure_certificates(folder: Path) -> None:
    """Write CA, leaf and key unless all of them are there."""
    if all((folder / name).exists() for name in (CA_FILE, CERT_FILE, KEY_FILE)):
        return
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    _write_private(
        folder / KEY_FILE,
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
    (folder / CA_FILE).write_bytes(_make_ca(ca_key).public_bytes(pem))
    (folder / CERT_FILE).write_bytes(_make_leaf(ca_key, key.public_key()).public_bytes(pem))


def _write_private(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def write_kubeconfig(path: Path, *, server: str, ca: bytes, token: str, user: str) -> None:
    """Write a kubeconfig with one context, readable by its owner only; replaced in one step."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "devcluster",
                "cluster": {"server": server, "certificate-authority-data": base64.b64encode(ca).decode()},
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "devcluster", "context": {"cluster": "devcluster", "user": user}}],
        "current-context": "devcluster",
        "preferences": {},
    }
    draft = path.with_name(path.name + ".new")
    _write_private(draft, yaml.safe_dump(config, sort_keys=False).encode())
    draft.replace(path)
