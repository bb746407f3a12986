"""One more condition on the node, beside what a Pod asks for already (spec 05 §3, §4.2).

For: the pins of Pods and Workloads. In: a raw affinity. Out: the affinity with the condition, or None where it has it
already or no node could match anyway.
Promises: the condition is ANDed into every non-empty required term; terms are alternatives, so one left out would let
the Pod through; an identical condition is not added twice, a stricter one stays beside it; unknown fields survive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodefeature.fields import as_list, as_map

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Expression = dict[str, Any]


def above(label: str, bound: int) -> Expression:
    """Return the condition that a node's numeric label is above `bound`."""
    return {"key": label, "operator": "Gt", "values": [str(bound)]}


def with_expressions(affinity: object, expressions: Iterable[Expression]) -> dict[str, Any] | None:
    """Return the affinity with all conditions; None when that changes nothing."""
    wanted = list(expressions)
    node = as_map(as_map(affinity).get("nodeAffinity"))
    selector = node.get(_REQUIRED)
    if selector is None:
        terms: list[Any] = [{"matchExpressions": wanted}] if wanted else []
    else:
        terms = [_extended(term, wanted) for term in as_list(as_map(selector).get("nodeSelectorTerms"))]
        if terms == as_list(as_map(selector).get("nodeSelectorTerms")):
            return None
    if not terms:
        return None
    required = {**as_map(selector), "nodeSelectorTerms": terms}
    return {**as_map(affinity), "nodeAffinity": {**node, _REQUIRED: required}}


def _extended(term: Any, wanted: list[Expression]) -> Any:
    """Return a term with the conditions that it lacks; an empty term matches nothing and stays so."""
    if not isinstance(term, Mapping) or not (term.get("matchExpressions") or term.get("matchFields")):
        return term
    has = as_list(term.get("matchExpressions"))
    missing = [expression for expression in wanted if expression not in has]
    return {**term, "matchExpressions": [*has, *missing]} if missing else term
