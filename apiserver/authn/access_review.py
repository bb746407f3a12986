"""May they, asked by SubjectAccessReview (spec 03 B2.6).

For: the engine, before every request; forwarders, for the rights a URL does not show. In: a user, the `RequestInfo`.
Out: nothing, or a Refusal: 403 when the cluster does not say yes, 500 when it could not be asked.
Promises: the question is made from the same `RequestInfo` that routes the request; it carries the selectors of a list;
what nobody needs rights for (health, the schema of our kinds) is a fixed list; everything else is asked, for
everybody; answers are remembered for a few seconds by the whole question.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

import orjson

from apiserver.authn.review_cache import ReviewCache
from apiserver.authn.token_review import review_failed
from apiserver.rest.access import Attributes, attributes_of, denied
from apiserver.rest.request_info import RequestInfo
from apiserver.rest.storage import User
from kube.client import Client
from kube.clock import Clock
from kube.errors import OperatorError
from kube.reconciler import Rule
from nodefeature.fields import as_str, at
from nodefeature.kinds import SUBJECT_ACCESS_REVIEW

RBAC = (Rule(SUBJECT_ACCESS_REVIEW.group, SUBJECT_ACCESS_REVIEW.plural, ("create",)),)

OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/openapi/v2", "/openapi/v3")
"""Open to everybody, with what lies below: probes carry no credentials, and our schemas are no secret."""

_WORDS = ("verb", "group", "resource", "subresource", "namespace", "name")
_SELECTORS = ("fieldSelector", "labelSelector")
_SELECTING = frozenset({"list", "watch", "deletecollection"})

log = logging.getLogger(__name__)


class AccessReviews:
    """Asks the API server; a yes is remembered for `allowed_ttl_s`, a no for `denied_ttl_s`."""

    def __init__(self, client: Client, clock: Clock, *, allowed_ttl_s: float, denied_ttl_s: float) -> None:
        self._client = client
        self._cache: ReviewCache[bytes, tuple[bool, str]] = ReviewCache(
            clock, lambda answer: allowed_ttl_s if answer[0] else denied_ttl_s
        )

    async def authorize(self, user: User, info: RequestInfo) -> None:
        """Let a request pass or raise."""
        if is_open(info):
            return
        attributes = attributes_of(info)
        allowed, reason = await self._review(review_spec(user, attributes, info))
        if not allowed:
            refusal = denied(user.name, attributes)
            if reason:
                refusal.message = f"{refusal.message}: {reason}"
            raise refusal

    async def allows(self, user: User, attributes: Attributes) -> bool:
        """Say whether somebody may do something beyond what the URL shows; raises Refusal 500."""
        allowed, _ = await self._review(review_spec(user, attributes))
        return allowed

    async def _review(self, spec: Mapping[str, Any]) -> tuple[bool, str]:
        whole = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
        # Its digest: paths and selectors are as long as strangers make them.
        return await self._cache.get(hashlib.sha256(whole).digest(), lambda: self._ask(spec))

    async def _ask(self, spec: Mapping[str, Any]) -> tuple[bool, str]:
        try:
            answer = await self._client.review(SUBJECT_ACCESS_REVIEW, spec)
        except OperatorError as error:
            log.warning("access not reviewed", extra={"reason": str(error)})
            raise review_failed("the request could not be authorized") from error
        # A denial of one authorizer wins over the yes of another.
        allowed = at(answer, "status", "allowed") is True and at(answer, "status", "denied") is not True
        return allowed, "" if allowed else as_str(at(answer, "status", "reason"))


def is_open(info: RequestInfo) -> bool:
    """Say whether a path is for everybody, whoever asks."""
    if info.is_resource or info.verb not in ("get", "head"):
        return False
    return any(info.path == path or info.path.startswith(path + "/") for path in OPEN_PATHS)


def review_spec(user: User, asked: Attributes, info: RequestInfo | None = None) -> dict[str, Any]:
    """Return the `spec` of a SubjectAccessReview; empty fields are left out. `info` adds version and selectors."""
    spec: dict[str, Any] = {"user": user.name, "uid": user.uid, "groups": list(user.groups)}
    spec["extra"] = {key: list(values) for key, values in user.extra.items()}
    if asked.path:
        spec["nonResourceAttributes"] = {"path": asked.path, "verb": asked.verb}
    else:
        attributes: dict[str, Any] = {word: getattr(asked, word) for word in _WORDS}
        if info is not None:
            attributes["version"] = info.version
            for kind in _SELECTORS if asked.verb in _SELECTING else ():
                raw = info.query.get(kind, "")
                attributes[kind] = {"rawSelector": raw} if raw else None
        spec["resourceAttributes"] = {word: value for word, value in attributes.items() if value}
    return {key: value for key, value in spec.items() if value}
