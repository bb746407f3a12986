"""What is shown changes while it is served."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from apiserver.serving.certificates import ServingTls, Shown, follow_folder, follow_secret, read_folder
from kube.certs.keeper import CHECK_S, RETRY_S, CertificateKeeper
from kube.certs.rotation import SPREAD, first, from_data
from kube.errors import OperatorError
from tests.apiserver.serving.https import NAME, Server, answer, run
from tests.builders.pki import NOW, Certificate, authority, make
from tests.builders.virtual_clock import VirtualClock, settle
from tests.kube.wire import FakeApi, client_over, refuse

SECRETS = "/api/v1/namespaces/gpustack-system/secrets"


def shown(certificate: Certificate, bundle: str = "") -> Shown:
    return Shown(certificate_pem=certificate.pem, key_pem=certificate.key_pem, bundle=bundle)


def test_a_certificate_of_its_own_making_comes_first() -> None:
    tls = ServingTls((NAME,), NOW)
    assert not tls.is_shared
    assert "BEGIN CERTIFICATE" in tls.bundle


def test_what_cannot_be_used_keeps_the_last_good(caplog: pytest.LogCaptureFixture) -> None:
    tls = ServingTls((NAME,), NOW)
    heard: list[None] = []
    tls.on_bundle = lambda: heard.append(None)
    root = authority("root")
    leaf = make(NAME, by=root, names=(NAME,), usage=None)
    tls.show(shown(leaf, root.pem))
    other = make(NAME, by=root, names=(NAME,), usage=None)
    tls.show(Shown(certificate_pem=leaf.pem, key_pem=other.key_pem, bundle=root.pem))
    tls.show(Shown(certificate_pem="nonsense", key_pem="nonsense", bundle=""))
    tls.trust("nonsense")
    assert (tls.is_shared, tls.bundle) == (True, root.pem)
    assert len(heard) == 1
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "certificate not usable",
        "certificate not usable",
        "client CAs not usable",
    ]
    assert "PRIVATE" not in caplog.text


def test_a_new_leaf_is_shown_to_new_connections_and_old_ones_stay() -> None:
    async def app(_scope: object, _receive: object, send: object) -> None:
        await answer(send)

    async def test() -> None:
        async with Server(app).running() as server:
            old = await server.connect()
            root = authority("root")
            server.tls.show(shown(make(NAME, by=root, names=(NAME,), usage=None), root.pem))
            new = await server.connect()  # it trusts the new bundle alone
            for client in (old, new):
                reply = await client.ask()
                assert reply is not None
                assert reply.code == 200
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection(
                    "127.0.0.1",
                    server.listener.port,
                    ssl=ssl.create_default_context(cadata=authority("other").pem),
                    server_hostname=NAME,
                )
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection(
                    "127.0.0.1", server.listener.port, ssl=server.context(), server_hostname="another.name"
                )

    run(test())


def test_replicas_show_one_certificate_and_follow_its_rotation() -> None:
    async def test() -> None:
        clock, api = VirtualClock(NOW), FakeApi()
        replicas = []
        for seed in (1, 2):
            tls = ServingTls((NAME,), clock.time())
            keeper = CertificateKeeper(
                client_over(api, clock),
                name="serving",
                namespace="gpustack-system",
                names=(NAME,),
                clock=clock,
                rng=random.Random(seed),
            )
            replicas.append((tls, asyncio.create_task(follow_secret(keeper, tls))))
        await clock.advance(5)
        first_bundle = replicas[0][0].bundle
        assert [tls.bundle for tls, _ in replicas] == [first_bundle] * 2
        assert all(tls.is_shared for tls, _ in replicas)
        clock.jump_wall(timedelta(days=65).total_seconds())
        await clock.advance(CHECK_S * 3)
        renewed = from_data(api.objects[f"{SECRETS}/serving"]["data"])
        assert renewed is not None
        assert renewed.leaf.issued > NOW + timedelta(days=64)
        assert [tls._shown.certificate_pem for tls, _ in replicas] == [renewed.leaf.certificate] * 2
        for _, task in replicas:
            task.cancel()
        assert SPREAD.total_seconds() > CHECK_S

    asyncio.run(test())


def test_an_api_server_that_is_away_at_the_start_is_asked_again_soon() -> None:
    async def test() -> None:
        clock = VirtualClock(NOW)
        api = FakeApi()
        away = [refuse(403, "Forbidden")]

        async def wire(request: httpx.Request) -> httpx.Response | None:
            return away.pop()(request) if away else None  # type: ignore[return-value] # a plain answer, not awaited

        api.before = wire
        tls = ServingTls((NAME,), NOW)
        keeper = CertificateKeeper(
            client_over(api, clock),
            name="serving",
            namespace="gpustack-system",
            names=(NAME,),
            clock=clock,
            rng=random.Random(1),
        )
        task = asyncio.create_task(follow_secret(keeper, tls))
        await settle()
        before = tls.is_shared
        await clock.advance(RETRY_S * 1.3)
        assert (before, tls.is_shared) == (False, True)
        task.cancel()

    asyncio.run(test())


def fill(folder: Path, *, authority_pem: str = "") -> None:
    made = first((NAME,), NOW)
    (folder / "tls.crt").write_text(made.leaf.certificate)
    (folder / "tls.key").write_text(made.leaf.key)
    if authority_pem:
        (folder / "ca.crt").write_text(authority_pem)


def test_a_directory_is_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        clock = VirtualClock(NOW)
        tls = ServingTls((NAME,), NOW)
        task = asyncio.create_task(follow_folder(tmp_path, tls, clock))
        await settle()
        before = tls.is_shared
        fill(tmp_path)
        await clock.advance(10)
        assert (before, tls.is_shared, tls.bundle) == (False, True, "")
        fill(tmp_path, authority_pem=authority("root").pem)
        await clock.advance(10)
        assert tls.bundle == authority("root").pem
        (tmp_path / "tls.key").unlink()
        await clock.advance(10)
        assert tls.bundle == authority("root").pem
        task.cancel()

    asyncio.run(test())
    assert "--cert-dir" in caplog.text or any(
        "--cert-dir" in record.__dict__.get("reason", "") for record in caplog.records
    )


def test_a_directory_without_a_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="--cert-dir"):
        read_folder(tmp_path)
