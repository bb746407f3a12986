"""The promises of kube.certs."""

from __future__ import annotations

import asyncio
import random
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from kube.certs.authority import CA_LIFE, LEAF_LIFE, Pair, issue_leaf, names_of, new_authority
from kube.certs.keeper import CertificateKeeper
from kube.certs.live import LiveContext
from kube.certs.rotation import SPREAD, Certificates, first, from_data, next_step
from kube.errors import CredentialsError
from kube.tls import api_server_context
from tests.builders.virtual_clock import VirtualClock, settle
from tests.kube.wire import FakeApi, client_over

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("gpustack-operator.gpustack-system.svc", "127.0.0.1")
SECRETS = "/api/v1/namespaces/gpustack-system/secrets"


def verifies(leaf: Pair, bundle: str, moment: datetime) -> bool:
    """Judge as a strict TLS client does."""
    store = Store(x509.load_pem_x509_certificates(bundle.encode()))
    verifier = PolicyBuilder().store(store).time(moment).build_server_verifier(x509.DNSName(NAMES[0]))
    try:
        verifier.verify(leaf.parsed, [])
    except x509.verification.VerificationError:
        return False
    return True


def test_a_leaf_verifies_strictly_and_serves_its_names() -> None:
    made = first(NAMES, NOW)
    assert verifies(made.leaf, made.bundle, NOW)
    assert verifies(made.leaf, made.bundle, NOW - timedelta(minutes=59))
    assert not verifies(made.leaf, made.bundle, NOW + LEAF_LIFE + timedelta(seconds=1))
    assert not verifies(made.leaf, new_authority("x", NOW).certificate, NOW)
    assert names_of(made.leaf) == set(NAMES)
    assert "PRIVATE" not in repr(made)


def test_the_secret_holds_everything() -> None:
    made = first(NAMES, NOW)
    assert from_data(made.to_data()) == made
    changed = next_step(made, NAMES, NOW + CA_LIFE, 0)
    assert changed is not None
    assert from_data(changed.to_data()) == changed


@pytest.mark.parametrize("part", ["ca.crt", "signer.crt", "signer.key", "tls.crt", "tls.key"])
def test_what_cannot_be_read_is_replaced_as_a_whole(part: str) -> None:
    data: dict[str, object] = dict(first(NAMES, NOW).to_data())
    other = first(NAMES, NOW).to_data()
    for value in (None, "", "%%%", "bm9uc2Vuc2U=", 7):
        assert from_data({**data, part: value}) is None
    del data[part]
    assert from_data(data) is None
    if part.endswith(".key"):
        assert from_data({**data, part: other[part]}) is None
    assert from_data({}) is None


def test_a_leaf_is_renewed_at_two_thirds_with_jitter() -> None:
    made = first(NAMES, NOW)
    assert next_step(made, NAMES, NOW + timedelta(days=59), 0) is None
    assert next_step(made, NAMES, NOW + timedelta(days=60), 0.5) is None
    for jitter, days in ((0.0, 60), (1.0, 64.5)):
        renewed = next_step(made, NAMES, NOW + timedelta(days=days), jitter)
        assert renewed is not None
        assert renewed.leaf != made.leaf
        assert (renewed.signer, renewed.trust) == (made.signer, made.trust)


def test_a_leaf_that_lacks_a_name_or_its_signer_is_renewed_now() -> None:
    made = first(NAMES, NOW)
    renewed = next_step(made, (*NAMES, "new.test"), NOW, 0)
    assert renewed is not None
    assert "new.test" in names_of(renewed.leaf)
    foreign = issue_leaf(new_authority("other", NOW), NAMES, NOW)
    mended = next_step(Certificates(trust=made.trust, signer=made.signer, leaf=foreign), NAMES, NOW, 0)
    assert mended is not None
    assert verifies(mended.leaf, mended.bundle, NOW)


