"""Instances: sizes, rules, what they may take of the host, when they may start and stop (spec 05 §6-§7).

For: `route`. In: the Instance, its InstanceType, Nodes, settings. Out: defaults; or everything that is wrong.
Promises: a busy pool admits, the Instance queues; a type that is not computed yet is a 500, a wrong request a 422; a
stopped Instance may name a type that is gone; an object on its way out is let go, whatever is missing by now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.guarded_variables import guarded_problems
from api.instance_pod_rules import begins_with_digit, pod_problems, service_problems
from api.instance_pool_rules import pool_verdict
from api.instance_rules import instance_problems, same_value, update_problems
from api.instance_volumes import additional_volume_problems
from api.problems import Fault, Problem, problem
from apiserver.webhooks.host_access import host_access_problems
from apiserver.webhooks.instance_sizing import sized
from apiserver.webhooks.patches import Draft
from apiserver.webhooks.review import ALLOWED, CREATE, Answer, Request, refused, retry
from apiserver.webhooks.world import World
from kube.errors import OperatorError
from nodefeature.fields import as_bool, as_list, as_map, as_str, name_of
from nodefeature.kinds import INSTANCE
from nodefeature.labels import RESERVED_NAMESPACES

_TYPE = "spec.type"


async def mutate(request: Request, world: World) -> Answer:
    """Fill in what was left open."""
    if request.is_deleting or request.subresource:
        return ALLOWED
    draft = Draft(request.object)
    spec = as_map(request.object.get("spec"))
    for name, default in (("imagePullPolicy", "IfNotPresent"), ("volumeMount", "/workspace")):
        if not spec.get(name):
            draft.set(default, "spec", name)
    if spec.get("resources") is None:
        draft.set({}, "spec", "resources")
    type_name = as_str(spec.get("type"))
    if not type_name or as_bool(spec.get("stop")):
        return Answer(draft.patch)
    found = await _type_of(type_name, world)
    if isinstance(found, Answer):
        return found
    if found is None:
        return refused(request, INSTANCE, [_no_type(type_name)])
    asked = as_map(spec.get("resources"))
    if _keeps_size(request):
        return Answer(draft.patch)
    size = sized(asked, found, overcommit=world.settings().instance_general_resources_overcommit)
    if size.retry:
        return retry(size.retry, path=_TYPE)
    for name, value in size.resources.items():
        if asked.get(name) != value:
            draft.set(value, "spec", "resources", name)
    return Answer(draft.patch)


def _keeps_size(request: Request) -> bool:
    """Say whether a running Instance stays as large as it is: what is frozen may not change with a setting."""
    before, spec = as_map(request.old.get("spec")), as_map(request.object.get("spec"))
    running = bool(request.old) and not as_bool(before.get("stop"))
    return running and all(same_value(before.get(name), spec.get(name)) for name in ("type", "resources"))


async def validate(request: Request, world: World) -> Answer:
    """Judge a new Instance, or a change of one."""
    if request.is_deleting or request.subresource:
        return ALLOWED
    if request.operation == CREATE:
        return await _created(request, world)
    return await _updated(request, world)


async def _created(request: Request, world: World) -> Answer:
    spec = as_map(request.object.get("spec"))
    if request.namespace in RESERVED_NAMESPACES or request.namespace == world.system_namespace:
        rule = "cannot create instance in reserved namespace"
        return refused(request, INSTANCE, [problem("metadata.namespace", request.namespace, rule)])
    type_name = as_str(spec.get("type"))
    if not type_name:
        return refused(request, INSTANCE, [problem(_TYPE, None, "type must be specified", Fault.REQUIRED)])
    pool = await _pool_problems(request, spec, world)
    if isinstance(pool, Answer):
        return pool
    node = await _node_problems(as_str(spec.get("nodeName")), world)
    if isinstance(node, Answer):
        return node
    name = await _name_problems(request, spec, "metadata.name", world)
    if isinstance(name, Answer):
        return name
    shape = instance_problems(request.without_status)
    if as_bool(spec.get("stop")):  # what it asks for is judged when it starts
        shape = [found for found in shape if not found.path.startswith("spec.resources")]
    problems = [*name, *shape, *pool, *node, *_host_problems(spec, {}, world)]
    return refused(request, INSTANCE, [*problems, *guarded_problems(spec.get("env"), "spec.env")])


async def _updated(request: Request, world: World) -> Answer:
    spec, before = as_map(request.object.get("spec")), as_map(request.old.get("spec"))
    starting = as_bool(before.get("stop")) and not as_bool(spec.get("stop"))
    problems = update_problems(request.old, request.object)
    problems += _host_problems(spec, before, world)
    held = () if starting else as_list(before.get("env"))
    problems += guarded_problems(spec.get("env"), "spec.env", held=held)
    problems += pod_problems(spec, None if starting else before)
    if starting or not same_value(before.get("ports"), spec.get("ports")):
        name = await _name_problems(request, spec, "spec.ports", world)
        if isinstance(name, Answer):
            return name
        problems += name
    if starting or not same_value(before.get("additionalVolumes"), spec.get("additionalVolumes")):
        problems += additional_volume_problems(spec)
    if starting:
        pool = await _pool_problems(request, spec, world)
        if isinstance(pool, Answer):
            return pool
        problems += pool
    return refused(request, INSTANCE, problems)


async def _pool_problems(request: Request, spec: Mapping[str, Any], world: World) -> list[Problem] | Answer:
    """Judge a running Instance against its pool; a stopped one is not judged."""
    if as_bool(spec.get("stop")):
        return []
    type_name = as_str(spec.get("type"))
    found = await _type_of(type_name, world)
    if isinstance(found, Answer):
        return found
    if found is None:
        return refused(request, INSTANCE, [_no_type(type_name)])
    verdict = pool_verdict(as_map(spec.get("resources")), found, world.registry)
    return retry(verdict.retry, path=_TYPE) if verdict.retry else list(verdict.problems)


async def _type_of(name: str, world: World) -> dict[str, Any] | Answer | None:
    try:
        return await world.instance_type(name)
    except OperatorError as error:
        return retry(f"instance type {name} cannot be read now: {error}", path=_TYPE)


async def _node_problems(name: str, world: World) -> list[Problem] | Answer:
    """Only existence is judged: whether the node suits is the scheduler's to say."""
    if not name:
        return []
    try:
        exists = await world.node_exists(name)
    except OperatorError as error:
        return retry(f"node {name} cannot be read now: {error}", path="spec.nodeName")
    return [] if exists else [problem("spec.nodeName", name, "", Fault.NOT_FOUND)]


async def _name_problems(request: Request, spec: Mapping[str, Any], path: str, world: World) -> list[Problem] | Answer:
    """Judge the name as that of the ports' Service; the cluster's version is asked where the answer hangs on it."""
    name = name_of(request.object)
    problems = service_problems(name, spec, path=path)
    if problems or not begins_with_digit(name) or not service_problems(name, spec, digit_first=False):
        return problems
    try:
        digit_first = await world.services_may_begin_with_a_digit()
    except OperatorError as error:
        return retry(f"the version of the cluster cannot be read now: {error}", path=path)
    return service_problems(name, spec, path=path, digit_first=digit_first)


def _host_problems(spec: Mapping[str, Any], held: Mapping[str, Any], world: World) -> list[Problem]:
    settings = world.settings()
    return host_access_problems(
        spec,
        held,
        privileged_allowed=settings.instance_privileged_allowed,
        host_paths_allowed=settings.instance_host_path_volume_allowed,
    )


def _no_type(name: str) -> Problem:
    return problem(_TYPE, name, "", Fault.NOT_FOUND)
