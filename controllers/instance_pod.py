"""The Pod of an Instance (spec 05 §8.1, §8.5).

For: the instance controller. In: an Instance, its InstanceType, settings, what was looked up. Out: the Pod to create,
and whether a Pod is this Instance's.
Promises: pure; the same facts give the same Pod; a Pod always carries the queue label of the type's published
entrance **and** Kueue's gate, so none ever runs past Kueue, also where Kueue's webhook is not asked (decision 0440).
Trusts: nothing of the Instance's spec; wrong-typed parts are left out, and what remains is the API server's to judge.
A Pod is the Instance's when the Instance's uid controls it: names and labels can be anybody's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.guarded_variables import is_guarded
from api.instance import MAIN_CONTAINER
from api.settings import Settings
from controllers.instance_images import image_reference
from controllers.instance_resources import is_accelerated, main_requirements, visibility_requirements
from kube.reconciler import Object
from nodefeature.fields import as_bool, as_int, as_list, as_map, as_maps, as_str, at, name_of, namespace_of, uid_of
from nodefeature.kinds import INSTANCE, POD
from nodefeature.labels import HOSTNAME, PART_OF, QUEUE_NAME, RESOURCE_TYPE, TYPE_INSTANCES
from nodefeature.manufacturers import Manufacturers

SSH_CONTAINER = "sshd"
GATE = "kueue.x-k8s.io/admission"
WORKSPACE = "workspace"
AUTHORIZED_KEYS = "sshd-authorized-keys"
_KEYS_PATH = "/var/run/sshd-authorized-keys"
_DEFAULT_MOUNT = "/workspace"
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_CLAIMED = {"persistent": "persistentVolumeClaim", "configMap": "configMap", "secret": "secret"}
_NAMED_BY = {"persistent": "claimName", "configMap": "name", "secret": "secretName"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """What a Pod is rendered from."""

    instance: Mapping[str, Any]
    instance_type: Mapping[str, Any]
    settings: Settings
    registry: Manufacturers
    hostname: str = ""
    """Host name label of the pinned node; empty without a pin."""
    runtime_class: str = ""
    """An existing RuntimeClass; empty for none."""
    node_terms: Sequence[Mapping[str, Any]] = ()
    """Node selector terms, one of which must hold, that the volumes bring along."""


def is_own_pod(instance: Mapping[str, Any], pod: Mapping[str, Any] | None) -> bool:
    """Say whether a Pod is controlled by this very Instance."""
    uid = uid_of(instance)
    owners = as_maps(at(pod, "metadata", "ownerReferences"))
    return bool(uid) and any(owner.get("controller") is True and owner.get("uid") == uid for owner in owners)


def render_pod(facts: PodFacts) -> Object:
    """Return the Pod to create."""
    instance, spec = facts.instance, as_map(at(facts.instance, "spec"))
    pod_spec: dict[str, Any] = {
        "hostIPC": True,
        "shareProcessNamespace": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "schedulingGates": [{"name": GATE}],
        "volumes": _volumes(spec),
        "containers": _containers(facts, spec),
    }
    secret = as_str(at(spec, "imagePullSecret", "name"))
    if secret:
        pod_spec["imagePullSecrets"] = [{"name": secret}]
    if facts.hostname:
        pod_spec["nodeSelector"] = {HOSTNAME: facts.hostname}
    if facts.runtime_class:
        pod_spec["runtimeClassName"] = facts.runtime_class
    if facts.node_terms:
        required = {"nodeSelectorTerms": [dict(term) for term in facts.node_terms]}
        pod_spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            "name": name_of(instance),
            "namespace": namespace_of(instance),
            "labels": {
                QUEUE_NAME: entrance_of(facts.instance_type),
                PART_OF: uid_of(instance),
                RESOURCE_TYPE: TYPE_INSTANCES,
            },
            "ownerReferences": [owner_reference(instance)],
        },
        "spec": pod_spec,
    }


def owner_reference(instance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reference by which an Instance controls its Pod; it does not block the Instance's deletion."""
    return {
        "apiVersion": INSTANCE.api_version,
        "kind": INSTANCE.kind,
        "name": name_of(instance),
        "uid": uid_of(instance),
        "controller": True,
    }


def entrance_of(instance_type: Mapping[str, Any]) -> str:
    """Return the LocalQueue that a type has published; read, never computed."""
    return as_str(at(instance_type, "status", "entrance"))


def mounts_of(spec: Mapping[str, Any]) -> str:
    """Return where the working volume is mounted."""
    return as_str(spec.get("volumeMount")) or _DEFAULT_MOUNT


def ssh_key_of(spec: Mapping[str, Any]) -> str:
    """Return the name of the SSH key's Secret; empty without SSH."""
    return as_str(at(spec, "sshPublicKey", "name"))


def port_name(port: int, protocol: str) -> str:
    """Return the name of a port in Pod and Service: `tcp-22`."""
    return f"{protocol.lower()}-{port}"


