"""Instance in v1: a thin view over the CRD, and what is known of its Pod (spec 02 §1, §7)."""

from __future__ import annotations

from apiserver.context import Context
from apiserver.forwarding.served import crd_rules, crd_view
from apiserver.rest.storage import Resource
from apiserver.subresources import events, explain, log, metrics
from nodefeature.kinds import INSTANCE

RBAC = (*crd_rules(INSTANCE), *events.RBAC, *log.RBAC, *metrics.RBAC, *explain.RBAC)


def resource(context: Context) -> Resource:
    """Return the served resource."""
    parts = (
        log.log_of_pod(context),
        events.events_of_pod(context),
        metrics.metrics_of_pod(context),
        explain.explain_of_instance(context),
    )
    return crd_view(context, INSTANCE, parts)
