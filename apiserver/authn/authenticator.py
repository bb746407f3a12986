"""Who asks: front proxy, client certificate, token, anonymous, in this order (design §6, spec 03 B2).

For: the engine, at every request. In: the ASGI scope with its `Peer`, the trust of this moment. Out: a `User`, or a
Refusal 401.
Promises:
- identity headers count only on a connection whose certificate was issued by a CA of the front proxy and whose CN is
  allowed; they are removed from the scope in any case;
- a front proxy that names no user is nobody: the next method decides, and its own certificate is judged as any other;
- a token that the cluster does not know is 401, no credentials at all is `system:anonymous`;
- rotation counts for open connections too: a certificate is judged at each request, remembered per trust.
Trusts: ConfigMap `kube-system/extension-apiserver-authentication`, which only the cluster's administrators write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cryptography.x509.oid import NameOID

from apiserver.authn.peer import Peer, issued_by, name_values
from apiserver.authn.request_header import Trust, UnreadableIdentity, stripped, user_from_headers
from apiserver.authn.token_review import TokenReviews
from apiserver.rest import status
from apiserver.rest.responses import Scope
from apiserver.rest.storage import User
from kube.clock import Clock

PEER = "gpustack.peer"
"""Where the connection puts its `Peer` among the scope's extensions."""

ANONYMOUS_NAME, ANONYMOUS_GROUP = "system:anonymous", "system:unauthenticated"
AUTHENTICATED_GROUP = "system:authenticated"
ANONYMOUS = User(ANONYMOUS_NAME, groups=(ANONYMOUS_GROUP,))
_JUDGED = 4096
_JUDGED_FOR = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What a certificate is worth under one trust: may it speak for others, is it somebody itself."""

    peer: Peer
    trust: Trust
    until: datetime
    is_proxy: bool
    is_client: bool


class Authenticator:
    """Recognises callers. `trust` answers what the cluster says now."""

    def __init__(self, trust: Callable[[], Trust], tokens: TokenReviews, clock: Clock) -> None:
        self._trust = trust
        self._tokens = tokens
        self._clock = clock
        self._verdicts: dict[int, _Verdict] = {}

    async def __call__(self, scope: Scope) -> User:
        """Return who sent a request; its identity headers are gone afterwards."""
        trust = self._trust()
        peer: Peer | None = (scope.get("extensions") or {}).get(PEER)
        given = scope["headers"]
        scope["headers"] = stripped(given, trust)
        if any(name.startswith(b"impersonate-") for name, _ in given):
            raise status.bad_request("impersonation is resolved by kube-apiserver; send the request through it")
        verdict = self._judge(peer, trust) if peer is not None else None
        if verdict is not None and verdict.is_proxy:
            try:
                user = user_from_headers(given, trust)
            except UnreadableIdentity as error:
                raise status.unauthorized() from error
            if user is not None:
                return authenticated(user)
        if peer is not None and verdict is not None and verdict.is_client:
            groups = name_values(peer.leaf, NameOID.ORGANIZATION_NAME)
            return authenticated(User(peer.common_name, groups=groups))
        return await self._by_token(given)

    def _judge(self, peer: Peer, trust: Trust) -> _Verdict:
        now = self._clock.time()
        known = self._verdicts.get(id(peer))  # one object a connection; hashing a certificate costs more than this
        if known is not None and known.peer is peer and known.trust is trust and known.until > now:
            return known
        if len(self._verdicts) >= _JUDGED:
            self._verdicts.clear()
        allowed = not trust.allowed_names or peer.common_name in trust.allowed_names
        verdict = self._verdicts[id(peer)] = _Verdict(
            peer,
            trust,
            until=min(peer.leaf.not_valid_after_utc, now + _JUDGED_FOR),
            is_proxy=allowed and issued_by(peer, trust.proxy_ca, now),
            is_client=bool(peer.common_name) and issued_by(peer, trust.client_ca, now),
        )
        return verdict

    async def _by_token(self, headers: list[tuple[bytes, bytes]]) -> User:
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) > 1:
            raise status.unauthorized()
        word, _, token = (given[0] if given else b"").decode("latin-1").strip().partition(" ")
        if word.lower() != "bearer" or not token.strip():
            return ANONYMOUS
        user = await self._tokens.user_of(token.strip())
        if user is None:
            raise status.unauthorized()
        return authenticated(user)


def authenticated(user: User) -> User:
    """Add the group of everybody who is known; the anonymous user stays what it is."""
    known = {AUTHENTICATED_GROUP, ANONYMOUS_GROUP}
    if user.name == ANONYMOUS_NAME or known.intersection(user.groups):
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED_GROUP))