def ports_of(spec: Mapping[str, Any]) -> list[tuple[int, str, str]]:
    """Return an Instance's ports: (port, protocol, name), each port and protocol once."""
    found: dict[tuple[int, str], str] = {}
    for item in as_maps(spec.get("ports")):
        port, protocol = as_int(item.get("port")), as_str(item.get("protocol")) or "TCP"
        if 0 < port < 65536 and protocol in _PROTOCOLS:
            found.setdefault((port, protocol), as_str(item.get("name")))
    return [(port, protocol, name) for (port, protocol), name in found.items()]


def variables_left_out(spec: Mapping[str, Any], instance_type: Mapping[str, Any]) -> list[str]:
    """Return the variables that a Pod of this pool does not get, because they say which cards a container sees.

    The webhook refuses them; this holds for Instances that are older than the webhook.
    """
    if not is_accelerated(instance_type):
        return []
    names = (as_str(item.get("name")) for item in as_maps(spec.get("env")))
    return sorted({name for name in names if is_guarded(name)})


def _containers(facts: PodFacts, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    resources = as_map(spec.get("resources"))
    overcommit = facts.settings.instance_general_resources_overcommit
    needs = main_requirements(resources, facts.instance_type, facts.registry, overcommit=overcommit)
    main = _main(spec, guarded=is_accelerated(facts.instance_type)) | {"resources": needs.manifest()}
    if not ssh_key_of(spec):
        return [main]
    seen = visibility_requirements(resources, facts.instance_type, facts.registry)
    return [main, _sshd(spec, facts.settings) | {"resources": seen.manifest()}]


def _main(spec: Mapping[str, Any], *, guarded: bool) -> dict[str, Any]:
    security: dict[str, Any] = {"runAsUser": 0}
    if as_bool(spec.get("privileged")):
        security["privileged"] = True
    container: dict[str, Any] = {
        "name": MAIN_CONTAINER,
        "image": as_str(spec.get("image")),
        "imagePullPolicy": _pull_policy(spec),
        "securityContext": security,
        "volumeMounts": _mounts(spec),
    }
    command = [word for word in as_list(spec.get("command")) if isinstance(word, str)]
    if command:
        container["command"] = command
    ports = [
        {"name": port_name(port, protocol), "containerPort": port, "protocol": protocol}
        for port, protocol, _ in ports_of(spec)
    ]
    if ports:
        container["ports"] = ports
    env = [
        {"name": as_str(item.get("name")), "value": as_str(item.get("value"))}
        for item in as_maps(spec.get("env"))
        if as_str(item.get("name")) and not (guarded and is_guarded(as_str(item.get("name"))))
    ]
    if env:
        container["env"] = env
    return container


def _sshd(spec: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    return {
        "name": SSH_CONTAINER,
        "image": image_reference(
            settings.instance_ssh_server_image,
            registry=settings.container_registry,
            namespace=settings.container_namespace,
        ),
        "imagePullPolicy": _pull_policy(spec),
        "stdin": True,
        "tty": True,
        "securityContext": {"capabilities": {"add": ["SYS_ADMIN", "SYS_PTRACE"]}},
        "env": [{"name": "VOLUME_MOUNT_PATH", "value": mounts_of(spec)}],
        "volumeMounts": [{"name": AUTHORIZED_KEYS, "mountPath": _KEYS_PATH, "readOnly": True}],
    }


def _pull_policy(spec: Mapping[str, Any]) -> str:
    return as_str(spec.get("imagePullPolicy")) or "IfNotPresent"


def _volumes(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = []
    key = ssh_key_of(spec)
    if key:
        volumes.append({"name": AUTHORIZED_KEYS, "secret": {"secretName": key, "defaultMode": 0o600}})
    volumes.append({"name": WORKSPACE, **_workspace(as_map(spec.get("volume")))})
    for index, volume in enumerate(as_maps(spec.get("additionalVolumes"))):
        source = _source(volume)
        if source is not None:
            volumes.append({"name": f"additional-{index}", **source})
    return volumes


def _workspace(volume: Mapping[str, Any]) -> dict[str, Any]:
    claim = as_str(at(volume, "persistent", "name"))
    if claim:
        return {"persistentVolumeClaim": {"claimName": claim}}
    capacity = at(volume, "ephemeral", "capacity")
    return {"emptyDir": {"sizeLimit": str(capacity)} if isinstance(capacity, str | int) else {}}


def _source(volume: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the source of an additional volume; None for one without."""
    for field, kind in _CLAIMED.items():
        name = as_str(at(volume, field, "name"))
        if name:
            return {kind: {_NAMED_BY[field]: name}}
    path = as_str(at(volume, "hostPath", "path"))
    if not path:
        return None
    kind_of_path = as_str(at(volume, "hostPath", "type"))
    return {"hostPath": {"path": path, **({"type": kind_of_path} if kind_of_path else {})}}


def _mounts(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [{"name": WORKSPACE, "mountPath": mounts_of(spec)}]
    for index, volume in enumerate(as_maps(spec.get("additionalVolumes"))):
        if _source(volume) is None:
            continue
        mount: dict[str, Any] = {
            "name": f"additional-{index}",
            "mountPath": as_str(volume.get("mountPath")),
        }
        if as_bool(volume.get("readOnly")):
            mount["readOnly"] = True
        sub_path = as_str(volume.get("subPath"))
        if sub_path:
            mount["subPath"] = sub_path
        mounts.append(mount)
    return mounts
