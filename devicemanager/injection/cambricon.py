"""Cambricon: device nodes; slices are sMLU instances that the driver makes (spec 06 §8.1, §8.2, §8.6).

Promises: a container asked for again gets the instance it has, or none; what was created for a refused one is gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from devicemanager.injection.markers import fields_of, marker_text
from devicemanager.injection.request import ContainerClaim, DeviceNode, InjectionRefused, Plan, Request
from devicemanager.injection.site import Site, cores_percentage, granted, memory_mib, only_card, physical_index, who
from nodefeature.resource_names import Family

MARKER = "cambricon-smlu.json"
NAME_PREFIX = "gpustack:"
_CONTROL = ("/dev/cambricon_ctl", "/dev/cambricon_gdr")
_MISSING_INDEX = "carries no cnDev device index"


@dataclass(frozen=True, slots=True)
class SmluInstance:
    """One instance; `node` is its device node, empty when the driver names none."""

    name: str
    profile_id: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class SmluProfile:
    """One profile: a share of compute in percent and MiB."""

    profile_id: int
    cores: int
    mib: int


class SmluDriver(Protocol):
    """The driver's sMLU functions, by device index. Methods raise DriverFault, or ApiMissing."""

    def is_enabled(self, index: int) -> bool:
        """Say whether sMLU mode is on."""

    def enable(self, index: int) -> None:
        """Turn sMLU mode on."""

    def profiles(self, index: int) -> tuple[SmluProfile, ...]:
        """Return the card's profiles."""

    def instances(self, index: int) -> tuple[SmluInstance, ...]:
        """Return the card's instances."""

    def create_profile(self, index: int, cores: int, mib: int) -> SmluProfile:
        """Create a profile of `cores` percent and `mib` MiB."""

    def destroy_profile(self, index: int, profile_id: int) -> None:
        """Destroy a profile."""

    def create(self, index: int, profile_id: int, name: str) -> SmluInstance:
        """Create an instance."""

    def destroy(self, index: int, name: str) -> None:
        """Destroy an instance."""


@dataclass(frozen=True, slots=True)
class Smlu:
    """What a container holds on a card (by id)."""

    pod_uid: str
    container: str
    card: str
    instance: str
    profile_id: int
    cores: int
    mib: int


def plan(request: Request, instance: SmluInstance | None = None) -> Plan:
    """Return what the container gets; `instance` is what a slice holds."""
    numbers = [physical_index(card, 0, _MISSING_INDEX) for card in granted(request)]
    env = {"CAMBRICON_VISIBLE_DEVICES": ",".join(map(str, numbers))}
    if request.claim.family is not Family.SLICED or instance is None:
        nodes = [node for number in numbers for node in _card_nodes(number)]
        return Plan(env=env, devices=(*nodes, *map(DeviceNode, _CONTROL)))
    (number,) = numbers
    nodes = [DeviceNode(f"/dev/cambricon_dev{number}", required=True), DeviceNode(f"/dev/cambricon_ipcm{number}")]
    if instance.node:
        nodes.append(DeviceNode(instance.node, required=True))
    shown = {"VIRTUAL_DEVICES": instance.node} if instance.node else {}
    return Plan(env=shown, devices=(*nodes, *map(DeviceNode, _CONTROL)))


def instance_name(claim: ContainerClaim) -> str:
    """Return the name of a container's instance: stable, and short enough for the driver."""
    digest = hashlib.sha256(claim.container.encode()).hexdigest()
    return f"{NAME_PREFIX}{claim.pod_uid}:{digest[:12]}"


def wanted(request: Request, site: Site) -> Smlu:
    """Return what a slice needs; its profile is still open (-1)."""
    card = only_card(request, "sMLU slicing is single-card")
    claim = request.claim
    return Smlu(
        claim.pod_uid,
        claim.container,
        card.id,
        instance_name(claim),
        -1,
        cores_percentage(claim, card),
        memory_mib(request, card, site),
    )


def held(want: Smlu, own: Smlu, live: Collection[SmluInstance], request: Request) -> SmluInstance:
    """Return the live instance a marker names; refused when it names another slice or one that is gone."""
    expected = Smlu(want.pod_uid, want.container, want.card, want.instance, own.profile_id, want.cores, want.mib)
    if own != expected:
        raise InjectionRefused(f"{who(request.claim)}: its marker names another slice of {own.card}; recreate the Pod")
    found = next((one for one in live if one.name == own.instance), None)
    if found is None:
        raise InjectionRefused(f"{who(request.claim)}: its instance {own.instance} is gone; recreate the Pod")
    return found


def parse_marker(text: str, where: str) -> Smlu:
    """Read a marker; MarkerMalformed when it is none."""
    raw = fields_of(
        text,
        where,
        texts=("podUID", "container", "card", "instance"),
        numbers=("profileID", "coresPct", "memMiB"),
    )
    return Smlu(
        raw["podUID"],
        raw["container"],
        raw["card"],
        raw["instance"],
        raw["profileID"],
        raw["coresPct"],
        raw["memMiB"],
    )


def dump_marker(smlu: Smlu) -> str:
    """Return a marker's text."""
    return marker_text(
        {
            "podUID": smlu.pod_uid,
            "container": smlu.container,
            "card": smlu.card,
            "instance": smlu.instance,
            "profileID": smlu.profile_id,
            "coresPct": smlu.cores,
            "memMiB": smlu.mib,
        }
    )


def _card_nodes(number: int) -> list[DeviceNode]:
    optional = ("cambr-msgq:", "cambr-rpc:", "cmsg_ctrl", "commu", "cambricon_ipcm")
    return [
        DeviceNode(f"/dev/cambricon_dev{number}", required=True),
        *(DeviceNode(f"/dev/{name}{number}") for name in optional),
    ]
