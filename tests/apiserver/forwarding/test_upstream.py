"""What of a caller reaches kube-apiserver's headers."""

from __future__ import annotations

import pytest

from apiserver.forwarding.upstream import impersonation
from apiserver.rest.status import Refusal
from apiserver.rest.storage import User


def test_a_user_is_impersonated_as_a_whole() -> None:
    user = User("ann b", uid="u1", groups=("a", "b c"), extra={"Scopes/é": ("x", "")})
    assert list(impersonation(user)) == [
        ("impersonate-user", "ann b"),
        ("impersonate-uid", "u1"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b c"),
        ("impersonate-extra-scopes%2F%C3%A9", "x"),
        ("impersonate-extra-scopes%2F%C3%A9", ""),
    ]


SOMEBODY_ELSE = {
    "a line break": User("ann\r\nimpersonate-group: system:masters"),
    "beyond ASCII": User("änn"),
    "a blank before the name": User(" system:admin"),
    "a blank after the name": User("system:admin "),
    "a blank before a group": User("ann", groups=(" system:masters",)),
    "a blank after the uid": User("ann", uid="u1 "),
    "a blank after an extra": User("ann", extra={"scopes": ("a ",)}),
}


@pytest.mark.parametrize("row", SOMEBODY_ELSE)
def test_who_would_be_read_as_somebody_else_is_refused(row: str) -> None:
    with pytest.raises(Refusal) as refused:
        list(impersonation(SOMEBODY_ELSE[row]))
    assert refused.value.code == 400
