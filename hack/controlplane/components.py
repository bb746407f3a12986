"""Command lines of the upstream processes.

For: `ControlPlane`. In: the toolbox, the layout and its ports. Out: one `Program` each.
Promises: everything listens on 127.0.0.1; leader election is off, since each runs once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hack.controlplane.layout import Layout, Ports
from hack.controlplane.pki import CLUSTER_CA, FRONT_PROXY_CA, SERVICE_ACCOUNT_KEY, Pki
from hack.controlplane.processes import Program
from hack.controlplane.tools import KWOK, Toolbox

KUBELET_LABEL = "controlplane.gpustack.ai/kubelet"
"""A Node with this label set to `dead` loses its kubelet: no more leases, its Pods no longer change."""

_HOST = "127.0.0.1"
_ISSUER = "https://kubernetes.default.svc"
_CONTROLLERS = "*,-nodeipam,-cloud-node-lifecycle,-service-lb-controller,-node-route-controller"
_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
)


@dataclass(frozen=True, slots=True)
class Components:
    """Renders programs for one state folder."""

    tools: Toolbox
    layout: Layout
    ports: Ports

    @property
    def server(self) -> str:
        """Return kube-apiserver's URL."""
        return f"https://{_HOST}:{self.ports.apiserver}"

    def etcd(self) -> Program:
        """Return etcd, without fsync: a test's store need not survive a power cut."""
        client, peer = (f"http://{_HOST}:{port}" for port in (self.ports.etcd_client, self.ports.etcd_peer))
        return self._program(
            "etcd",
            f"--data-dir={self.layout.data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--quota-backend-bytes=8589934592",
            "--log-level=warn",
        )

    def apiserver(self) -> Program:
        """Return kube-apiserver with Node and RBAC authorization and an audit log at Metadata level."""
        pki = Pki(self.layout.pki)
        serving, proxy, signing = (pki.pair(n) for n in ("kube-apiserver", "front-proxy-client", SERVICE_ACCOUNT_KEY))
        policy = self.layout.etc / "audit-policy.json"
        policy.write_text(json.dumps(audit_policy()))
        return self._program(
            "kube-apiserver",
            f"--bind-address={_HOST}",
            f"--advertise-address={_HOST}",
            f"--secure-port={self.ports.apiserver}",
            f"--etcd-servers=http://{_HOST}:{self.ports.etcd_client}",
            "--endpoint-reconciler-type=none",
            "--authorization-mode=Node,RBAC",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--allow-privileged=true",
            f"--client-ca-file={pki.pair(CLUSTER_CA).certificate}",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-key-file={signing.key.with_suffix('.pub')}",
            f"--service-account-signing-key-file={signing.key}",
            f"--requestheader-client-ca-file={pki.pair(FRONT_PROXY_CA).certificate}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={proxy.certificate}",
            f"--proxy-client-key-file={proxy.key}",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.layout.audit_log}",
            "--audit-log-maxsize=4096",
            # A restart ends running watches at once instead of waiting a minute for them.
            "--shutdown-watch-termination-grace-period=1s",
        )

    def controller_manager(self) -> Program:
        """Return kube-controller-manager: garbage collection, namespaces, service accounts, node lifecycle."""
        pki = Pki(self.layout.pki)
        kubeconfig = self.layout.kubeconfig("kube-controller-manager")
        return self._program(
            "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={_HOST}",
            f"--secure-port={self.ports.controller_manager}",
            f"--cert-dir={self.layout.pki / 'kube-controller-manager'}",
            f"--controllers={_CONTROLLERS}",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={pki.pair(SERVICE_ACCOUNT_KEY).key}",
            f"--root-ca-file={pki.pair(CLUSTER_CA).certificate}",
            "--leader-elect=false",
        )

    def scheduler(self) -> Program:
        """Return kube-scheduler with its default profile."""
        kubeconfig = self.layout.kubeconfig("kube-scheduler")
        return self._program(
            "kube-scheduler",
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={_HOST}",
            f"--secure-port={self.ports.scheduler}",
            f"--cert-dir={self.layout.pki / 'kube-scheduler'}",
            "--leader-elect=false",
        )

    def kwok(self) -> Program:
        """Return kwok, which plays every node's kubelet save those marked dead."""
        stages = [f"--config={self.tools.shared(KWOK, f'kustomize/stage/{stage}')}" for stage in _STAGES]
        return self._program(
            "kwok",
            f"--kubeconfig={self.layout.kubeconfig('kwok')}",
            *stages,
            f"--manage-nodes-with-label-selector={KUBELET_LABEL}!=dead",
            "--node-lease-duration-seconds=40",
            f"--node-ip={_HOST}",
            f"--server-address={_HOST}:{self.ports.kwok}",
        )

    def kueue(self, *, config: str) -> Program:
        """Return Kueue's controller manager."""
        return self._program("kueue", f"--config={config}", f"--kubeconfig={self.layout.kubeconfig('kueue')}")

    def nfd_master(self, *, config: str, node: str) -> Program:
        """Return NFD master; it insists on an existing Node at start, and only then."""
        return self._program(
            "nfd-master",
            f"--kubeconfig={self.layout.kubeconfig('nfd-master')}",
            f"--config={config}",
            f"--port={self.ports.nfd_master}",
            environment={"NODE_NAME": node},
        )

    def _program(self, name: str, *flags: str, environment: dict[str, str] | None = None) -> Program:
        command = (str(self.tools.binary(name)), *flags)
        return Program(name=name, command=command, environment=environment or {})


def audit_policy() -> dict[str, Any]:
    """Return the policy: every request once, when it is answered, without its body."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    }
