"""What to change about our certificates, and when. Pure, apart from making keys.

For: `kube.certs.keeper`. In: what the Secret holds, the moment. Out: what it should hold next, or nothing.
The order of a CA's change, each step at least `SPREAD` after the one before, so that every reader has seen it:
new CA published beside the old one -> leaf issued by the new one -> old CA withdrawn.
Promises:
- a leaf is renewed at two thirds of its life, later by at most a twentieth (jitter keeps replicas apart);
- at every moment the leaf in use verifies against what was published `SPREAD` before;
- what cannot be read is replaced as a whole; whoever knows what was there keeps its CA published, because other
  replicas show its leaf until they look again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from kube.certs.authority import Pair, issue_leaf, names_of, new_authority
from nodefeature.fields import as_str

SPREAD = timedelta(hours=1)
"""How long every reader may take to see a published CA."""

AUTHORITY = "gpustack-operator-ca"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """What replicas share: published trust, who signs, who will sign next, and the leaf in use."""

    trust: tuple[str, ...]
    signer: Pair
    leaf: Pair
    successor: Pair | None = None

    @property
    def bundle(self) -> str:
        """Return the published trust as one PEM text."""
        return "".join(self.trust)

    def to_data(self) -> dict[str, str]:
        """Return the data of the Secret."""
        fields = {
            "ca.crt": self.bundle,
            "signer.crt": self.signer.certificate,
            "signer.key": self.signer.key,
            "tls.crt": self.leaf.certificate,
            "tls.key": self.leaf.key,
        }
        if self.successor is not None:
            fields |= {"successor.crt": self.successor.certificate, "successor.key": self.successor.key}
        return {name: base64.b64encode(text.encode()).decode() for name, text in fields.items()}


def from_data(data: Mapping[str, object]) -> Certificates | None:
    """Read the data of the Secret; None when any part is missing, unreadable or does not fit another."""
    try:
        text = {name: base64.b64decode(as_str(value), validate=True).decode() for name, value in data.items()}
        successor = None
        if "successor.crt" in text:
            successor = Pair(certificate=text["successor.crt"], key=text["successor.key"])
        found = Certificates(
            trust=tuple(_split(text["ca.crt"])),
            signer=Pair(certificate=text["signer.crt"], key=text["signer.key"]),
            leaf=Pair(certificate=text["tls.crt"], key=text["tls.key"]),
            successor=successor,
        )
        pairs = [found.signer, found.leaf, *([successor] if successor else [])]
        return found if found.trust and all(_fits(pair) for pair in pairs) else None
    except (KeyError, ValueError, TypeError, binascii.Error):
        return None


def first(names: tuple[str, ...], now: datetime, *, lost: Certificates | None = None) -> Certificates:
    """Make everything new. `lost` is what was in use before, when that is known."""
    signer = new_authority(AUTHORITY, now)
    trust = (signer.certificate, lost.signer.certificate) if lost is not None else (signer.certificate,)
    return Certificates(trust=trust, signer=signer, leaf=issue_leaf(signer, names, now))


def next_step(have: Certificates, names: tuple[str, ...], now: datetime, jitter: float) -> Certificates | None:
    """Return what the Secret should hold next, or None. `jitter` is between 0 and 1."""
    if have.successor is None and due_at(have.signer, jitter) <= now:
        successor = new_authority(AUTHORITY, now)
        return replace(have, successor=successor, trust=(*have.trust, successor.certificate))
    if have.successor is not None and have.successor.issued + SPREAD <= now:
        signer = have.successor
        return replace(have, signer=signer, successor=None, leaf=issue_leaf(signer, names, now))
    if due_at(have.leaf, jitter) <= now or not set(names) <= names_of(have.leaf) or not _issued_by(have):
        return replace(have, leaf=issue_leaf(have.signer, names, now))
    if have.successor is None and len(have.trust) > 1 and have.leaf.issued + SPREAD <= now:
        return replace(have, trust=(have.signer.certificate,))
    return None


def due_at(pair: Pair, jitter: float) -> datetime:
    """Return the moment from which a certificate is to be replaced."""
    life = pair.parsed.not_valid_after_utc - pair.issued
    return pair.issued + life * 2 / 3 + life * jitter / 20


def _issued_by(have: Certificates) -> bool:
    try:
        have.leaf.parsed.verify_directly_issued_by(have.signer.parsed)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _fits(pair: Pair) -> bool:
    key = serialization.load_pem_private_key(pair.key.encode(), None)
    return bool(key.public_key() == pair.parsed.public_key())


def _split(bundle: str) -> list[str]:
    certificates = x509.load_pem_x509_certificates(bundle.encode())
    return [each.public_bytes(serialization.Encoding.PEM).decode() for each in certificates]
