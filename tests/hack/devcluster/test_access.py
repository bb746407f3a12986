"""Users of the static file, what they may do, and the reviews."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apiserver.rest.storage import User
from hack.devcluster.__main__ import main
from hack.devcluster.access import Account, Rule, UsersError, load_accounts
from tests.apiserver.rest.asgi import Browser
from tests.hack.devcluster.cluster import CONFIG_MAPS, NODES, Cluster, config_map, run

READER = Account(
    User("alice", uid="alice", groups=("team-a", "system:authenticated")),
    "alices",
    (Rule(("get", "list"), ("",), ("configmaps",), ("default",)), Rule(("get",), paths=("/metrics",))),
)
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"

ROWS = [
    ("GET", CONFIG_MAPS, 200),
    ("GET", f"{CONFIG_MAPS}/none", 404),
    ("GET", "/api/v1/configmaps", 403),
    ("GET", "/api/v1/namespaces/kube-system/configmaps", 403),
    ("POST", CONFIG_MAPS, 403),
    ("GET", NODES, 403),
    ("GET", f"{CONFIG_MAPS}/a/status", 403),
    ("GET", f"{CONFIG_MAPS}?watch=1", 403),
    ("GET", "/apis", 200),
    ("GET", "/api/v1", 200),
    ("GET", "/openapi/v3", 200),
    ("GET", "/metrics", 200),
    ("GET", "/version", 200),
    ("GET", "/secret-door", 403),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_rules_decide(row: tuple[str, str, int]) -> None:
    async def test(cluster: Cluster) -> None:
        browser = Browser(cluster.server.app, {"authorization": "Bearer alices"})
        answer = await browser(row[0], row[1], config_map() if row[0] == "POST" else b"")
        assert answer.code == row[2]
        if row[2] == 403:
            assert 'User "alice" cannot' in answer.json["message"]

    run(test, accounts=[READER])


def test_impersonation_is_refused_not_ignored() -> None:
    async def test(cluster: Cluster) -> None:
        await cluster.refused(501, "GET", CONFIG_MAPS, headers={"impersonate-user": "bob"})

    run(test)


def test_token_reviews_know_the_users() -> None:
    async def ask(cluster: Cluster, token: str) -> Any:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        return (await cluster.ok("POST", TOKENS, body))["status"]

    async def test(cluster: Cluster) -> None:
        known = await ask(cluster, "alices")
        assert (known["authenticated"], known["user"]["username"], known["user"]["groups"][0]) == (
            True,
            "alice",
            "team-a",
        )
        assert (await ask(cluster, "nobodys"))["authenticated"] is False
        await cluster.refused(405, "GET", TOKENS)

    run(test, accounts=[READER])


def test_access_reviews_answer_from_the_rules() -> None:
    async def allowed(cluster: Cluster, **spec: Any) -> bool:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return (await cluster.ok("POST", REVIEWS, body))["status"]["allowed"] is True

    async def test(cluster: Cluster) -> None:
        what = {"verb": "get", "resource": "configmaps", "namespace": "default", "name": "x"}
        assert await allowed(cluster, user="alice", resourceAttributes=what)
        assert not await allowed(cluster, user="bob", resourceAttributes=what)
        assert not await allowed(cluster, user="alice", resourceAttributes={**what, "subresource": "status"})
        assert await allowed(cluster, user="root", groups=["system:masters"], resourceAttributes=what)
        assert await allowed(cluster, user="alice", nonResourceAttributes={"verb": "get", "path": "/metrics"})
        assert not await allowed(cluster, user="alice")

    run(test, accounts=[READER])


GOOD = """
users:
- name: alice
  token: secret
  groups: [team-a]
  rules:
  - {groups: [""], resources: [pods], verbs: ["*"], namespaces: [a]}
  - {paths: [/metrics], verbs: [get]}
"""
BAD = """
users:
- token: hidden-token
  rules: [{resources: [pods], color: red}, {verbs: get, paths: [x], resources: [y]}]
- name: bob
"""


def test_a_users_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    path.write_text(GOOD)
    (alice,) = load_accounts(path)
    assert alice.user.groups == ("team-a", "system:authenticated")
    assert alice.rules[0] == Rule(("*",), ("",), ("pods",), ("a",))
    assert "secret" not in repr(alice)


def test_all_mistakes_of_a_users_file_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "users.yaml"
    path.write_text(BAD)
    with pytest.raises(UsersError) as refused:
        load_accounts(path)
    text = str(refused.value)
    for where in (
        "users[0].name: required",
        "users[0].rules[0].color: unknown",
        "users[0].rules[0].verbs: required",
        "users[0].rules[1].verbs: must be a list of strings",
        "users[0].rules[1]: give either",
        "users[1].token: required",
    ):
        assert where in text
    assert "hidden-token" not in text
    assert main(["--data-dir", str(tmp_path / "d"), "--users", str(path)]) == 2
    assert "users[1].token" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "users: 5", "[]"])
def test_a_file_without_users_is_a_mistake(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.yaml"
    path.write_text(text)
    with pytest.raises(UsersError):
        load_accounts(path)
