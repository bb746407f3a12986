"""The promises of kube.credentials and kube.tls."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import trustme
import yaml

from kube.clock import Clock
from kube.credentials import (
    RECHECK_S,
    CredentialFiles,
    Credentials,
    RereadCredentials,
    find_credentials,
    from_files,
    from_kubeconfig,
    in_cluster,
)
from kube.errors import CredentialsError
from kube.tls import api_server_context, server_context
from tests.builders.virtual_clock import VirtualClock

POD = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}


def in_pod(folder: Path, clock: Clock) -> RereadCredentials:
    (folder / "token").write_text("t1\n")
    (folder / "ca.crt").write_text("CA 1")
    return in_cluster(POD, folder=folder, clock=clock)


def test_b048_replaced_files_are_noticed_in_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        source = in_pod(tmp_path, clock)
        first = await source.current()
        assert (first.server, first.token, first.ca_pem) == ("https://[fd00::1]:443", "t1", "CA 1")
        (tmp_path / "token").write_text("t2")
        (tmp_path / "ca.crt").write_text("CA 2")
        assert (await source.current()).token == "t1"
        assert (await source.renewed()).token == "t2"
        (tmp_path / "token").write_text("t3")
        await clock.advance(RECHECK_S)
        last = await source.current()
        assert (last.token, last.ca_pem) == ("t3", "CA 2")
        assert not last.same_transport(first)
        assert last.same_transport(Credentials(server=last.server, token="t9", ca_pem="CA 2"))

    asyncio.run(scenario())


def test_a_file_that_is_gone_for_a_moment_keeps_the_last_good_ones(tmp_path: Path) -> None:
    async def scenario() -> None:
        source = in_pod(tmp_path, VirtualClock())
        await source.current()
        (tmp_path / "token").unlink()
        assert (await source.renewed()).token == "t1"
        with pytest.raises(CredentialsError, match=r"token file .* cannot be read"):
            await from_files(CredentialFiles(server="https://x", token=tmp_path / "token")).current()

    asyncio.run(scenario())


def test_those_who_ask_at_the_same_time_share_one_reading() -> None:
    async def scenario() -> None:
        reads: list[int] = []

        def read() -> Credentials:
            reads.append(1)
            return Credentials(server="https://x", token=f"t{len(reads)}")

        source = RereadCredentials(read, clock=VirtualClock())
        found = await asyncio.gather(*(source.current() for _ in range(20)))
        assert {each.token for each in found} == {"t1"}
        found = await asyncio.gather(*(source.renewed() for _ in range(20)))
        assert {each.token for each in found} == {"t2"}

    asyncio.run(scenario())


def test_no_secret_is_shown() -> None:
    shown = repr(Credentials(server="https://x", token="secret-1", certificate_pem="secret-2", key_pem="secret-3"))
    assert "secret" not in shown


def test_credentials_check_themselves() -> None:
    with pytest.raises(CredentialsError, match="must begin with https"):
        Credentials(server="x:443")
    for server in ("https://x:99999", "https://x:y", "https://[::1:443", "https://", "https://:443"):
        with pytest.raises(CredentialsError, match="no address"):
            Credentials(server=server)
    with pytest.raises(CredentialsError, match="needs its key"):
        Credentials(server="https://x", certificate_pem="c")
    with pytest.raises(CredentialsError, match="name a kubeconfig"):
        in_cluster({})


def test_a_kubeconfig_is_read_with_the_package(tmp_path: Path) -> None:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [
            {
                "name": "k",
                "cluster": {"server": "https://k:6443/", "certificate-authority-data": "Q0E=", "tls-server-name": "n"},
            }
        ],
        "users": [{"name": "u", "user": {"token": "tok"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))

    async def scenario() -> None:
        found = await from_kubeconfig(str(path)).current()
        assert (found.server, found.token, found.ca_pem, found.server_name) == ("https://k:6443", "tok", "CA", "n")
        with pytest.raises(CredentialsError, match="check file and context"):
            await from_kubeconfig(str(path), "other").current()
        with pytest.raises(CredentialsError, match="check file and context"):
            await from_kubeconfig(str(tmp_path / "absent")).current()
        chosen = await find_credentials(kubeconfig=str(path), environ=POD).current()
        assert chosen.server == "https://k:6443"

    asyncio.run(scenario())


@pytest.mark.component
def test_the_kubernetes_package_is_not_imported_for_a_pod() -> None:
    program = "import kube.runtime, kube.leader, kube.credentials, sys; print('kubernetes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_tls_contexts() -> None:
    ca = trustme.CA()
    pair = ca.issue_cert("localhost")
    chain = "".join(part.bytes().decode() for part in pair.cert_chain_pems)
    key, trust = pair.private_key_pem.bytes().decode(), ca.cert_pem.bytes().decode()
    client = api_server_context(ca_pem=trust, certificate_pem=chain, key_pem=key)
    assert client.minimum_version == ssl.TLSVersion.TLSv1_2
    assert not client.verify_flags & ssl.VERIFY_X509_STRICT
    assert client.verify_mode == ssl.CERT_REQUIRED
    assert client.check_hostname
    assert api_server_context(verify=False).verify_mode == ssl.CERT_NONE
    server = server_context(certificate_pem=chain, key_pem=key, client_ca_pem=trust)
    assert server.minimum_version == ssl.TLSVersion.TLSv1_2
    assert server.verify_mode == ssl.CERT_OPTIONAL
    with pytest.raises(CredentialsError, match="belong together"):
        api_server_context(certificate_pem=chain, key_pem=ca.issue_cert("x").private_key_pem.bytes().decode())
    with pytest.raises(CredentialsError, match="not readable PEM"):
        api_server_context(ca_pem="nonsense")


def test_key_material_is_not_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pair = trustme.CA().issue_cert("localhost")
    chain, key = pair.cert_chain_pems[0].bytes().decode(), pair.private_key_pem.bytes().decode()
    api_server_context(certificate_pem=chain, key_pem=key)
    with pytest.raises(CredentialsError):
        api_server_context(certificate_pem=chain, key_pem="nonsense")
    assert list(tmp_path.iterdir()) == []