def test_at_every_moment_the_leaf_verifies_against_what_was_published_a_spread_before() -> None:
    moment, have = NOW, first(NAMES, NOW)
    bundles: list[tuple[datetime, str]] = [(NOW, have.bundle)]
    seen = {have.signer.certificate}
    # the quiet years in big steps, the change in small ones
    due = NOW + CA_LIFE * 2 / 3
    while moment < due + timedelta(hours=4):
        moment = moment + timedelta(minutes=10) if moment >= due else min(moment + timedelta(days=20), due)
        have = next_step(have, NAMES, moment, 0) or have
        bundles.append((moment, have.bundle))
        seen.add(have.signer.certificate)
        old = next(bundle for at, bundle in reversed(bundles) if at <= moment - SPREAD or at == NOW)
        assert verifies(have.leaf, old, moment)
        assert verifies(have.leaf, have.bundle, moment)
    assert len(seen) == 2
    assert have.trust == (have.signer.certificate,)


def keeper(api: FakeApi, clock: VirtualClock, seed: int) -> CertificateKeeper:
    return CertificateKeeper(
        client_over(api, clock),
        name="gpustack-operator-tls",
        namespace="gpustack-system",
        names=NAMES,
        clock=clock,
        rng=random.Random(seed),
    )


def test_replicas_that_start_together_share_the_winners() -> None:
    async def scenario() -> None:
        api, clock = FakeApi(), VirtualClock(NOW)
        tasks = [asyncio.create_task(keeper(api, clock, seed).ensure()) for seed in range(5)]
        await clock.advance(5)
        assert len({(await task).leaf.certificate for task in tasks}) == 1
        assert len([write for write in api.writes if write[0] == "PUT"]) == 0

    asyncio.run(scenario())


def test_a_keeper_reports_changes_and_outlives_an_unreachable_server() -> None:
    async def scenario() -> None:
        api, clock = FakeApi(), VirtualClock(NOW)
        seen: list[Certificates] = []
        task = asyncio.create_task(keeper(api, clock, 1).run(seen.append))
        await settle()
        assert len(seen) == 1
        clock.jump_wall(timedelta(days=70).total_seconds())
        await clock.advance(400)
        assert len(seen) == 2
        secret = api.objects[f"{SECRETS}/gpustack-operator-tls"]
        assert from_data(secret["data"]) == seen[-1]
        secret["data"] = None
        await clock.advance(400)
        assert len(seen) == 3
        del api.objects[f"{SECRETS}/gpustack-operator-tls"]
        await clock.advance(400)
        assert len(seen) == 4
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(scenario())


@pytest.mark.parametrize("loss", ["deleted", "unreadable"])
def test_a_lost_secret_leaves_the_other_replicas_trusted(loss: str) -> None:
    async def scenario() -> None:
        api, clock = FakeApi(), VirtualClock(NOW)
        one, other = keeper(api, clock, 1), keeper(api, clock, 2)
        await one.ensure()
        shown = await other.ensure()
        if loss == "deleted":
            del api.objects[f"{SECRETS}/gpustack-operator-tls"]
        else:
            api.objects[f"{SECRETS}/gpustack-operator-tls"]["data"] = None
        made = await one.ensure()
        assert made.leaf != shown.leaf
        assert verifies(made.leaf, made.bundle, NOW)
        assert verifies(shown.leaf, made.bundle, NOW), "the other replica shows it until it looks again"
        assert await other.ensure() == made
        clock.jump_wall(SPREAD.total_seconds())
        assert (await one.ensure()).trust == (made.signer.certificate,)

    asyncio.run(scenario())


@pytest.mark.component
def test_a_swap_is_seen_by_the_next_handshake() -> None:
    async def scenario() -> None:
        now = datetime.now(UTC)
        old, new = first(NAMES, now), first(NAMES, now)
        live = LiveContext(certificate_pem=old.leaf.certificate, key_pem=old.leaf.key)
        server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=live.context)
        port = server.sockets[0].getsockname()[1]

        async def trusts(made: Certificates) -> bool:
            context = api_server_context(ca_pem=made.bundle)
            context.verify_flags |= ssl.VERIFY_X509_STRICT
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            except ssl.SSLCertVerificationError:
                return False
            writer.close()
            return True

        assert await trusts(old)
        with pytest.raises(CredentialsError):
            live.swap(certificate_pem=new.leaf.certificate, key_pem=old.leaf.key)
        assert await trusts(old)
        live.swap(certificate_pem=new.leaf.certificate, key_pem=new.leaf.key)
        assert (await trusts(old), await trusts(new)) == (False, True)
        server.close()
        await server.wait_closed()

    asyncio.run(scenario())
