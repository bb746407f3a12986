"""Who we are towards the API server.

For: `kube.connection`, which asks before every request.
In: files of a Pod, files named on the command line, or a kubeconfig. Out: a frozen `Credentials`.
Promises:
- a replaced token or CA file is noticed within `RECHECK_S`, and at once after a 401;
- no secret is shown by `repr`;
- a file that cannot be read for a moment keeps the last good credentials;
- the `kubernetes` package is imported only for a kubeconfig, and called in a thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from kube.clock import Clock, SystemClock
from kube.errors import CredentialsError

RECHECK_S = 10.0
"""How old a look at the files may be. kubelet replaces a token long before it ends; 10 s is far below any overlap."""

KUBECONFIG_RECHECK_S = 600.0
"""A kubeconfig may start an exec plugin each time it is read; a refused token is renewed at once anyway."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """One consistent set: where the server is, whom we trust, how we show who we are."""

    server: str
    token: str = field(default="", repr=False)
    ca_pem: str = ""
    certificate_pem: str = field(default="", repr=False)
    key_pem: str = field(default="", repr=False)
    verify: bool = True
    server_name: str = ""

    def __post_init__(self) -> None:
        if not self.server.startswith(("https://", "http://")):
            raise CredentialsError(f"server {self.server!r} must begin with https:// or http://")
        if not _names_a_host(self.server):
            raise CredentialsError(f"server {self.server!r} is no address")
        if bool(self.certificate_pem) != bool(self.key_pem):
            raise CredentialsError("a client certificate needs its key, and a key its certificate")

    def same_transport(self, other: Credentials) -> bool:
        """Say whether both can share open connections: only the token may differ."""
        return self._wire() == other._wire()

    def _wire(self) -> tuple[object, ...]:
        return (self.server, self.ca_pem, self.certificate_pem, self.key_pem, self.verify, self.server_name)


class CredentialSource(Protocol):
    """Where credentials come from."""

    async def current(self) -> Credentials:
        """Return credentials that were looked at a short while ago."""

    async def renewed(self) -> Credentials:
        """Read again now: the server just refused the last ones."""


class StaticCredentials:
    """Credentials that never change: tests, a devcluster."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def current(self) -> Credentials:
        """Return the credentials."""
        return self._credentials

    async def renewed(self) -> Credentials:
        """Return the credentials."""
        return self._credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialFiles:
    """Paths of the parts; empty ones are not used."""

    server: str
    token: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    verify: bool = True
    server_name: str = ""

    def read(self) -> Credentials:
        """Read all parts now."""
        return Credentials(
            server=self.server,
            token=_text(self.token, "token").strip(),
            ca_pem=_text(self.ca, "CA"),
            certificate_pem=_text(self.certificate, "client certificate"),
            key_pem=_text(self.key, "client key"),
            verify=self.verify,
            server_name=self.server_name,
        )


class RereadCredentials:
    """Credentials read again, in a thread, when they grow old or the server refuses them."""

    def __init__(
        self, read: Callable[[], Credentials], *, recheck_s: float = RECHECK_S, clock: Clock | None = None
    ) -> None:
        self._read = read
        self._recheck_s = recheck_s
        self._clock = clock or SystemClock()
        self._last: Credentials | None = None
        self._read_at = 0.0
        self._reads = 0
        self._one_reader = asyncio.Lock()

    async def current(self) -> Credentials:
        """Return the last credentials, read again when they are too old."""
        if self._last is not None and self._clock.now() - self._read_at < self._recheck_s:
            return self._last
        return await self.renewed()

    async def renewed(self) -> Credentials:
        """Read now; a failure keeps what was good before. Those who ask at the same time share one reading."""
        reads = self._reads
        async with self._one_reader:
            if self._last is not None and self._reads != reads:
                return self._last
            try:
                last = await asyncio.to_thread(self._read)
            except CredentialsError:
                if self._last is None:
                    raise
                last = self._last
            self._last, self._read_at = last, self._clock.now()
            self._reads += 1
            return last


def from_files(files: CredentialFiles, *, clock: Clock | None = None) -> RereadCredentials:
    """Follow files named by the caller."""
    return RereadCredentials(files.read, clock=clock)


def in_cluster(
    environ: Mapping[str, str] = os.environ, *, folder: Path = SERVICE_ACCOUNT, clock: Clock | None = None
) -> RereadCredentials:
    """Follow the files and variables that a kubelet gives to a Pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise CredentialsError("not inside a Pod: KUBERNETES_SERVICE_HOST and _PORT are not set; name a kubeconfig")
    address = f"[{host}]" if ":" in host else host
    files = CredentialFiles(server=f"https://{address}:{port}", token=folder / "token", ca=folder / "ca.crt")
    return from_files(files, clock=clock)


def from_kubeconfig(path: str = "", context: str = "", *, clock: Clock | None = None) -> RereadCredentials:
    """Follow a kubeconfig, exec plugins included. An empty path means `KUBECONFIG` or `~/.kube/config`."""
    return RereadCredentials(lambda: _read_kubeconfig(path, context), recheck_s=KUBECONFIG_RECHECK_S, clock=clock)


def find_credentials(
    *, kubeconfig: str = "", context: str = "", environ: Mapping[str, str] = os.environ, clock: Clock | None = None
) -> RereadCredentials:
    """Choose: a kubeconfig that is named, else the Pod's own files, else the default kubeconfig."""
    if not kubeconfig and not context and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ, clock=clock)
    return from_kubeconfig(kubeconfig, context, clock=clock)


def _read_kubeconfig(path: str, context: str) -> Credentials:
    # Imported here: 40 MiB and 0.3 s that a Pod does not need.
    import yaml
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_kube_config

    configuration = Configuration()
    try:
        load: Callable[..., None] = load_kube_config  # the package carries no types
        load(path or None, context or None, configuration, persist_config=False)
    except (ConfigException, OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise CredentialsError(f"kubeconfig {path or '(default)'}: check file and context: {_cause(error)}") from error
    return _from_configuration(configuration)


def _cause(error: Exception) -> str:
    """Say what is wrong without quoting the file: it holds secrets."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"no YAML at line {mark.line + 1}"
    if type(error).__name__ == "ConfigException":  # the package's own sentences name keys, never values
        return str(error).strip().rstrip(".")
    return getattr(error, "strerror", None) or type(error).__name__


def _from_configuration(configuration: Any) -> Credentials:
    keys = configuration.api_key or {}
    header = keys.get("BearerToken") or keys.get("authorization") or ""  # the package renamed it
    scheme, _, token = header.partition(" ")
    return Credentials(
        server=configuration.host.rstrip("/"),
        token=token if scheme.lower() == "bearer" else "",
        ca_pem=_text(configuration.ssl_ca_cert, "CA"),
        certificate_pem=_text(configuration.cert_file, "client certificate"),
        key_pem=_text(configuration.key_file, "client key"),
        verify=bool(configuration.verify_ssl),
        server_name=configuration.tls_server_name or "",
    )


def _names_a_host(server: str) -> bool:
    try:
        at = urlsplit(server)
        return bool(at.hostname) and at.port != 0
    except ValueError:  # no port, or half an IPv6 address
        return False


def _text(path: Path | str | None, what: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(f"{what} file {path} cannot be read ({type(error).__name__})") from error
