"""Manifests and configuration of Kueue, NFD master and kwok, fitted to processes outside the cluster.

For: `ControlPlane`. In: upstream manifests and the product's manufacturers. Out: objects to apply, files to start with.
Promises: upstream's CRDs, roles and webhooks stay as they are; only where a webhook is reached changes, and what would
start a Pod is left out. Kueue's configuration is spec 07 §4, its transformations come from the product's own table.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane.admin import Object, load_manifests
from hack.controlplane.errors import ControlPlaneError
from hack.controlplane.layout import Ports
from hack.controlplane.tools import KUEUE, NFD, Toolbox
from nodefeature.credits import CREDITS_PER_ACCELERATOR, UNITS_PER_SHARE
from nodefeature.fields import as_maps, as_str, at, name_of
from nodefeature.manufacturers import Manufacturer

SYSTEM_NAMESPACE = "gpustack-system"
KUEUE_WEBHOOK_SERVICE = "kueue-webhook-service"
KUEUE_WEBHOOK_SECRET = "kueue-webhook-server-cert"
KUEUE_ACCOUNT = "kueue-controller-manager"
NFD_ACCOUNT = "nfd-master"

_HOST = "127.0.0.1"
_LEFT_OUT = frozenset({"Deployment", "APIService", "ConfigMap", "PodDisruptionBudget"})


def namespace_manifest(name: str) -> Object:
    """Return a Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def external_service(name: str, namespace: str) -> Object:
    """Return the Service that sends the cluster's own calls to this machine.

    The caller's reference names the real port, and kube-apiserver still checks `<name>.<namespace>.svc` in the
    certificate, so the way is the one used in a cluster.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }


def kueue_configuration(
    manufacturers: Iterable[Manufacturer], *, ports: Ports, certificates: Path, namespace: str = SYSTEM_NAMESPACE
) -> dict[str, Any]:
    """Return Kueue's `Configuration` (spec 07 §4), listening on this machine only and elected without a Lease."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": namespace,
        "health": {"healthProbeBindAddress": f"{_HOST}:{ports.kueue_health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": _HOST, "port": ports.kueue_webhook, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": KUEUE_WEBHOOK_SERVICE,
            "webhookSecretName": KUEUE_WEBHOOK_SECRET,
        },
        "controller": {
            "groupKindConcurrency": {
                "Job.batch": 5,
                "Pod": 5,
                "Workload.kueue.x-k8s.io": 5,
                "LocalQueue.kueue.x-k8s.io": 1,
                "ClusterQueue.kueue.x-k8s.io": 1,
                "ResourceFlavor.kueue.x-k8s.io": 1,
            }
        },
        "clientConnection": {"qps": 50, "burst": 100},
        "featureGates": {
            "AssignQueueLabelsForPods": False,
            "TopologyAwareScheduling": True,
            "TASBalancedPlacement": True,
            "TASRespectNodeAffinityPreferred": True,
            "QuotaCheckStrategy": True,
            "VisibilityOnDemand": False,  # its aggregated API needs a Pod network
        },
        "managedJobsNamespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", namespace]}
            ]
        },
        # Frameworks whose CRDs nobody installs here would make Kueue wait for them.
        "integrations": {"frameworks": ["batch/job", "pod", "deployment", "statefulset"]},
        "resources": {
            "quotaCheckStrategy": "IgnoreUndeclared",
            "transformations": [
                row
                for manufacturer in sorted(manufacturers, key=lambda known: known.name)
                for row in kueue_transformations(manufacturer)
            ],
        },
    }


def kueue_transformations(manufacturer: Manufacturer) -> Iterator[dict[str, Any]]:
    """Yield how Kueue turns one manufacturer's resources into credits (spec 07 §4)."""
    base = manufacturer.base
    charged: list[tuple[str, int, str]] = [
        (base, CREDITS_PER_ACCELERATOR, ""),
        (f"{base}.shared", UNITS_PER_SHARE, ""),
        (f"{base}.sliced.units", 1, f"{base}.sliced"),
    ]
    if manufacturer.partition_kind:
        charged.append((f"{base}.partitioned.units", 1, ""))
    for resource, credit, factor in charged:
        yield {
            "input": resource,
            "strategy": "Replace",
            **({"multiplyBy": factor} if factor else {}),
            "outputs": {manufacturer.credits_resource: str(credit)},
        }


def kueue_manifests(
    tools: Toolbox, configuration: dict[str, Any], *, home: Path, namespace: str = SYSTEM_NAMESPACE
) -> list[Object]:
    """Render Kueue's chart and return what applies, CRDs and roles first, webhooks last."""
    values = {
        "fullnameOverride": "kueue",
        "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(configuration, sort_keys=False)},
    }
    rendered = subprocess.run(
        [tools.binary("helm"), "template", "kueue", tools.shared(KUEUE, "charts/kueue"), "-n", namespace, "-f", "-"],
        input=yaml.safe_dump(values),
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home)},
    )
    if rendered.returncode != 0:
        raise ControlPlaneError(f"helm template of {KUEUE.name} {KUEUE.version} failed: {rendered.stderr.strip()}")
    port = configuration["webhook"]["port"]
    kept = [obj for obj in load_manifests(rendered.stdout) if obj["kind"] not in _LEFT_OUT]
    return sorted((_outside_the_cluster(obj, port=port) for obj in kept), key=_apply_order)


def nfd_manifests(tools: Toolbox, *, namespace: str = SYSTEM_NAMESPACE) -> list[Object]:
    """Return NFD's CRDs and its master's account and role, bound in our namespace."""
    objects = load_manifests(tools.shared(NFD, "deployment/base/nfd-crds/nfd-api-crds.yaml").read_text())
    for file in ("master-serviceaccount", "master-clusterrole", "master-clusterrolebinding"):
        objects += load_manifests(tools.shared(NFD, f"deployment/base/rbac/{file}.yaml").read_text())
    for obj in objects:
        if obj["kind"] == "ServiceAccount":
            obj["metadata"]["namespace"] = namespace
        for subject in obj.get("subjects", []):
            subject["namespace"] = namespace
    return sorted(objects, key=_apply_order)


def nfd_configuration() -> dict[str, Any]:
    """Return NFD master's configuration: labels of any namespace, from NodeFeatures of any namespace."""
    return {
        "autoDefaultNs": True,
        "resyncPeriod": "1h",
        "restrictions": {
            "disableLabels": False,
            "disableAnnotations": False,
            "disableExtendedResources": False,
            "allowOverwrite": True,
            "denyNodeFeatureLabels": False,
        },
    }


def _outside_the_cluster(obj: Object, *, port: int) -> Object:
    if obj["kind"] == "Service" and name_of(obj) == KUEUE_WEBHOOK_SERVICE:
        return external_service(KUEUE_WEBHOOK_SERVICE, as_str(at(obj, "metadata", "namespace")))
    callers = [at(hook, "clientConfig", "service") for hook in as_maps(obj.get("webhooks"))]
    callers.append(at(obj, "spec", "conversion", "webhook", "clientConfig", "service"))
    for service in callers:
        if isinstance(service, dict):
            service["port"] = port
    return obj


def _apply_order(obj: Object) -> int:
    """Sort accounts before what names them, and webhooks after everything they would otherwise hold up."""
    if obj["kind"].endswith("WebhookConfiguration"):
        return 2
    return 0 if obj["kind"] in {"CustomResourceDefinition", "ServiceAccount"} else 1
