"""Tests of what the upstream manifests become (spec 07 §4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.layout import Ports
from hack.controlplane.manifests import (
    _apply_order,
    _outside_the_cluster,
    external_service,
    kueue_configuration,
    kueue_transformations,
)
from nodefeature.manufacturers import build_manufacturers

REGISTRY = build_manufacturers({})
PORTS = Ports(
    etcd_client=1,
    etcd_peer=2,
    apiserver=3,
    controller_manager=4,
    scheduler=5,
    kueue_webhook=6,
    kueue_health=7,
    nfd_master=8,
    kwok=9,
)
BASES = {
    "amd": "amd.com/gpu",
    "ascend": "huawei.com/npu",
    "cambricon": "cambricon.com/mlu",
    "hygon": "hygon.com/dcu",
    "iluvatar": "iluvatar.com/gpu",
    "metax": "metax-tech.com/gpu",
    "mthreads": "mthreads.com/gpu",
    "nvidia": "nvidia.com/gpu",
    "thead": "alibabacloud.com/ppu",
}
PARTITIONED = {"hygon", "nvidia", "thead"}


@pytest.mark.parametrize("name", sorted(BASES))
def test_transformations_charge_credits(name: str) -> None:
    base, credits = BASES[name], f"credits.gpustack.ai/{name}"
    want: list[dict[str, Any]] = [
        {"input": base, "strategy": "Replace", "outputs": {credits: "1600000"}},
        {"input": f"{base}.shared", "strategy": "Replace", "outputs": {credits: "160000"}},
        {
            "input": f"{base}.sliced.units",
            "strategy": "Replace",
            "multiplyBy": f"{base}.sliced",
            "outputs": {credits: "1"},
        },
    ]
    if name in PARTITIONED:
        want.append({"input": f"{base}.partitioned.units", "strategy": "Replace", "outputs": {credits: "1"}})
    manufacturer = REGISTRY.by_name[name]
    assert list(kueue_transformations(manufacturer)) == want


def test_configuration_holds_all_nine_sorted_and_the_gates() -> None:
    manufacturers = reversed(list(REGISTRY.by_name.values()))
    made = kueue_configuration(manufacturers, ports=PORTS, certificates=Path("/certs"), namespace="ns")
    inputs = [row["input"] for row in made["resources"]["transformations"]]
    assert len(inputs) == 9 * 3 + len(PARTITIONED)
    assert [base for base in inputs if base in BASES.values()] == list(BASES.values())
    assert made["resources"]["quotaCheckStrategy"] == "IgnoreUndeclared"
    assert made["featureGates"]["QuotaCheckStrategy"] is True
    assert made["managedJobsNamespaceSelector"]["matchExpressions"][0]["values"] == ["kube-system", "ns"]
    assert made["webhook"] == {"host": "127.0.0.1", "port": 6, "certDir": "/certs"}


def test_webhooks_and_conversions_are_sent_to_the_real_port() -> None:
    service = {"name": "kueue-webhook-service", "namespace": "ns"}
    hook = {"kind": "MutatingWebhookConfiguration", "webhooks": [{"clientConfig": {"service": dict(service)}}]}
    crd = {
        "kind": "CustomResourceDefinition",
        "spec": {"conversion": {"webhook": {"clientConfig": {"service": dict(service)}}}},
    }
    assert _outside_the_cluster(hook, port=7443)["webhooks"][0]["clientConfig"]["service"]["port"] == 7443
    conversion = _outside_the_cluster(crd, port=7443)["spec"]["conversion"]
    assert conversion["webhook"]["clientConfig"]["service"] == {**service, "port": 7443}


def test_the_webhook_service_leads_out_of_the_cluster() -> None:
    chart = {
        "kind": "Service",
        "metadata": {"name": "kueue-webhook-service", "namespace": "ns"},
        "spec": {"selector": {"a": "b"}},
    }
    assert _outside_the_cluster(chart, port=1) == external_service("kueue-webhook-service", "ns")


def test_crds_come_first_and_webhooks_last() -> None:
    kinds = ["ValidatingWebhookConfiguration", "ClusterRole", "CustomResourceDefinition"]
    ordered = sorted(({"kind": kind} for kind in kinds), key=_apply_order)
    assert [obj["kind"] for obj in ordered] == ["CustomResourceDefinition", "ClusterRole", kinds[0]]
