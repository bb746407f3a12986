"""Whose token it is, asked by TokenReview (spec 03 B2.5).

For: `authenticator`. In: a bearer token. Out: its user, or None when the cluster does not know it.
Promises: the token is neither kept nor logged, only its digest is; yes and no are remembered alike; a review that fails
is an error to the caller, never a yes and never a lasting no.
"""

from __future__ import annotations

import hashlib
import logging

from apiserver.authn.review_cache import ReviewCache
from apiserver.rest import status
from apiserver.rest.storage import User
from kube.client import Client
from kube.clock import Clock
from kube.errors import OperatorError
from kube.reconciler import Object, Rule
from nodefeature.fields import as_list, as_map, as_str, at
from nodefeature.kinds import TOKEN_REVIEW

RBAC = (Rule(TOKEN_REVIEW.group, TOKEN_REVIEW.plural, ("create",)),)
MAX_TOKEN_BYTES = 64 * 1024

log = logging.getLogger(__name__)


class TokenReviews:
    """Asks the API server and remembers for `ttl_s`. `client` carries the deadline of one review."""

    def __init__(self, client: Client, clock: Clock, *, ttl_s: float) -> None:
        self._client = client
        self._cache: ReviewCache[bytes, User | None] = ReviewCache(clock, lambda _answer: ttl_s)

    async def user_of(self, token: str) -> User | None:
        """Return the token's user; raises Refusal 500 when it cannot be found out."""
        if len(token) > MAX_TOKEN_BYTES:
            return None
        return await self._cache.get(hashlib.sha256(token.encode()).digest(), lambda: self._ask(token))

    async def _ask(self, token: str) -> User | None:
        try:
            answer = await self._client.review(TOKEN_REVIEW, {"token": token})
        except OperatorError as error:
            log.warning("token not reviewed", extra={"reason": str(error)})
            raise review_failed("the token could not be reviewed") from error
        return read_user(answer)


def read_user(review: Object) -> User | None:
    """Return the user a TokenReview names; anything but a clear yes is None."""
    user = as_map(at(review, "status", "user"))
    name = as_str(user.get("username"))
    if at(review, "status", "authenticated") is not True or not name:
        return None
    extra = {key: tuple(map(as_str, as_list(values))) for key, values in as_map(user.get("extra")).items()}
    groups = tuple(group for group in as_list(user.get("groups")) if isinstance(group, str))
    return User(name, as_str(user.get("uid")), groups, extra)


def review_failed(what: str) -> status.Refusal:
    """Return the 500 of a review that could not be made; the client may try again."""
    refusal = status.internal_error(what)
    refusal.details["retryAfterSeconds"] = 1
    return refusal
