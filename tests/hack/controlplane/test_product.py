"""Tests of what the product's RBAC manifest may hold."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.product import OPERATOR, read_rbac

BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "b"},
    "roleRef": {"kind": "ClusterRole", "name": "r"},
    "subjects": [{"kind": "ServiceAccount", "name": OPERATOR.name, "namespace": OPERATOR.namespace}],
}
ROLE = {
    "kind": "ClusterRole",
    "metadata": {"name": "r"},
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "cluster-admin": (BINDING | {"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}}, "roleRef cluster-admin"),
    "another account": (
        BINDING | {"subjects": [{"kind": "ServiceAccount", "name": "x"}]},
        "subject ServiceAccount//x is not system:serviceaccount:gpustack-system:gpustack-operator-worker",
    ),
    "a group": (
        BINDING | {"subjects": [{"kind": "Group", "name": "system:masters"}]},
        "subject Group//system:masters is not ",
    ),
    "its name elsewhere": (
        BINDING | {"subjects": [{"kind": "ServiceAccount", "name": OPERATOR.name, "namespace": "default"}]},
        "subject ServiceAccount/default/gpustack-operator-worker is not ",
    ),
    "everything": (
        ROLE | {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
        r"a rule with `\*` in apiGroups, resources, verbs; name what is needed",
    ),
    "every verb": (ROLE | {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]}, r"`\*` in verbs;"),
    "every resource": (ROLE | {"rules": [{"resources": ["*"], "verbs": ["get"]}]}, r"`\*` in resources;"),
    "every path": (ROLE | {"rules": [{"nonResourceURLs": ["*"], "verbs": ["get"]}]}, r"`\*` in nonResourceURLs;"),
    "a Deployment": ({"kind": "Deployment", "metadata": {"name": "d"}}, "Deployment d: an RBAC manifest holds"),
}


def test_a_plain_manifest_is_read_in_its_order() -> None:
    stream = yaml.safe_dump_all([ROLE, BINDING])
    assert [obj["kind"] for obj in read_rbac(stream, OPERATOR)] == ["ClusterRole", "ClusterRoleBinding"]


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED.keys())
def test_a_manifest_that_grants_too_much_is_refused(row: tuple[dict[str, Any], str]) -> None:
    obj, message = row
    with pytest.raises(ControlPlaneError, match=message):
        read_rbac(yaml.safe_dump(obj), OPERATOR)


def test_the_account_is_known_to_the_audit_log_by_its_full_name() -> None:
    assert OPERATOR.user == "system:serviceaccount:gpustack-system:gpustack-operator-worker"
