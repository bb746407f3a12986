"""Certificates and kubeconfig."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from hack.devcluster.certificates import CA_FILE, CERT_FILE, KEY_FILE, ensure_certificates, write_kubeconfig


def test_certificates_are_made_once_and_chain(tmp_path: Path) -> None:
    ensure_certificates(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in (CA_FILE, CERT_FILE, KEY_FILE)}
    ensure_certificates(tmp_path)
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    ca, leaf = (x509.load_pem_x509_certificate(before[name]) for name in (CA_FILE, CERT_FILE))
    leaf.verify_directly_issued_by(ca)
    names = leaf.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    assert isinstance(names, x509.SubjectAlternativeName)
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "kubernetes.default.svc"]
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o077 == 0


def test_a_kubeconfig_is_private_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    for token in ("one", "two"):
        write_kubeconfig(path, server="https://127.0.0.1:1", ca=b"pem", token=token, user="admin")
    config = yaml.safe_load(path.read_text())
    assert config["users"] == [{"name": "admin", "user": {"token": "two"}}]
    assert base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]) == b"pem"
    assert path.stat().st_mode & 0o077 == 0
