"""What the controllers install once, when the kinds of NFD and Kueue are served (spec 07 §3.2, spec 04 §10.1).

For: the controllers process, at its start.
In: the manufacturers it serves. Out: NodeFeatureRule `gpustack-cpu-info`, AdmissionCheck `gpustack-node-devices`.
Promises: applied by server-side apply, only our fields and only when they differ; retried for as long as it takes,
logged at each new reason; one object that cannot be installed does not hold up the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from controllers.queue_checks import NODE_DEVICES_CONTROLLER
from controllers.reports import Reports
from kube.client import Client
from kube.clock import Clock
from kube.errors import NotFound, OperatorError
from kube.meaning import asks_change
from kube.reconciler import Object, Rule
from nodefeature.fields import name_of
from nodefeature.kinds import ADMISSION_CHECK, NODE_FEATURE_RULE, Kind
from nodefeature.labels import ACCELERATABLE, CPU_ANNOTATION_PREFIX, FALSE, PCI_CLASS_PREFIXES
from nodefeature.manufacturers import Manufacturers
from nodefeature.queue_names import NODE_DEVICES_CHECK

log = logging.getLogger(__name__)

RETRY_S = 5.0
RULE_NAME = "gpustack-cpu-info"
PART_OF = {"app.kubernetes.io/part-of": "gpustack-operator"}
RBAC = (
    Rule("nfd.k8s-sigs.io", "nodefeaturerules", ("get", "create", "patch")),
    Rule("kueue.x-k8s.io", "admissionchecks", ("get", "create", "patch")),
)

_FOUND = "has-acceleratable-devices"
_CPU_ATTRIBUTES = (
    ("name", "name"),
    ("family", "family"),
    ("physical-cores", "physical_cores"),
    ("threads-per-core", "threads_per_core"),
    ("logical-cores", "logical_cores"),
    ("stepping", "stepping"),
    ("cache-line", "cache_line"),
    ("hz", "hz"),
    ("boost-freq", "boost_freq"),
    ("cache-l1i", "cache_l1i"),
    ("cache-l1d", "cache_l1d"),
    ("cache-l2", "cache_l2"),
    ("cache-l3", "cache_l3"),
)


async def install_all(
    client: Client, clock: Clock, *, manufacturers: Manufacturers, names: Iterable[str] | None = None
) -> None:
    """Apply both objects; return when both stand."""
    rule = node_feature_rule(manufacturers, manufacturers.names if names is None else names)
    async with asyncio.TaskGroup() as group:
        group.create_task(_install(client, clock, NODE_FEATURE_RULE, rule), name=f"install {RULE_NAME}")
        group.create_task(
            _install(client, clock, ADMISSION_CHECK, admission_check()), name=f"install {NODE_DEVICES_CHECK}"
        )


async def _install(client: Client, clock: Clock, kind: Kind, obj: Object) -> None:
    manager, reports = client.as_manager("gpustack-installer"), Reports()
    name = obj["metadata"]["name"]
    while True:
        try:
            if not await _stands(manager, kind, obj):
                await manager.apply(kind, obj)
                log.info("installed", extra={"kind": kind.kind, "object": name})
        except OperatorError as error:
            for reason in reports.news(name, (str(error),)):
                log.warning(
                    "waiting for the kind to be served", extra={"kind": kind.kind, "object": name, "reason": reason}
                )
            await clock.sleep(RETRY_S)
        else:
            return


async def _stands(client: Client, kind: Kind, obj: Object) -> bool:
    """Say whether the stored object already says all that ours does."""
    try:
        stored = await client.get(kind, name_of(obj))
    except NotFound:
        return False
    return not asks_change(stored, obj)


def vendor_ids(manufacturers: Manufacturers, names: Iterable[str]) -> list[str]:
    """Return the PCI vendors of the named manufacturers, sorted, each once; unknown names add nothing."""
    known = (manufacturers.get(name) for name in names)
    return sorted({each.pci_vendor_id for each in known if each is not None})


def node_feature_rule(manufacturers: Manufacturers, names: Iterable[str]) -> Object:
    """Return the rule that annotates CPUs and marks nodes without any accelerator of ours."""
    classes = [f"^{prefix}" for prefix in PCI_CLASS_PREFIXES]
    vendors = vendor_ids(manufacturers, names)
    return {
        "metadata": {"name": RULE_NAME, "labels": dict(PART_OF)},
        "spec": {
            "rules": [
                {
                    "name": "attached cpu info to annotations",
                    "annotations": {
                        f"{CPU_ANNOTATION_PREFIX}{ours}": f"@cpu.model.{nfd}" for ours, nfd in _CPU_ATTRIBUTES
                    },
                    "matchFeatures": [
                        {"feature": "cpu.model", "matchExpressions": {"vendor_id": {"op": "Exists"}}},
                    ],
                },
                {
                    "name": "detect whether the node has acceleratable devices",
                    "vars": {_FOUND: "true"},
                    "matchFeatures": [
                        {
                            "feature": "pci.device",
                            "matchExpressions": {
                                "class": {"op": "InRegexp", "value": classes},
                                "vendor": {"op": "In", "value": vendors},
                            },
                        }
                    ],
                },
                {
                    "name": "identify the node without any acceleratable device",
                    "labels": {ACCELERATABLE: FALSE},
                    "matchFeatures": [
                        {"feature": "rule.matched", "matchExpressions": {_FOUND: {"op": "DoesNotExist"}}},
                    ],
                },
            ]
        },
    }


def admission_check() -> Object:
    """Return the AdmissionCheck that gate 3 answers."""
    return {
        "metadata": {"name": NODE_DEVICES_CHECK, "labels": dict(PART_OF)},
        "spec": {"controllerName": NODE_DEVICES_CONTROLLER},
    }
