"""InstancePersistentVolume: a claim on storage, kept as a PersistentVolumeClaim of the same name (spec 02 §10).

Promises: type, capacity and access mode never change; a volume that an Instance names, a stopped one too, is not
deleted (design §8.8).
"""

from __future__ import annotations

from collections.abc import Mapping as Map
from dataclasses import replace
from typing import Any

from api.instance_persistent_volume import (
    DEFAULT_CAPACITY,
    InstancePersistentVolumeSpec,
    default_access_mode,
    default_class,
    phase_of_claim,
    spec_problems,
    update_problems,
)
from api.models.mapped_kinds import InstancePersistentVolume
from api.problems import problem
from apiserver.context import Context
from apiserver.mapping.mapping import Mapping, Write
from apiserver.mapping.metadata import TEXTS, Object, described
from apiserver.mapping.refusals import invalid, translated
from apiserver.mapping.served import mapped_resource
from apiserver.rest import status
from apiserver.rest.storage import Call, Column, Resource
from apiserver.subresources.events import events_of_claim
from kube.client import PAGE_SIZE, Client
from kube.errors import NotFound
from kube.reconciler import Rule
from kube.requests import ListOptions
from nodefeature.fields import as_list, as_map, as_maps, as_str, at, labels_of, name_of
from nodefeature.kinds import EVENT, INSTANCE, PERSISTENT_VOLUME_CLAIM, STORAGE_CLASS, Kind
from nodefeature.labels import RESOURCE_TYPE

MARK = "instancepersistentvolumes"
KIND = Kind("worker.gpustack.ai", "v1", MARK, "InstancePersistentVolume", namespaced=True)
RBAC = (
    Rule("", "persistentvolumeclaims", ("get", "list", "watch", "create", "update", "patch", "delete")),
    Rule(STORAGE_CLASS.group, "storageclasses", ("get", "list")),
    Rule(INSTANCE.group, "instances", ("list",)),
    Rule(EVENT.group, "events", ("list",)),
)
COLUMNS = (
    Column("Type", ".spec.type", description="Storage class"),
    Column("Capacity", ".spec.capacity"),
    Column("Access-Mode", ".spec.accessMode"),
    Column("Phase", ".status.phase"),
)


class PersistentVolumes(Mapping):
    """Volumes in claims."""

    kind = KIND
    backing = PERSISTENT_VOLUME_CLAIM
    model = InstancePersistentVolume
    mark = MARK
    label_selector = f"{RESOURCE_TYPE}={MARK}"

    def owns(self, stored: Map[str, Any]) -> bool:
        """Say whether a claim is marked."""
        return labels_of(stored).get(RESOURCE_TYPE) == MARK

    def shown(self, stored: Map[str, Any]) -> Object:
        """Return what was claimed and what became of it."""
        volume = as_str(at(stored, "spec", "volumeName"))
        state: Object = {"phase": phase_of_claim(as_str(at(stored, "status", "phase")))}
        return {
            "spec": {**described(stored), **_claimed(stored)},
            "status": {**state, **({"volume": {"name": volume}} if volume else {})},
        }

    def notes(self, obj: Map[str, Any]) -> dict[str, str]:
        """Return the texts."""
        spec = as_map(obj.get("spec"))
        return {key: as_str(spec.get(key)) for key in TEXTS if spec.get(key)}

    def content(self, obj: Map[str, Any], stored: Map[str, Any] | None) -> Object:
        """Return the claim's spec, which an update leaves alone."""
        if stored is not None:
            return {}
        spec = as_map(obj.get("spec"))
        claim: Object = {
            "accessModes": [spec.get("accessMode")],
            "resources": {"requests": {"storage": str(spec.get("capacity"))}},
        }
        return {"spec": claim | ({"storageClassName": spec["type"]} if spec.get("type") else {})}

    async def prepare(self, write: Write, obj: Object, stored: Map[str, Any] | None) -> Object:
        """Fill in defaults: from the claim when there is one, else from the storage class."""
        info = write.call.info
        spec: Object = {key: value for key, value in as_map(obj.get("spec")).items() if value is not None}
        if stored is not None:
            was = _claimed(stored)
            spec = {**({} if "type" in spec and not was.get("type") else was), **spec}
            problems = update_problems(was, _spec(spec))
            if problems:
                raise invalid(info, KIND.kind, problems, reason="FieldValueForbidden")
            return {**obj, "spec": spec}
        storage_class = await _storage_class(write, as_str(spec.get("type")))
        spec.setdefault("capacity", DEFAULT_CAPACITY)
        spec.setdefault("accessMode", default_access_mode(storage_class))
        problems = spec_problems(_spec(spec))
        if problems:
            raise invalid(info, KIND.kind, problems)
        return {**obj, "spec": spec}

    async def check_delete(self, client: Client, call: Call, stored: Map[str, Any]) -> None:
        """Refuse to delete a volume that an Instance names."""
        info, wanted = call.info, name_of(stored)
        asked = ListOptions(limit=PAGE_SIZE)
        with translated(info, INSTANCE):
            while True:
                page = await client.list_page(INSTANCE, info.namespace, asked)
                for instance in page.items:
                    if wanted in volumes_of(instance):
                        why = f"the volume is in use by Instance {name_of(instance)!r}; delete the Instance first"
                        raise status.conflict(info.resource, info.group, wanted, why)
                if not page.continue_token:
                    return
                asked = replace(asked, continue_token=page.continue_token)


def volumes_of(instance: Map[str, Any]) -> set[str]:
    """Return the names of the volumes an Instance mounts."""
    mounts = [as_map(at(instance, "spec", "volume")), *as_maps(at(instance, "spec", "additionalVolumes"))]
    return {as_str(at(mount, "persistent", "name")) for mount in mounts} - {""}


def _claimed(stored: Map[str, Any]) -> InstancePersistentVolumeSpec:
    """Return the spec's fields that live in the claim."""
    modes = as_list(at(stored, "spec", "accessModes"))
    found = {
        "type": as_str(at(stored, "spec", "storageClassName")),
        "capacity": as_str(at(stored, "spec", "resources", "requests", "storage")),
        "accessMode": as_str(modes[0]) if modes else "",
    }
    kept = {key: value for key, value in found.items() if value}
    return kept  # type: ignore[return-value]  # the keys are those of the spec


def _spec(spec: Map[str, Any]) -> InstancePersistentVolumeSpec:
    return dict(spec)  # type: ignore[return-value]  # the model has checked its shape


async def _storage_class(write: Write, name: str) -> Map[str, Any]:
    """Return the class of a new volume, the cluster's default when none is named; raises Refusal."""
    info = write.call.info
    with translated(info, STORAGE_CLASS):
        if name:
            try:
                return await write.client.get(STORAGE_CLASS, name)
            except NotFound as error:
                text = "storage class with the specified name does not exist in the cluster"
                raise invalid(info, KIND.kind, [problem("spec.type", name, text)]) from error
        found = default_class(await write.client.list(STORAGE_CLASS))
    if found is None:
        text = "no default storage class in the cluster, please specify the type explicitly"
        raise invalid(info, KIND.kind, [problem("spec.type", "", text)])
    return found


def resource(context: Context) -> Resource:
    """Return the served resource."""
    return mapped_resource(context, PersistentVolumes(), columns=COLUMNS, subresources=(events_of_claim(context),))
