"""What an Instance's status says (spec 05 §9, §10.1; spec 02 §6.5-§6.6).

For: the instance controller. In: the Instance, its Pod, Service, node, Workload, the node's Devices, settings.
Out: the status to store. Promises: pure; the same world gives the same status, whatever was stored before, save
transition times, the figures of a Pod that does not run now, and allocations whose record cannot be read at the moment;
every value fits the CRD's schema, whatever an annotation says.
Trusts: the allocation record only as far as the Pod's own requests bear it out, and for cards the node has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.devices import LedgerGroup, iter_cards
from api.instance import STARTING, STOPPED, Address
from api.instance_conditions import Reason
from api.instance_status import access_addresses, host_ips_of, pod_phase
from api.instance_type import Phase
from api.ledger.evidence import credible
from api.ledger.modes import Mode
from api.ledger.transport import ALLOCATED_ANNOTATION, fold_groups, transport_of
from api.models.devices import Allocation, AllocationGroup
from api.pod_requests import claims_of
from api.settings import Settings
from api.summary import instance_summary
from api.validation import shape_problems
from controllers.instance_progress import Progress, conditions_of, held_up, progress_of
from controllers.instance_service import published_ports
from nodefeature.fields import annotations_of, as_map, as_maps, as_str, at
from nodefeature.manufacturers import Manufacturers

_MAX_MESSAGE = 4096
_MAX_ADDRESSES = 64
_MAX_GROUPS = 64
_OF_POD = ("nodeName", "hostIPs", "podIPs", "ports", "allocations")
"""What a status says about one Pod."""
Status = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a Pod's status is derived from."""

    instance: Mapping[str, Any]
    pod: Mapping[str, Any]
    service: Mapping[str, Any] | None
    node: Mapping[str, Any] | None
    devices: Mapping[str, Any] | None
    workload: Mapping[str, Any] | None
    settings: Settings
    registry: Manufacturers
    now: str


def running_status(world: World) -> Status:
    """Return the status of an Instance that has a Pod."""
    phase = pod_phase(world.pod)
    progress = progress_of(world.pod, world.workload, phase)
    if phase.phase == "Pending" and not progress.admitted.holds:
        phase = Phase(phase.phase, progress.admitted.message)  # what the gate waits for, not that there is a gate
    stored = as_map(at(world.instance, "status"))
    if at(world.pod, "status", "phase") == "Running":
        parts = _parts_of(world, stored)
    else:
        # Before it ran there is nothing; after it ended its last figures are the evidence.
        same = bool(stored.get("nodeName")) and stored.get("nodeName") == at(world.pod, "spec", "nodeName")
        parts = {field: stored[field] for field in _OF_POD if same and field in stored}
    return _status(world.instance, phase, parts, progress, world.settings, world.now)


def waiting_status(instance: Mapping[str, Any], phase: Phase, reason: Reason, settings: Settings, now: str) -> Status:
    """Return the status of an Instance without a Pod; nothing of an earlier Pod stays."""
    return _status(instance, phase, {}, held_up(reason, phase.message), settings, now)


def starting_status(instance: Mapping[str, Any], settings: Settings, now: str) -> Status:
    """Return the status at the moment a Pod is about to be created."""
    progress = held_up(Reason.POD_NOT_CREATED, "its Pod is being created")
    return _status(instance, Phase(STARTING), {}, progress, settings, now)


def stopped_status(instance: Mapping[str, Any], settings: Settings, now: str) -> Status:
    """Return the status of a stopped Instance."""
    return _status(instance, Phase(STOPPED), {}, held_up(Reason.STOPPED, "stopped"), settings, now)


def leaving_status(instance: Mapping[str, Any], phase: str, reason: Reason, message: str, now: str) -> Status:
    """Return the status while the Pod goes (`Stopping`, `Deleting`): what it says of the Pod stays until then."""
    kept = {k: v for k, v in as_map(at(instance, "status")).items() if k not in ("phaseMessage", "conditions")}
    status = kept | {"phase": phase, "conditions": conditions_of(instance, held_up(reason, message), now)}
    return status | ({"phaseMessage": message} if message else {})


