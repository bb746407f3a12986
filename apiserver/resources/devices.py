"""Devices in v1: a thin view over the CRD (spec 02 §1)."""

from __future__ import annotations

from apiserver.context import Context
from apiserver.forwarding.served import crd_rules, crd_view
from apiserver.rest.storage import Resource
from nodefeature.kinds import DEVICES

RBAC = crd_rules(DEVICES)


def resource(context: Context) -> Resource:
    """Return the served resource."""
    return crd_view(context, DEVICES)
