"""The state folder: where everything of one control plane lies, and which ports it has.

For: every module that writes or reads a file of a running control plane.
In: a folder. Out: paths, and ports kept in `ports.json` so that a restarted process finds its own again.
Promises: ports are free when chosen and lie below the range the kernel hands to outgoing connections, so a process
that restarts does not find its port taken by somebody's client; `HeldPorts` keeps them from another control plane that
starts at the same time. A folder of anything else is never removed.
"""

from __future__ import annotations

import json
import random
import shutil
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hack.controlplane.errors import ControlPlaneError

_PORT_RANGE = range(20000, 32000)
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """One port a listener, all on 127.0.0.1."""

    etcd_client: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    kueue_webhook: int
    kueue_health: int
    nfd_master: int
    kwok: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths inside one state folder."""

    root: Path

    @property
    def pki(self) -> Path:
        """Return the folder of keys and certificates."""
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        """Return the folder with one log a process."""
        return self.root / "logs"

    @property
    def etc(self) -> Path:
        """Return the folder of rendered configuration."""
        return self.root / "etc"

    @property
    def data(self) -> Path:
        """Return etcd's data folder."""
        return self.root / "etcd"

    @property
    def audit_log(self) -> Path:
        """Return kube-apiserver's audit log, one JSON event a line."""
        return self.logs / "audit.log"

    @property
    def processes(self) -> Path:
        """Return the file of process ids that `down` goes by."""
        return self.root / "processes.json"

    @property
    def admin_kubeconfig(self) -> Path:
        """Return the kubeconfig of the person who started the control plane."""
        return self.root / "kubeconfig"

    def kubeconfig(self, user: str) -> Path:
        """Return the kubeconfig of one of the processes."""
        return self.etc / f"{user}.kubeconfig"

    def log(self, process: str) -> Path:
        """Return the log of one process."""
        return self.logs / f"{process}.log"

    def create(self) -> None:
        """Make the folders."""
        for folder in self._folders:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def empty(self) -> None:
        """Remove what an earlier run left, the folder itself stays; refuse one in which anything else lies."""
        foreign = sorted({path.name for path in self.root.iterdir()} - {path.name for path in self._folders})
        if foreign and not self._ports_file.exists():
            raise ControlPlaneError(
                f"{self.root}: holds {', '.join(foreign[:3])} and no control plane, and would be emptied; "
                "name another with --state-dir"
            )
        for path in self.root.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def ports(self, held: HeldPorts | None = None, *, rng: random.Random | None = None) -> Ports:
        """Return this folder's ports, choosing them the first time; those chosen are kept from others by `held`."""
        file = self._ports_file
        if file.exists():
            try:
                return Ports(**json.loads(file.read_text()))
            except (ValueError, TypeError) as error:
                raise ControlPlaneError(
                    f"{file}: not this version's ports ({error}); stop what runs here with "
                    f"`python -m hack.controlplane down --state-dir {self.root}`, then start anew"
                ) from error
        chosen = (port for port in free_ports(rng or random.Random()) if held is None or held.take(port))
        names = Ports.__dataclass_fields__
        ports = Ports(**{name: next(chosen) for name in names})
        file.write_text(json.dumps(asdict(ports), indent=1))
        return ports

    @property
    def _folders(self) -> tuple[Path, ...]:
        return self.pki, self.logs, self.etc, self.data

    @property
    def _ports_file(self) -> Path:
        return self.root / "ports.json"


class HeldPorts:
    """Ports that nobody who looks for a free one finds, also before, and between, the servers that listen there.

    Such a port is bound and not listened on. Who looks binds without SO_REUSEADDR and fails; a server sets it and does
    not.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def take(self, port: int) -> bool:
        """Hold a port and say whether it was free."""
        holder = socket.socket()
        try:
            holder.bind((_HOST, port))
        except OSError:
            holder.close()
            return False
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._sockets.append(holder)
        return True

    def release(self) -> None:
        """Hold none any more."""
        while self._sockets:
            self._sockets.pop().close()


def free_ports(rng: random.Random) -> Iterator[int]:
    """Yield ports of 127.0.0.1 on which nothing listens, in an order of `rng`'s choosing."""
    for port in rng.sample(_PORT_RANGE, len(_PORT_RANGE)):
        with socket.socket() as probe:
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
        yield port