def allocations_of(
    pod: Mapping[str, Any], devices: Mapping[str, Any] | None, registry: Manufacturers
) -> list[LedgerGroup] | None:
    """Return what the agents recorded on a Pod, as written; None while the record cannot be read.

    Left out: what the Pod did not ask for, cards the node does not have, and figures that no card has.
    """
    transport = transport_of(pod)
    if not transport.readable:
        return None
    borne_out, _ = credible(transport.records, claims_of(as_map(pod.get("spec")), registry))
    seen = [record for record in transport.records if record.mode is Mode.VISIBILITY]
    inventory = {(as_str(g.get("id")), as_str(c.get("id"))) for g, c in iter_cards(devices)} if devices else None
    shown = {
        (record.group_id, record.card_id, int(record.mode))
        for record in (*borne_out, *seen)
        if inventory is None or (record.group_id, record.card_id) in inventory
    }
    groups: list[LedgerGroup] = []
    for group in fold_groups(annotations_of(pod).get(ALLOCATED_ANNOTATION)):
        cards = [
            card
            for card in group["accelerators"]
            if (group["id"], card.get("id"), card.get("mode")) in shown and not shape_problems(Allocation, card)
        ]
        whole: LedgerGroup = {"id": group["id"], "manufacturer": group["manufacturer"], "accelerators": cards}
        if cards and not shape_problems(AllocationGroup, whole):
            groups.append(whole)
    return groups[:_MAX_GROUPS]


def _status(
    instance: Mapping[str, Any],
    phase: Phase,
    parts: Mapping[str, Any],
    progress: Progress,
    settings: Settings,
    now: str,
) -> Status:
    status: Status = {"phase": phase.phase}
    if phase.message:
        status["phaseMessage"] = phase.message[:_MAX_MESSAGE]
    status |= {field: parts[field] for field in _OF_POD if parts.get(field)}
    addresses = access_addresses(
        static=settings.instance_access_static_address,
        wildcard_dns=settings.instance_access_wildcard_dns,
        host_ips=[as_str(item.get("ip")) for item in as_maps(status.get("hostIPs"))],
        stored=(),
    )
    if addresses:
        status["accessAddresses"] = [address[:253] for address in addresses]
    summary = instance_summary(status)
    if summary:
        status["summary"] = summary
    status["conditions"] = conditions_of(instance, progress, now)
    return status


def _parts_of(world: World, stored: Mapping[str, Any]) -> dict[str, Any]:
    node_name = as_str(at(world.pod, "spec", "nodeName"))
    same = stored.get("nodeName") == node_name
    spec = as_map(at(world.instance, "spec"))
    ports = published_ports(spec, world.service) if world.service is not None else None
    allocations = allocations_of(world.pod, world.devices, world.registry)
    return {
        "nodeName": node_name,
        "hostIPs": _host_ips(world),
        "podIPs": _pod_ips(world.pod),
        "ports": ports if ports is not None else (stored.get("ports") if same else None),
        "allocations": allocations if allocations is not None else (stored.get("allocations") if same else None),
    }


def _host_ips(world: World) -> list[Address]:
    """Return the node's addresses, the external ones first; the Pod's own word where the node is not to be seen."""
    found = host_ips_of(world.node) if world.node is not None else []
    return _addresses(found or [as_str(item.get("ip")) for item in as_maps(at(world.pod, "status", "hostIPs"))])


def _pod_ips(pod: Mapping[str, Any]) -> list[Address]:
    found = [as_str(item.get("ip")) for item in as_maps(at(pod, "status", "podIPs"))]
    return _addresses(found or [as_str(at(pod, "status", "podIP"))])


def _addresses(found: Sequence[str]) -> list[Address]:
    shown = [ip for ip in dict.fromkeys(found) if ip and len(ip) <= 253]
    return [Address(ip=ip) for ip in shown[:_MAX_ADDRESSES]]
