"""By whom a certificate was issued."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509

from apiserver.authn.peer import Peer, issued_by
from tests.builders.pki import NOW, Certificate, authority, make

ROOT, OTHER = authority("root"), authority("other")
# The same name and another key: what a forger would make.
FORGED = make("root", ca=True)
MIDDLE = make("middle", by=ROOT, ca=True)
LOW = make("low", by=MIDDLE, ca=True)
NO_CA = make("no ca", by=ROOT)
NARROW = make("narrow", by=make("narrow root", ca=True, path_length=0), ca=True)
OLD_ROOT = make("old root", ca=True, valid=(timedelta(days=-9), timedelta(days=-1)))
NARROW_ROOT = make("narrow root", ca=True, path_length=0)
BELOW_NARROW = make("below narrow", by=NARROW_ROOT, ca=True)


def peer(leaf: Certificate, *rest: Certificate) -> Peer:
    return Peer(leaf.parsed, tuple(each.parsed for each in rest))


ROWS: dict[str, tuple[Peer, tuple[Certificate, ...], bool]] = {
    "directly": (peer(make("a", by=ROOT)), (ROOT,), True),
    "one of several": (peer(make("a", by=ROOT)), (OTHER, ROOT), True),
    "by somebody else": (peer(make("a", by=OTHER)), (ROOT,), False),
    "by nobody": (peer(make("a")), (ROOT,), False),
    "by a namesake with another key": (peer(make("a", by=FORGED)), (ROOT,), False),
    "no authorities": (peer(make("a", by=ROOT)), (), False),
    "through an intermediate": (peer(make("a", by=MIDDLE), MIDDLE), (ROOT,), True),
    "through an intermediate that was not shown": (peer(make("a", by=MIDDLE)), (ROOT,), False),
    "the intermediate itself is trusted": (peer(make("a", by=MIDDLE)), (MIDDLE,), True),
    "through two, in any order": (peer(make("a", by=LOW), MIDDLE, LOW), (ROOT,), True),
    "through a certificate that is no CA": (peer(make("a", by=NO_CA), NO_CA), (ROOT,), False),
    "the root was shown too": (peer(make("a", by=ROOT), ROOT), (ROOT,), True),
    "a shown root is not trusted for it": (peer(make("a", by=OTHER), OTHER), (ROOT,), False),
    "expired": (peer(make("a", by=ROOT, valid=(timedelta(days=-9), timedelta(hours=-1)))), (ROOT,), False),
    "not yet": (peer(make("a", by=ROOT, valid=(timedelta(hours=1), timedelta(days=1)))), (ROOT,), False),
    "the authority has expired": (peer(make("a", by=OLD_ROOT)), (OLD_ROOT,), False),
    "deeper than the authority allows": (peer(make("a", by=BELOW_NARROW), BELOW_NARROW), (NARROW_ROOT,), False),
    "as deep as the authority allows": (peer(make("a", by=NARROW_ROOT)), (NARROW_ROOT,), True),
    "the authority itself": (peer(ROOT), (ROOT,), False),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_issued_by(row: tuple[Peer, tuple[Certificate, ...], bool]) -> None:
    shown, authorities, want = row
    assert issued_by(shown, [each.parsed for each in authorities], NOW) is want


def test_the_last_common_name_counts() -> None:
    assert peer(make("alice", "dev")).common_name == "alice"
    assert peer(make("", "dev")).common_name == ""
    assert isinstance(peer(make("alice")).leaf, x509.Certificate)
