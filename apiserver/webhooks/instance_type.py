"""InstanceTypes: defaults, labels, rules (spec 05 §7.7, spec 02 §4.8).

For: `route`. In: the type. Out: an empty general group becomes `generic`, the pool's labels and the entrance; or what
is wrong with a new type, or which frozen field an update changes.
Promises: labels follow the spec on every write, so nobody can lead a queue's Pods to another type's figures; an object
on its way out is let go.
"""

from __future__ import annotations

from api import instance_type_rules
from apiserver.webhooks.patches import Draft
from apiserver.webhooks.review import ALLOWED, CREATE, Answer, Request, refused
from apiserver.webhooks.world import World
from nodefeature.destinations import is_qualified_name
from nodefeature.fields import as_bool, as_map, as_str, labels_of, name_of
from nodefeature.keys import GENERIC
from nodefeature.kinds import INSTANCE_TYPE
from nodefeature.labels import QUEUE_ENTRANCE
from nodefeature.pool import is_feature_key, pool_schedule_labels
from nodefeature.queue_names import local_queue_name


async def mutate(request: Request, world: World) -> Answer:
    """Fill in what follows from the rest."""
    if request.is_deleting or request.subresource:
        return ALLOWED
    draft = Draft(request.object)
    spec = as_map(request.object.get("spec"))
    if not spec.get("generalGroup"):
        draft.set(GENERIC, "spec", "generalGroup")
    spec = as_map(draft.get("spec"))
    wanted = pool_schedule_labels(
        acceleratable=as_bool(spec.get("acceleratable")),
        cpu_aware=world.settings().instance_type_aware_cpu_manufacturer,
        general_group=as_str(spec.get("generalGroup")),
        accelerator_group=as_str(spec.get("acceleratorGroup")),
        os=as_str(spec.get("os")),
        arch=as_str(spec.get("arch")),
    )
    for label in labels_of(request.object):
        if is_feature_key(label) and label not in wanted:
            draft.remove("metadata", "labels", label)
    name = name_of(request.object) or request.name
    if name:
        wanted[QUEUE_ENTRANCE] = local_queue_name(name)
    for label, value in wanted.items():
        if is_qualified_name(label):  # validation names a group that makes no label
            draft.set(value, "metadata", "labels", label)
    return Answer(draft.patch)


async def validate(request: Request, world: World) -> Answer:
    """Judge a new type as a whole, an update by what may not change."""
    if request.is_deleting or request.subresource:
        return ALLOWED
    if request.operation == CREATE:
        problems = instance_type_rules.create_problems(request.without_status)
    else:
        problems = instance_type_rules.update_problems(request.old, request.object)
    return refused(request, INSTANCE_TYPE, problems)
