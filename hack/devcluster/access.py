"""Who may ask the devcluster what: a static file of users, and the reviews that answer from it.

For: `server`, and the aggregated server behind it, which asks by TokenReview and SubjectAccessReview.
In: a YAML file `users: [{name, token, groups, rules: [{groups, resources, verbs, namespaces} | {paths, verbs}]}]`.
Out: users, decisions, review objects.
Promises: all mistakes of the file at once, by path, and no token in any of them; `system:masters` may everything;
everybody who is known may read discovery and OpenAPI; nothing else is allowed unless a rule says so. An apply that
creates asks for `patch` alone (kube-apiserver also asks for `create`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from apiserver.rest.access import Attributes
from apiserver.rest.negotiation import encode
from apiserver.rest.options import WriteOptions
from apiserver.rest.storage import Call, Document, Object, Unserved, User, Written
from nodefeature.fields import as_list, as_map, as_str, at

AUTHENTICATED, MASTERS = "system:authenticated", "system:masters"
_OPEN_TO_ALL = ("/api", "/api/*", "/apis", "/apis/*", "/openapi/*", "/version", "/healthz", "/livez", "/readyz")
_RULE_KEYS = frozenset({"groups", "resources", "verbs", "namespaces", "paths"})


class UsersError(ValueError):
    """The users file is wrong; the text lists every mistake."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One permission; `*` stands for everything. No namespaces means all of them and the cluster scope."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def allows(self, asked: Attributes) -> bool:
        """Say whether this rule permits what is asked."""
        if not _has(self.verbs, asked.verb):
            return False
        if asked.path:
            return any(fnmatchcase(asked.path, pattern) for pattern in self.paths)
        inside = not self.namespaces or asked.namespace in self.namespaces
        return inside and _has(self.groups, asked.group) and _has(self.resources, asked.full_resource)


def _has(allowed: Sequence[str], word: str) -> bool:
    return "*" in allowed or word in allowed


@dataclass(frozen=True, slots=True)
class Account:
    """A user, its token and its rules."""

    user: User
    token: str = field(repr=False)
    rules: tuple[Rule, ...] = ()


class Accounts:
    """Everybody the devcluster knows."""

    def __init__(self, accounts: Sequence[Account]) -> None:
        self._accounts = tuple(accounts)

    def by_token(self, token: str) -> User | None:
        """Return the user of a token, or None."""
        given = token.encode()
        for account in self._accounts:
            if secrets.compare_digest(given, account.token.encode()):
                return account.user
        return None

    def allows(self, name: str, groups: Sequence[str], asked: Attributes) -> bool:
        """Say whether a user of this name and these groups may do what is asked."""
        if MASTERS in groups:
            return True
        reading = bool(asked.path) and asked.verb in ("get", "head") and AUTHENTICATED in groups
        if reading and any(fnmatchcase(asked.path, pattern) for pattern in _OPEN_TO_ALL):
            return True
        rules = [rule for account in self._accounts if account.user.name == name for rule in account.rules]
        return any(rule.allows(asked) for rule in rules)


def load_accounts(path: Path) -> list[Account]:
    """Read a users file; raises UsersError."""
    document = yaml.safe_load(path.read_text("utf-8"))
    mistakes: list[str] = []
    accounts = []
    for index, entry in enumerate(as_list(as_map(document).get("users"))):
        where = f"users[{index}]"
        name, token = as_str(as_map(entry).get("name")), as_str(as_map(entry).get("token"))
        mistakes += [f"{where}.{key}: required" for key, value in (("name", name), ("token", token)) if not value]
        groups = (*as_list(as_map(entry).get("groups")), AUTHENTICATED)
        rules = []
        for number, rule in enumerate(as_list(as_map(entry).get("rules"))):
            mistakes += _rule_mistakes(as_map(rule), f"{where}.rules[{number}]")
            rules.append(_rule(as_map(rule)))
        accounts.append(Account(User(name, uid=name, groups=groups), token, tuple(rules)))
    if not isinstance(document, Mapping) or not isinstance(document.get("users"), list):
        mistakes.append("users: must be a list")
    if mistakes:
        raise UsersError(f"{path}: " + "; ".join(mistakes))
    return accounts


def _rule(rule: Mapping[str, Any]) -> Rule:
    def words(key: str) -> tuple[str, ...]:
        return tuple(as_list(rule.get(key)))

    return Rule(words("verbs"), words("groups"), words("resources"), words("namespaces"), words("paths"))


def _rule_mistakes(rule: Mapping[str, Any], where: str) -> list[str]:
    mistakes = [f"{where}.{key}: unknown" for key in rule if key not in _RULE_KEYS]
    mistakes += [
        f"{where}.{key}: must be a list of strings" for key in _RULE_KEYS & rule.keys() if not _strings(rule[key])
    ]
    if not rule.get("verbs"):
        mistakes.append(f"{where}.verbs: required")
    if bool(rule.get("paths")) == bool(rule.get("resources")):
        mistakes.append(f"{where}: give either paths or groups and resources")
    return mistakes


def _strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


class TokenReviews(Unserved):
    """Answers `authentication.k8s.io/v1 TokenReview`."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def create(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        """Say who a token belongs to."""
        user = self._accounts.by_token(as_str(at(obj, "spec", "token")))
        status: Object = {"authenticated": False, "error": "the token is not known"}
        if user is not None:
            shown = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
            status = {"authenticated": True, "user": shown}
        return _review(obj, status)


class AccessReviews(Unserved):
    """Answers SubjectAccessReview, and SelfSubjectAccessReview with `of_caller`."""

    def __init__(self, accounts: Accounts, *, of_caller: bool) -> None:
        self._accounts = accounts
        self._of_caller = of_caller

    async def create(self, call: Call, obj: Object, options: WriteOptions) -> Written:
        """Say whether somebody may do something."""
        spec = as_map(obj.get("spec"))
        name = call.user.name if self._of_caller else as_str(spec.get("user"))
        groups = call.user.groups if self._of_caller else tuple(as_list(spec.get("groups")))
        wanted, path = as_map(spec.get("resourceAttributes")), as_map(spec.get("nonResourceAttributes"))
        words = ("verb", "group", "resource", "subresource", "namespace", "name")
        if path:
            asked = Attributes(as_str(path.get("verb")), path=as_str(path.get("path")) or "/")
        else:
            asked = Attributes(*(as_str(wanted.get(word)) for word in words))
        allowed = self._accounts.allows(name, groups, asked)
        return _review(obj, {"allowed": allowed, **({} if allowed else {"reason": "no rule allows it"})})


def _review(obj: Object, status: Object) -> Written:
    answered = {**obj, "metadata": {"creationTimestamp": None}, "status": status}
    return Written(Document(encode(answered)), created=True)
