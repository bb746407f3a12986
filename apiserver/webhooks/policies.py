"""What tenants and agents may write, as policies that kube-apiserver judges by itself (design §8.7, cases B008, B012).

For: `installers.webhooks`. In: our namespace. Out: two ValidatingAdmissionPolicies and their bindings.
Promises:
- the record of a Pod's cards is set, changed or removed by the agents' account alone, on every Pod and by every way
  that reaches its annotations (also `status`, and a Binding, whose annotations kube-apiserver copies to the Pod);
- an agent whose token names a node writes that node's objects alone; a token without one (an older cluster, many agents
  in one process) is not bound;
- no server of ours is asked: nothing here can be down.
"""

from __future__ import annotations

from typing import Any

from api.ledger.transport import ALLOCATED_ANNOTATION
from apiserver.webhooks.configurations import PART_OF
from nodefeature.kinds import (
    DEVICES,
    NODE_FEATURE,
    POD,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
    Kind,
)

ALLOCATIONS = "gpustack-accelerator-allocations"
OWN_NODE = "gpustack-agents-own-node"
AGENT_ACCOUNT = "gpustack-operator-device-manager"
_NODE = "request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')"


def agent_user(namespace: str) -> str:
    """Return the user name of the agents' account."""
    return f"system:serviceaccount:{namespace}:{AGENT_ACCOUNT}"


def manifests(namespace: str) -> tuple[tuple[Kind, dict[str, Any]], ...]:
    """Return policies and bindings."""
    policies = (_allocations(namespace), _own_node(namespace))
    return (
        *((VALIDATING_ADMISSION_POLICY, policy) for policy in policies),
        *((VALIDATING_ADMISSION_POLICY_BINDING, _binding(policy["metadata"]["name"])) for policy in policies),
    )


def _allocations(namespace: str) -> dict[str, Any]:
    def recorded(obj: str) -> str:
        return f"{obj}.metadata.?annotations[?'{ALLOCATED_ANNOTATION}'].orValue('')"

    spec = {
        "matchConstraints": _constraints(
            _rule(POD, ("pods", "pods/status"), ("CREATE", "UPDATE")),
            _rule(POD, ("pods/binding", "bindings"), ("CREATE",)),
        ),
        "matchConditions": [
            {"name": "not-the-agents", "expression": f"request.userInfo.username != '{agent_user(namespace)}'"}
        ],
        "validations": [
            {
                "expression": f"{recorded('object')} == (oldObject == null ? '' : {recorded('oldObject')})",
                "message": f"annotation {ALLOCATED_ANNOTATION} is written by the node's agent alone",
                "reason": "Forbidden",
            }
        ],
    }
    return _policy(ALLOCATIONS, spec)


def _own_node(namespace: str) -> dict[str, Any]:
    old_or_new = "(object == null ? dyn(oldObject) : dyn(object))"
    spec = {
        "matchConstraints": _constraints(
            _rule(DEVICES, ("devices", "devices/status"), ("CREATE", "UPDATE", "DELETE")),
            _rule(NODE_FEATURE, ("nodefeatures",), ("CREATE", "UPDATE", "DELETE")),
            _rule(POD, ("pods", "pods/status"), ("CREATE", "UPDATE", "DELETE")),
        ),
        "matchConditions": [
            {"name": "an-agent", "expression": f"request.userInfo.username == '{agent_user(namespace)}'"},
            {"name": "of-a-node", "expression": f"{_NODE} != ''"},
        ],
        "variables": [
            {"name": "node", "expression": _NODE},
            {"name": "name", "expression": f"{old_or_new}.metadata.name"},
            {"name": "place", "expression": f"{old_or_new}.spec.?nodeName.orValue('')"},
        ],
        "validations": [
            {
                "expression": (
                    "request.resource.resource == 'pods' ? variables.place == variables.node : "
                    "request.resource.resource == 'devices' ? variables.name == variables.node : "
                    "variables.name == variables.node + '-gpustack-device-manager'"
                ),
                "messageExpression": "'the agent of node ' + variables.node + ' writes objects of that node alone'",
                "message": "an agent writes objects of its own node alone",
                "reason": "Forbidden",
            }
        ],
    }
    return _policy(OWN_NODE, spec)


def _policy(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": dict(PART_OF)}, "spec": {"failurePolicy": "Fail", **spec}}


def _binding(policy: str) -> dict[str, Any]:
    spec = {"policyName": policy, "validationActions": ["Deny"]}
    return {"metadata": {"name": policy, "labels": dict(PART_OF)}, "spec": spec}


def _constraints(*rules: dict[str, Any]) -> dict[str, Any]:
    return {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "resourceRules": list(rules),
    }


def _rule(kind: Kind, resources: tuple[str, ...], operations: tuple[str, ...]) -> dict[str, Any]:
    return {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "operations": list(operations),
        "resources": list(resources),
        "scope": "*",
    }
