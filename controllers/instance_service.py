"""The Service of an Instance (spec 05 §8.4).

For: the instance controller. In: an Instance, its Pod, the Service of its name. Out: the Service to create, whose a
Service is, and the published ports.
Promises: pure; a Service belongs to one Pod, so that one of an earlier Pod is never taken for this one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.instance import ServicePort
from controllers.instance_pod import port_name, ports_of
from kube.reconciler import Object
from nodefeature.fields import as_int, as_maps, as_str, at, labels_of, name_of, namespace_of, uid_of
from nodefeature.kinds import POD, SERVICE
from nodefeature.labels import PART_OF, RESOURCE_TYPE, TYPE_INSTANCES


def service_ports(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the ports of a Pod's Service; none means that it needs no Service."""
    ports = [p for container in as_maps(at(pod, "spec", "containers")) for p in as_maps(container.get("ports"))]
    return [
        {
            "name": port_name(as_int(port.get("containerPort")), as_str(port.get("protocol")) or "TCP"),
            "port": as_int(port.get("containerPort")),
            "targetPort": as_int(port.get("containerPort")),
            "protocol": as_str(port.get("protocol")) or "TCP",
        }
        for port in ports
    ]


def render_service(instance: Mapping[str, Any], pod: Mapping[str, Any]) -> Object:
    """Return the Service of a Pod; it goes with the Pod.

    It selects by the two labels that only this Instance's Pods have: the Pod's other labels may change (Kueue adds its
    own), and a selector that does not match any more would cut people off.
    """
    marks = {PART_OF: uid_of(instance), RESOURCE_TYPE: TYPE_INSTANCES}
    return {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.kind,
        "metadata": {
            "name": name_of(pod),
            "namespace": namespace_of(pod),
            "labels": marks,
            "ownerReferences": [
                {
                    "apiVersion": POD.api_version,
                    "kind": POD.kind,
                    "name": name_of(pod),
                    "uid": uid_of(pod),
                    "controller": True,
                }
            ],
        },
        "spec": {"type": "NodePort", "selector": marks, "ports": service_ports(pod)},
    }


def is_service_of(service: Mapping[str, Any] | None, pod: Mapping[str, Any]) -> bool:
    """Say whether a Service was made for this very Pod."""
    owners = as_maps(at(service, "metadata", "ownerReferences"))
    return any(owner.get("controller") is True and owner.get("uid") == uid_of(pod) for owner in owners)


def is_instance_service(service: Mapping[str, Any] | None) -> bool:
    """Say whether we made a Service, for this Pod or for an earlier one."""
    return labels_of(service).get(RESOURCE_TYPE) == TYPE_INSTANCES


def published_ports(spec: Mapping[str, Any], service: Mapping[str, Any] | None) -> list[ServicePort] | None:
    """Return an Instance's ports with the node ports of its Service; None while one of them has none yet."""
    by_name = {as_str(p.get("name")): as_int(p.get("nodePort")) for p in as_maps(at(service, "spec", "ports"))}
    ports: list[ServicePort] = []
    for port, protocol, name in ports_of(spec):
        node_port = by_name.get(port_name(port, protocol), 0)
        if not node_port:
            return None
        shown: ServicePort = {"port": port, "protocol": protocol, "nodePort": node_port}
        if name:
            shown["name"] = name
        ports.append(shown)
    return ports
