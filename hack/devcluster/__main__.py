"""`python -m hack.devcluster`: serve a devcluster on loopback over TLS until told to stop.

In: flags. Out: a kubeconfig, one readiness line on stdout, log lines on stderr.
Promises: the same data directory gives the same objects, versions, certificates and token after a restart; SIGTERM ends
watches with a clean EOF and exits within a few seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
import yaml

from api.crds import crd_manifests
from hack.devcluster import certificates
from hack.devcluster.access import Account, UsersError, load_accounts
from hack.devcluster.foreign_crds import foreign_manifests
from hack.devcluster.server import ADMIN, VERSION, DevCluster
from hack.devcluster.store import Store

log = logging.getLogger("devcluster")


class Server(uvicorn.Server):
    """uvicorn that leaves signals to us: its own handling raises them again and so ends the process too early."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(prog="python -m hack.devcluster", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="where objects, certificates and token live")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 picks a free one")
    parser.add_argument("--kubeconfig", type=Path, help="where to write it (default: <data-dir>/kubeconfig)")
    parser.add_argument("--users", type=Path, help="YAML file of more users, their tokens and rules")
    return parser.parse_args(argv)


def ensure_token(folder: Path) -> str:
    """Return the administrator's token, made at the first start."""
    path = folder / "token"
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(24))
    return path.read_text().strip()


def listen(port: int) -> socket.socket:
    """Bind on loopback."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener


async def serve(folder: Path, listener: socket.socket, *, kubeconfig: Path, accounts: Sequence[Account]) -> None:
    """Serve until a signal."""
    store = Store(folder / "devcluster.sqlite")
    token = ensure_token(folder)
    crds = (*foreign_manifests(), *crd_manifests())
    cluster = DevCluster(store, token=token, crds=crds, accounts=accounts, front_proxy=folder)
    url = f"https://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        cluster.app,
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_keep_alive=120,
        timeout_graceful_shutdown=3,
        ssl_certfile=folder / certificates.CERT_FILE,
        ssl_keyfile=str(folder / certificates.KEY_FILE),
        backlog=4096,
    )
    ca = (folder / certificates.CA_FILE).read_bytes()
    certificates.write_kubeconfig(kubeconfig, server=url, ca=ca, token=token, user=ADMIN.name)
    gc.freeze()
    async with cluster.running():
        server = Server(config)

        def stop() -> None:
            cluster.app.drain()
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        print(f"devcluster {VERSION} ready on {url}, kubeconfig {kubeconfig}", flush=True)
        await server.serve(sockets=[listener])
    store.close()


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    try:
        accounts = load_accounts(arguments.users) if arguments.users else []
    except (UsersError, OSError, yaml.YAMLError) as error:
        print(f"devcluster: {error}", file=sys.stderr)
        return 2
    folder: Path = arguments.data_dir
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    certificates.ensure_certificates(folder)
    listener = listen(arguments.port)
    listener.listen(4096)
    kubeconfig = (arguments.kubeconfig or folder / "kubeconfig").absolute()
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(serve(folder, listener, kubeconfig=kubeconfig, accounts=accounts))
    return 0


def _new_loop() -> asyncio.AbstractEventLoop:
    # Imported here: tests that use the parser alone need no uvloop.
    import uvloop

    return uvloop.new_event_loop()


if __name__ == "__main__":
    sys.exit(main())
