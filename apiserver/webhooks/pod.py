"""Gate 1: a Pod with the queue label, when it is created (spec 05 §2-§3, design §8.7, §8.12).

For: `route`. In: the Pod; the InstanceType in front of its queue, where a claim needs it. Out: units and shares written
into the claims, the pin of shared claims, variables of containers without a card; or everything that is wrong.
Promises:
- wrong requests are 422 with every cause; what may still become right (a type without detail) is a 500;
- a client's own units never count; the agents' annotation never comes from a Pod's author;
- no gate, queue label or toleration is added: gating is Kueue's own.
Trusts: nothing in the Pod; of the type, what the operator's controllers wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from api.guarded_variables import GUARDS, guarded_problems
from api.ledger.transport import ALLOCATED_ANNOTATION
from api.pod_requests import Claim, Lifetime, claims_of, containers_of, visible_cards, whole
from api.problems import Problem, problem
from api.unit_folds import fold_units, needs_detail
from apiserver.webhooks.fronting import Fronting, fronting_type, known_type
from apiserver.webhooks.node_affinity import above, with_expressions
from apiserver.webhooks.patches import Draft
from apiserver.webhooks.pod_rules import manufacturers_of, place_of, request_problems
from apiserver.webhooks.review import ALLOWED, CREATE, Answer, Request, refused, retry
from apiserver.webhooks.world import World
from nodefeature.destinations import is_qualified_name
from nodefeature.fields import annotations_of, as_bool, as_list, as_map, as_maps, at, labels_of
from nodefeature.kinds import POD
from nodefeature.labels import DEVICE_PREFIX, QUEUE_NAME
from nodefeature.manufacturers import Manufacturers
from nodefeature.resource_names import Family


async def mutate(request: Request, world: World) -> Answer:
    """Fold, pin and hide."""
    if request.operation != CREATE or request.subresource:
        return ALLOWED
    pod, spec = request.object, as_map(request.object.get("spec"))
    queue = labels_of(pod).get(QUEUE_NAME, "")
    claims = claims_of(spec, world.registry)
    shared = _shared_cards(claims)
    front: Fronting | None = known_type(queue, world)
    if shared > 1 or any(map(needs_detail, claims)):
        front = await fronting_type(queue, world)
        if front.problem is not None:
            return refused(request, POD, [front.problem])
        if front.retry:
            return retry(front.retry)
    fold = fold_units(spec, world.registry, front.detail if front is not None else {})
    if fold.problems:
        return refused(request, POD, _of_type(fold.problems, front))
    if fold.retry:
        return retry(f"instance type {front.name if front else queue} is not ready yet ({fold.retry}); retry")
    draft = Draft(pod)
    for write in fold.writes:
        for part in ("requests", "limits"):
            draft.set(write.value, "spec", write.list_name, write.index, "resources", part, write.resource)
    if shared > 1 and front is not None:
        wrong = _pin_shared(draft, front, shared)
        if wrong is not None:
            return refused(request, POD, [wrong])
    warnings = (*_hide_cards(draft, spec, world.registry, claims, front), *_forget_allocations(draft, pod))
    return Answer(draft.patch, warnings)


async def validate(request: Request, world: World) -> Answer:
    """Refuse what breaks the seven rules, claims another pool's cards, or widens what a container sees."""
    if request.operation != CREATE or request.subresource:
        return ALLOWED
    spec = as_map(request.object.get("spec"))
    problems = request_problems(spec, world.registry)
    claims = claims_of(spec, world.registry)
    front = known_type(labels_of(request.object).get(QUEUE_NAME, ""), world)
    if front is not None:
        problems += _pool_problems(claims, front)
    holding = _places(claims)
    for container in containers_of(spec):
        listed, index = place_of(container)
        if (listed, index) in holding or any(visible_cards(container, world.registry, m) for m in world.registry.names):
            env = as_maps(spec.get(listed))[index].get("env")
            problems += guarded_problems(env, f"spec.{listed}[{index}].env")
    return refused(request, POD, problems)


def _places(claims: Iterable[Claim]) -> set[tuple[str, int]]:
    """Return the containers that hold a card."""
    return {place_of(claim.container) for claim in claims}


def _shared_cards(claims: tuple[Claim, ...]) -> int:
    """Return the largest number of shared cards that one container asks for."""
    asked = [
        whole(claim.cards)
        for claim in claims
        if claim.family is Family.SHARED and claim.container.lifetime is not Lifetime.SIDECAR
    ]
    return max(asked, default=0)


def _pin_shared(draft: Draft, front: Fronting, cards: int) -> Problem | None:
    """Keep the Pod on nodes that have so many cards of the pool's model."""
    label = f"{DEVICE_PREFIX}{front.group}.count"
    if not front.group or not is_qualified_name(label):
        rule = f"instance type {front.name} has no accelerators to share"
        return problem("spec", None, rule)
    affinity = with_expressions(draft.get("spec", "affinity"), [above(label, cards - 1)])
    if affinity is not None:
        draft.set(affinity, "spec", "affinity")
    return None


def _of_type(problems: tuple[Problem, ...], front: Fronting | None) -> list[Problem]:
    """Name the type that a refused claim was measured with."""
    if front is None or not front.name:
        return list(problems)
    return [replace(found, rule=f"{found.rule} (instance type {front.name})") for found in problems]


def _pool_problems(claims: tuple[Claim, ...], front: Fronting) -> list[Problem]:
    """Name claims on cards that the queue's pool does not have: its quota would not count them."""
    maker = front.manufacturer
    accelerated = as_bool(at(front.type, "spec", "acceleratable"))
    rule = f"instance type {front.name} has " + (f"{maker} accelerators only" if accelerated else "no accelerators")
    return [
        problem(f"{claim.container.path}[{claim.base}]", None, rule)
        for claim in claims
        if claim.manufacturer != maker or not accelerated
    ]


def _hide_cards(
    draft: Draft, spec: Mapping[str, Any], registry: Manufacturers, claims: tuple[Claim, ...], front: Fronting | None
) -> list[str]:
    """Tell the vendor's runtime to show nothing to containers without a card, where others have one or might.

    An image may carry a variable that shows every card of the node (case B012).
    """
    makers = set(manufacturers_of(claims))
    if front is not None:
        makers.add(front.manufacturer)
    hidden = [(maker, GUARDS[maker]) for maker in sorted(makers) if maker in GUARDS and GUARDS[maker].visible]
    holding = _places(claims)
    warnings: list[str] = []
    for container in containers_of(spec) if hidden else ():
        if place_of(container) in holding:
            continue
        place = ("spec", *place_of(container), "env")
        env = as_list(draft.get(*place))
        for maker, guard in hidden:
            wanted = {"name": guard.visible, "value": guard.none}
            if wanted in env or visible_cards(container, registry, maker):
                continue
            kept = [variable for variable in env if at(variable, "name") != guard.visible]
            if len(kept) < len(env):
                warnings.append(f"container {container.name}: {guard.visible} set to {guard.none}, it holds no card")
            env = [*kept, wanted]
        if env:
            draft.set(env, *place)  # no operation where nothing changed
    return warnings


def _forget_allocations(draft: Draft, pod: Mapping[str, Any]) -> list[str]:
    if ALLOCATED_ANNOTATION not in annotations_of(pod):
        return []
    draft.remove("metadata", "annotations", ALLOCATED_ANNOTATION)
    return [f"annotation {ALLOCATED_ANNOTATION} removed: only the node's agent writes it"]
