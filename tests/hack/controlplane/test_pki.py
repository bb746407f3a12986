"""Tests of the certificates."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from hack.controlplane.pki import CLUSTER_CA, FRONT_PROXY_CA, SERVICE_ACCOUNT_KEY, Pki


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    pki = Pki(tmp_path)
    pki.create(["127.0.0.1", "localhost"])
    return pki


def load(pki: Pki, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pki.pair(name).certificate.read_bytes())


def test_a_user_certificate_names_user_and_groups(pki: Pki) -> None:
    pki.issue("admin", common_name="somebody", groups=["system:masters"])
    subject = load(pki, "admin").subject
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["somebody"]
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["system:masters"]


def test_the_front_proxy_has_an_authority_of_its_own(pki: Pki) -> None:
    client = load(pki, "front-proxy-client")
    client.verify_directly_issued_by(load(pki, FRONT_PROXY_CA))
    with pytest.raises((InvalidSignature, ValueError)):
        client.verify_directly_issued_by(load(pki, CLUSTER_CA))


def test_the_server_certificate_carries_addresses_and_names(pki: Pki) -> None:
    names = load(pki, "kube-apiserver").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


def test_keys_are_private_and_kept(pki: Pki) -> None:
    key = pki.pair(SERVICE_ACCOUNT_KEY).key
    before = key.read_bytes()
    pki.create(["127.0.0.1"])
    assert key.read_bytes() == before
    assert all(path.stat().st_mode & 0o077 == 0 for path in pki.folder.glob("*.key"))
