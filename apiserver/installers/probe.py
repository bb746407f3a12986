"""Does our listener answer as the aggregator will see it?

For: `installation`, before it registers anything. In: the port, the CA bundle that will be published, the name that
will be checked. Out: nothing, or why not.
Promises: a real handshake that verifies name and CA, a real request for `/readyz`, a deadline.
"""

from __future__ import annotations

import asyncio

from kube.errors import OperatorError
from kube.tls import api_server_context

DEADLINE_S = 5.0


class NotAnswering(OperatorError):
    """The listener is not what the aggregator expects."""


async def probe(*, address: str, port: int, server_name: str, bundle: str) -> None:
    """Ask `/readyz`; raises NotAnswering. Without a bundle nothing can be verified, as for the aggregator."""
    context = api_server_context(ca_pem=bundle, verify=bool(bundle))
    try:
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection(address, port, ssl=context, server_hostname=server_name)
            try:
                writer.write(f"GET /readyz HTTP/1.1\r\nhost: {server_name}\r\nconnection: close\r\n\r\n".encode())
                first = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        raise NotAnswering(f"{address}:{port} as {server_name}: {type(error).__name__}: {error}") from error
    if first.split()[1:2] != [b"200"]:
        raise NotAnswering(f"{address}:{port} as {server_name}: /readyz answered {first.decode('latin-1').strip()!r}")
