"""Node flavors: the pools a node's labels put it into (spec 01 §7).

For: `node_flavor`, its node index, `explain`.
In: a Node's labels and annotations, the setting `instance-type-aware-cpu-manufacturer`. Out: frozen flavors.
Promises:
  - a pure function of labels and annotations: capacity, taints and conditions play no part;
  - names are DNS-1123 subdomains with single dashes, whatever a driver printed;
  - what cannot become a flavor is left out and named in `problems`, its neighbours stay.
Trust: NFD, our agents and administrators write these labels; no tenant does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodefeature import labels as keys
from nodefeature.destinations import NameInvalid, label_value, object_name
from nodefeature.device_labels import DeviceModel, count_problems, label_count, read_devices
from nodefeature.keys import GENERIC, cpu_annotation, general_key, manufacturer_of
from nodefeature.queue_names import PREFIX, catalogue_flavor_name, pool_key, queue_name


@dataclass(frozen=True, slots=True)
class NodeFlavor:
    """One flavor of one node. `general_key` is `generic` on a device flavor unless CPUs are told apart."""

    name: str
    general_key: str
    accelerator_key: str
    count: int
    os: str
    arch: str
    product: str
    family: str
    memory: str
    cores: str
    node_labels: Mapping[str, str]

    @property
    def acceleratable(self) -> bool:
        """Say whether this is a flavor of accelerators."""
        return bool(self.accelerator_key)

    @property
    def own_key(self) -> str:
        """Return the key that counts: the device's, else the CPU's."""
        return self.accelerator_key or self.general_key

    @property
    def own_label(self) -> str:
        """Return the label of the own key."""
        return (keys.DEVICE_PREFIX if self.acceleratable else keys.GENERAL_PREFIX) + self.own_key

    @property
    def manufacturer(self) -> str:
        """Return the own key's manufacturer."""
        return manufacturer_of(self.own_key)

    def general_group(self, *, cpu_aware: bool) -> str:
        """Return the general group of the pool: a CPU pool is `generic` unless CPUs are told apart."""
        return self.general_key if cpu_aware else GENERIC

    def queue_name(self, *, cpu_aware: bool) -> str:
        """Return the name of the pool's ClusterQueue and InstanceType."""
        return queue_name(
            general_group=self.general_key if cpu_aware else "",
            accelerator_group=self.accelerator_key,
            os=self.os,
            arch=self.arch,
        )

    def catalogue_name(self, *, cpu_aware: bool) -> str:
        """Return the name of the pool in the catalogue, without os and arch."""
        return catalogue_flavor_name(
            general_group=self.general_key if cpu_aware else "", accelerator_group=self.accelerator_key
        )


@dataclass(frozen=True, slots=True)
class NodeFlavors:
    """The flavors of one node, the CPU's first, and one sentence for everything that was left out."""

    flavors: tuple[NodeFlavor, ...]
    problems: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the flavors' names."""
        return tuple(flavor.name for flavor in self.flavors)


def extract_node_flavors(
    labels: Mapping[str, str], annotations: Mapping[str, str], *, cpu_aware: bool = False, cpu_key: str = ""
) -> NodeFlavors:
    """Return the flavors a node belongs to. `cpu_key` is the CPU's key where the caller knows better than NFD today."""
    key = cpu_key or general_key(labels, annotations)
    count_label = f"{keys.GENERAL_PREFIX}{key}.count"
    cores = label_count(labels, count_label)
    devices = read_devices(labels)
    problems = [*count_problems(labels, count_label), *devices.problems]
    candidates: list[NodeFlavor] = []
    if cores > 0:
        candidates.append(_cpu_flavor(labels, annotations, key, cores))
    candidates += [_device_flavor(labels, model, key if cpu_aware else "") for model in devices.models if model.count]
    flavors: list[NodeFlavor] = []
    for flavor in candidates:
        try:
            flavors.append(_checked(flavor))
        except NameInvalid as refused:
            problems.append(f"flavor of {flavor.own_key}: {refused}")
    return NodeFlavors(tuple(flavors), tuple(problems))


def _checked(flavor: NodeFlavor) -> NodeFlavor:
    for label, value in ((keys.OS, flavor.os), (keys.ARCH, flavor.arch)):
        if not value:
            raise NameInvalid(f"label {label} is missing; the kubelet sets it")
        label_value(value, field=f"label {label}")
    object_name(flavor.name, field="flavor name")
    return flavor


def _platform(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get(keys.OS, ""), labels.get(keys.ARCH, "")


def _cpu_flavor(labels: Mapping[str, str], annotations: Mapping[str, str], key: str, count: int) -> NodeFlavor:
    os, arch = _platform(labels)
    own = keys.GENERAL_PREFIX + key
    return NodeFlavor(
        name=f"{PREFIX}{key}-{os}-{arch}-{count}c",
        general_key=key,
        accelerator_key="",
        count=count,
        os=os,
        arch=arch,
        product=cpu_annotation(annotations, "name"),
        family=cpu_annotation(annotations, "family"),
        memory="",
        cores="",
        node_labels={keys.MANAGED: keys.TRUE, keys.OS: os, keys.ARCH: arch, own: keys.TRUE, f"{own}.count": str(count)},
    )


def _device_flavor(labels: Mapping[str, str], model: DeviceModel, general: str) -> NodeFlavor:
    os, arch = _platform(labels)
    # The node is found by the labels it really has, which an older agent may have spelled with other characters.
    found = keys.DEVICE_PREFIX + model.label
    aware = {keys.GENERAL_PREFIX + general: keys.TRUE} if general else {}
    return NodeFlavor(
        name=f"{PREFIX}{pool_key(general, model.key)}-{os}-{arch}-{model.count}d",
        general_key=general or GENERIC,
        accelerator_key=model.key,
        count=model.count,
        os=os,
        arch=arch,
        product=model.product,
        family=model.family,
        memory=model.memory,
        cores=model.cores,
        node_labels={
            keys.MANAGED: keys.TRUE,
            keys.OS: os,
            keys.ARCH: arch,
            found: keys.TRUE,
            f"{found}.count": str(model.count),
        }
        | aware,
    )
