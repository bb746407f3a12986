"""Hygon: device nodes; hard spatial slices by vdev.conf; partitions by their own file (spec 06 §8, §10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from devicemanager.injection.request import Card, DeviceNode, HostFile, InjectionRefused, Mount, Plan, Request
from devicemanager.injection.shown import partitions, shows_partitions
from devicemanager.injection.site import Site, cores_percentage, granted, memory_mib, who
from devicemanager.injection.vdev import VdevConf, next_vdev, vdev_text
from nodefeature.resource_names import Family

MIG_CONFIG = "/etc/dmi_mig_config"
VDEV_FOLDER = "etc/vdev/docker"
_HYHAL = Mount("/opt/hyhal", "/opt/hyhal", optional=True)
_RUNTIME = Mount("/opt/hygondriver", "/opt/dtk", optional=True)
_KFD = (DeviceNode("/dev/kfd", "rwm"), DeviceNode("/dev/mkfd", "rwm"))


def plan(
    request: Request,
    site: Site,
    *,
    own: Mapping[str, VdevConf] | None = None,
    others: Sequence[VdevConf] = (),
    numbers: Mapping[str, int] | None = None,
) -> Plan:
    """Return what the container gets.

    `own` are its existing vdev files by file name, `others` all others of the node; `numbers` are MIG's own numbers of
    cards, by bus address.
    """
    nodes = (*_KFD, *(node for card in granted(request) for node in _drm_nodes(card)))
    if shows_partitions(request.claim):
        return _partitioned(request, nodes, numbers or {})
    if request.claim.family is not Family.SLICED:
        return Plan(devices=nodes, mounts=(_HYHAL,))
    folder = site.work(request.claim, VDEV_FOLDER)
    return Plan(
        devices=nodes,
        mounts=(_RUNTIME, _HYHAL, Mount("/etc/vdev/docker", folder)),
        folders=(folder,),
        files=_vdev_files(request, site, folder, own=own or {}, others=others),
    )


def instance_file(number: int, gpu_instance: int, compute_instance: int) -> str:
    """Return where the driver describes a partition."""
    return f"{MIG_CONFIG}/ci/dev{number}gi{gpu_instance}ci{compute_instance}.conf"


def _drm_nodes(card: Card) -> list[DeviceNode]:
    names = ("/dev/dri/card", "/dev/dri/renderD")
    return [DeviceNode(f"{name}{number}") for name, number in zip(names, card.physical_indexes, strict=False)]


def _partitioned(request: Request, nodes: tuple[DeviceNode, ...], numbers: Mapping[str, int]) -> Plan:
    shown = partitions(request)
    if len(shown) > 1:
        raise InjectionRefused(f"{who(request.claim)}: one partition a container, {len(shown)} were granted")
    card, partition = shown[0]
    number = numbers.get(card.bus_id)
    if number is None:
        raise InjectionRefused(
            f"accelerator {card.id} at {card.bus_id or 'no address'} has no file dev<N> in {MIG_CONFIG}"
        )
    described = instance_file(number, partition.gpu_instance, partition.compute_instance)
    return Plan(
        env={"DMI_MIG_VISIBLE_DEVICE": f"MIG-{partition.uuid.removeprefix('MIG-')}"},
        devices=nodes,
        mounts=(_HYHAL, _RUNTIME, Mount(described, described)),
    )


def _vdev_files(
    request: Request, site: Site, folder: str, *, own: Mapping[str, VdevConf], others: Sequence[VdevConf]
) -> tuple[HostFile, ...]:
    taken = list(others)
    files = []
    for position, card in enumerate(granted(request)):
        name = f"vdev{position}.conf"
        before = own.get(name)
        if before is not None and before.bus_id == card.bus_id:
            taken.append(before)
            continue
        made = next_vdev(
            card,
            percent=cores_percentage(request.claim, card),
            mib=memory_mib(request, card, site),
            position=position,
            taken=taken,
        )
        taken.append(made)
        files.append(HostFile(f"{folder}/{name}", vdev_text(made)))
    return tuple(files)
