"""Making a plan real: its nodes are there, its folders made, its files written.

In: a plan and the host. Out: the plan without what is not there.
Promises: everything that must exist is checked before anything is written; a refusal leaves no new file behind.
"""

from __future__ import annotations

from dataclasses import replace

from devicemanager.injection.host import Host
from devicemanager.injection.request import DeviceNode, InjectionRefused, Mount, Plan


def check(plan: Plan, host: Host) -> Plan:
    """Return the plan without its absent optional parts; InjectionRefused when a required one is absent or wrong."""
    devices = tuple(node for node in plan.devices if _stands(node, host))
    coming = (*plan.folders, *(file.path for file in plan.files))
    mounts = tuple(mount for mount in plan.mounts if _mountable(mount, coming, host))
    return replace(plan, devices=devices, mounts=mounts)


def write(plan: Plan, host: Host) -> None:
    """Make a checked plan's folders and files; those of this plan that were new are removed when one fails."""
    written: list[str] = []
    for folder in plan.folders:
        host.make_folder(folder)
    try:
        for file in plan.files:
            is_new = not host.exists(file.path)
            host.write(file)
            if is_new:
                written.append(file.path)
    except InjectionRefused:
        for path in written:
            host.remove(path)
        raise


def _stands(node: DeviceNode, host: Host) -> bool:
    facts = host.node(node.path)
    if facts is None:
        if node.required:
            raise InjectionRefused(f"{node.path} is not on this node; is the driver loaded?")
        return False
    if node.character and not facts.character:
        raise InjectionRefused(f"{node.path} is no character device")
    if node.minor is not None and facts.minor != node.minor:
        raise InjectionRefused(f"{node.path} carries minor {facts.minor}, want {node.minor}")
    return True


def _mountable(mount: Mount, coming: tuple[str, ...], host: Host) -> bool:
    if mount.host_path in coming or host.exists(mount.host_path):
        return True
    if mount.optional:
        return False
    raise InjectionRefused(
        f"{mount.host_path} is not on this node, so {mount.container_path} cannot be mounted; "
        "`device-manager preflight` says what is missing"
    )
