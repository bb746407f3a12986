"""TLS contexts as everything of ours uses them."""

from __future__ import annotations

import ssl
import tracemalloc

import trustme

from kube.tls import RECORD_BYTES, api_server_context, server_context


def both_ends() -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Return client and server after their handshake."""
    ca = trustme.CA()
    pair = ca.issue_cert("localhost")
    chain = "".join(part.bytes().decode() for part in pair.cert_chain_pems)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = api_server_context(ca_pem=ca.cert_pem.bytes().decode()).wrap_bio(
        to_client, to_server, server_hostname="localhost"
    )
    context = server_context(certificate_pem=chain, key_pem=pair.private_key_pem.bytes().decode())
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client, server


def test_a_read_takes_memory_for_one_record() -> None:
    client, server = both_ends()
    for reader, writer in ((client, server), (server, client)):
        writer.write(b"x" * (RECORD_BYTES + 10))
        tracemalloc.start()
        try:
            assert len(reader.read(256 * 1024)) == RECORD_BYTES
            assert tracemalloc.get_traced_memory()[1] < 2 * RECORD_BYTES
        finally:
            tracemalloc.stop()
        assert reader.read(256 * 1024) == b"x" * 10
