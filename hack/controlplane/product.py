"""The product's identity in the cluster.

For: tests and people who run the product against the real control plane as it runs in a cluster: under a
ServiceAccount with its own RBAC manifest, never as an administrator.
In: the RBAC manifest, which the product prints itself (this package may not import the reconcilers that declare it).
Out: a kubeconfig with a bearer token of that ServiceAccount. Promises: a manifest that grants an account of another
name or in another namespace, or anything by a wildcard, is refused.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.admin import Admin, Object, load_manifests
from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.kubeconfig import write_kubeconfig
from hack.controlplane.manifests import SYSTEM_NAMESPACE
from nodefeature.fields import as_list, as_maps, as_str, at, name_of

_REPOSITORY = Path(__file__).parents[2]
TOKEN_LIFETIME_S = 24 * 3600
_RULE_PARTS = ("apiGroups", "resources", "verbs", "nonResourceURLs")
_RBAC_KINDS = frozenset({"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A ServiceAccount."""

    name: str
    namespace: str = SYSTEM_NAMESPACE

    @property
    def user(self) -> str:
        """Return the user name that authorization and the audit log know."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


OPERATOR = Account(name="gpustack-operator-worker")
AGENT = Account(name="gpustack-operator-device-manager")


def printed_rbac(process: str) -> str:
    """Return the RBAC manifest that the product prints for one of its processes."""
    command = [sys.executable, "-m", "gpustack_operator", "rbac", "--process", process]
    return subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=True).stdout


def read_rbac(manifest: str, account: Account) -> list[Object]:
    """Return the objects of a YAML stream after checking that they are RBAC for `account` and nothing more."""
    objects = load_manifests(manifest)
    for obj in objects:
        kind, name = as_str(obj.get("kind")), name_of(obj)
        if kind not in _RBAC_KINDS:
            raise ControlPlaneError(f"{kind} {name}: an RBAC manifest holds {', '.join(sorted(_RBAC_KINDS))} only")
        for subject in as_maps(obj.get("subjects")):
            named = [as_str(subject.get(part)) for part in ("kind", "namespace", "name")]
            if named != ["ServiceAccount", account.namespace, account.name]:
                raise ControlPlaneError(f"{kind} {name}: subject {'/'.join(named)} is not {account.user}")
        if as_str(at(obj, "roleRef", "name")) == "cluster-admin":
            raise ControlPlaneError(f"{kind} {name}: roleRef cluster-admin; the product names what it needs")
        for rule in as_maps(obj.get("rules")):
            if wild := [part for part in _RULE_PARTS if "*" in as_list(rule.get(part))]:
                raise ControlPlaneError(f"{kind} {name}: a rule with `*` in {', '.join(wild)}; name what is needed")
    return objects


def install_account(admin: Admin, account: Account, rbac: Iterable[Object] = ()) -> None:
    """Apply a ServiceAccount and its roles."""
    admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": account.namespace}})
    meta = {"name": account.name, "namespace": account.namespace}
    admin.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    for obj in rbac:
        admin.apply(obj)


def token(admin: Admin, account: Account, *, lifetime_s: int = TOKEN_LIFETIME_S) -> str:
    """Return a bearer token of a ServiceAccount; the server grants no less than 600 s."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": lifetime_s},
    }
    answer = admin.post(f"/api/v1/namespaces/{account.namespace}/serviceaccounts/{account.name}/token", body)
    return as_str(at(answer, "status", "token"))


def write_account_kubeconfig(
    path: Path, admin: Admin, account: Account, *, server: str, authority: Path, lifetime_s: int = TOKEN_LIFETIME_S
) -> Path:
    """Write a kubeconfig that speaks as a ServiceAccount."""
    bearer = token(admin, account, lifetime_s=lifetime_s)
    return write_kubeconfig(path, server=server, authority=authority, token=bearer, namespace=account.namespace)
