"""What the listener shows and asks for: its certificate and the CAs of its callers, both changing while it serves.

For: whoever assembles the server. In: certificates from the shared Secret (`kube.certs.keeper`) or from a directory,
the trust of `authn.front_proxy`. Out: one TLS context; the CA bundle that APIServices publish.
Promises: before a certificate is there the listener shows one of its own making, so that probes get answers; what
cannot be used is logged and the last good one stays; a directory is looked at again every few seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kube.certs.keeper import CertificateKeeper
from kube.certs.live import LiveContext
from kube.certs.rotation import Certificates, first
from kube.clock import Clock
from kube.errors import CredentialsError, OperatorError

LOOK_S = 10.0
CERT_FILE, KEY_FILE, CA_FILE = "tls.crt", "tls.key", "ca.crt"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A certificate to serve with. An empty bundle means that clients know the CA already."""

    certificate_pem: str
    key_pem: str
    bundle: str


class ServingTls:
    """The listener's side of TLS. `on_bundle` hears of every new CA bundle."""

    def __init__(self, names: tuple[str, ...], now: datetime) -> None:
        made = first(names, now)
        self.names = names
        self._shown = Shown(certificate_pem=made.leaf.certificate, key_pem=made.leaf.key, bundle=made.bundle)
        self._trusted = ""
        self._live = LiveContext(
            certificate_pem=self._shown.certificate_pem, key_pem=self._shown.key_pem, asks_clients=True
        )
        self.context = self._live.context
        self.is_shared = False
        """A certificate that outlives this process is shown."""
        self.on_bundle: Callable[[], None] = lambda: None

    @property
    def bundle(self) -> str:
        """Return the PEM that lets clients verify what is shown."""
        return self._shown.bundle

    def show(self, shown: Shown) -> None:
        """Serve with another certificate; one that cannot be used is logged."""
        try:
            self._swap(shown, self._trusted)
        except CredentialsError as error:
            log.warning("certificate not usable", extra={"reason": str(error)})
            return
        changed = not self.is_shared or shown.bundle != self._shown.bundle
        self._shown, self.is_shared = shown, True
        log.info("certificate in use")
        if changed:
            self.on_bundle()

    def trust(self, bundle: str) -> None:
        """Ask callers for certificates of these CAs from now on."""
        try:
            self._swap(self._shown, bundle)
        except CredentialsError as error:
            log.warning("client CAs not usable", extra={"reason": str(error)})
            return
        self._trusted = bundle

    def _swap(self, shown: Shown, trusted: str) -> None:
        self._live.swap(certificate_pem=shown.certificate_pem, key_pem=shown.key_pem, client_ca_pem=trusted)


async def follow_secret(keeper: CertificateKeeper, tls: ServingTls) -> None:
    """Serve what replicas share by a Secret."""

    def show(found: Certificates) -> None:
        tls.show(Shown(certificate_pem=found.leaf.certificate, key_pem=found.leaf.key, bundle=found.bundle))

    await keeper.run(show)


def read_folder(folder: Path) -> Shown:
    """Read `tls.crt`, `tls.key` and, where it is there, `ca.crt`."""
    try:
        authority = folder / CA_FILE
        return Shown(
            certificate_pem=(folder / CERT_FILE).read_text("utf-8"),
            key_pem=(folder / KEY_FILE).read_text("utf-8"),
            bundle=authority.read_text("utf-8") if authority.is_file() else "",
        )
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"--cert-dir {folder}: {type(error).__name__}: {error}") from error


async def follow_folder(folder: Path, tls: ServingTls, clock: Clock) -> None:
    """Serve what somebody else puts into a directory."""
    last: Shown | None = None
    while True:
        try:
            found = read_folder(folder)  # three small files: not worth a thread
        except OperatorError as error:
            log.warning("certificate not readable", extra={"reason": str(error)})
        else:
            if found != last:
                tls.show(found)
            last = found
        await clock.sleep(LOOK_S)
