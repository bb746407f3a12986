"""Whom the front proxy speaks for (spec 03 B2.1-B2.4).

For: `front_proxy`, which reads the ConfigMap; `authenticator`. In: the data of ConfigMap
`kube-system/extension-apiserver-authentication`; the headers of a request. Out: `Trust`; a user, or nobody. Pure.
Promises:
- a ConfigMap with anything unreadable in it is refused as a whole, every mistake named, so that the last good trust
  stays: half of a broken one (an allow-list that reads as empty) would trust more than was meant;
- headers are lists: groups repeat, extra keys are lower-cased and decoded; the first named header that is not empty is
  the user; without a user there is no identity, whatever the groups say;
- `stripped` leaves no identity header, named by the cluster or by custom.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from cryptography import x509

from api.problems import Problem, problem
from apiserver.rest.storage import User
from nodefeature.fields import as_str

Headers = Iterable[tuple[bytes, bytes]]

CUSTOMARY = ("x-remote-user", "x-remote-uid", "x-remote-group")
CUSTOMARY_PREFIX = "x-remote-extra-"
_KNOWN_NAMES = 512
"""Header names that are remembered: clients send the same few."""
_KNOWN_BYTES = 256
"""How long a remembered name may be: strangers choose them."""


@dataclass(frozen=True, slots=True)
class Trust:
    """What the cluster says about callers. Nothing said means nobody trusted."""

    client_ca: tuple[x509.Certificate, ...] = ()
    """Signers of people's certificates; empty where the cluster publishes none."""
    proxy_ca: tuple[x509.Certificate, ...] = ()
    """Signers of the front proxy."""
    allowed_names: tuple[str, ...] = ()
    """CNs of the front proxy; empty allows every certificate of its CA, as kube-apiserver means it."""
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()
    bundle: str = ""
    """Both CAs as PEM, for the handshake alone."""
    _known: dict[bytes, bool] = field(default_factory=dict, compare=False, repr=False)

    def looks_like_identity(self, name: bytes) -> bool:
        """Say whether a header carries identity, or looks as if it did."""
        known = self._known.get(name)
        if known is None:
            known = self.is_identity(name.decode("latin-1").strip().lower().replace("_", "-"))
            if len(self._known) >= _KNOWN_NAMES:
                self._known.clear()
            if len(name) <= _KNOWN_BYTES:
                self._known[name] = known
        return known

    def is_identity(self, name: str) -> bool:
        """Say whether a lower-case header name carries identity."""
        named = (*self.user_headers, *self.uid_headers, *self.group_headers, *CUSTOMARY)
        return name in named or name.startswith((*self.extra_prefixes, CUSTOMARY_PREFIX))


NOBODY = Trust()


def read_trust(data: Mapping[str, Any]) -> tuple[Trust | None, list[Problem]]:
    """Read the ConfigMap's data; None with every problem when any part of it cannot be used."""
    problems: list[Problem] = []
    client_ca = _certificates(data, "client-ca-file", problems)
    proxy_ca = _certificates(data, "requestheader-client-ca-file", problems)
    lists = {
        key: _strings(data, f"requestheader-{key}", problems)
        for key in ("allowed-names", "username-headers", "uid-headers", "group-headers", "extra-headers-prefix")
    }
    if problems:
        return None, problems

    def lowered(key: str) -> tuple[str, ...]:
        return tuple(value.lower() for value in lists[key] if value)

    trust = Trust(
        client_ca=client_ca,
        proxy_ca=proxy_ca,
        allowed_names=lists["allowed-names"],
        user_headers=lowered("username-headers"),
        uid_headers=lowered("uid-headers"),
        group_headers=lowered("group-headers"),
        extra_prefixes=lowered("extra-headers-prefix"),
        bundle="".join(f"{as_str(data.get(key)).strip()}\n" for key in _CA_KEYS if as_str(data.get(key)).strip()),
    )
    return trust, []


_CA_KEYS = ("client-ca-file", "requestheader-client-ca-file")


def _certificates(data: Mapping[str, Any], key: str, problems: list[Problem]) -> tuple[x509.Certificate, ...]:
    text = as_str(data.get(key)).strip()
    if not text:
        return ()
    try:
        return tuple(x509.load_pem_x509_certificates(text.encode()))
    except ValueError:
        problems.append(problem(f"data[{key}]", None, "must hold PEM certificates"))
        return ()


def _strings(data: Mapping[str, Any], key: str, problems: list[Problem]) -> tuple[str, ...]:
    text = as_str(data.get(key))
    if not text:
        return ()
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        problems.append(problem(f"data[{key}]", text, "must be a JSON list of strings"))
        return ()
    return tuple(value)


class UnreadableIdentity(ValueError):
    """An identity header of the front proxy is no UTF-8."""


def user_from_headers(headers: Headers, trust: Trust) -> User | None:
    """Return whom the headers name; None when they name nobody. The caller has made sure they may be believed."""
    values: dict[str, list[str]] = {}
    for raw_name, raw_value in headers:
        if not trust.looks_like_identity(raw_name):
            continue
        name = raw_name.decode("latin-1").lower()
        if trust.is_identity(name):
            values.setdefault(name, []).append(_text(raw_value))
    name = next((values[key][0] for key in trust.user_headers if values.get(key, [""])[0]), "")
    if not name:
        return None
    uid = next((values[key][0] for key in trust.uid_headers if values.get(key, [""])[0]), "")
    groups = [value for key in trust.group_headers for value in values.get(key, ()) if value]
    extra: dict[str, list[str]] = {}
    for header, given in values.items():
        for prefix in trust.extra_prefixes:
            if header.startswith(prefix):
                extra.setdefault(_extra_key(header.removeprefix(prefix)), []).extend(given)
    return User(name, uid, tuple(groups), {key: tuple(given) for key, given in extra.items()})


def stripped(headers: Headers, trust: Trust) -> list[tuple[bytes, bytes]]:
    """Return the headers that carry no identity, nor look as if they did."""
    return [header for header in headers if not trust.looks_like_identity(header[0])]


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableIdentity("an identity header is not valid UTF-8") from error


def _extra_key(suffix: str) -> str:
    """Decode a key; one that is badly encoded stays as it is, as kube-apiserver leaves it."""
    try:
        return unquote_to_bytes(suffix).decode("utf-8")
    except UnicodeDecodeError:
        return suffix
