"""Strings of `status.summary`: table cells that join several figures.

For: the controllers that write statuses; the CRDs' printer columns show them (design §6, spec 02 §4.6, §6.7).
In: parts of a status. Out: one line of text each.
Promises: the text is exactly the cell of the v1 table; missing figures read 0, missing words read as nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from api.instance import Summary as InstanceSummary
from api.instance_type import InstanceTypeSpec, InstanceTypeStatus
from api.instance_type import Summary as InstanceTypeSummary
from nodefeature.fields import as_int, as_maps, as_str, at

_VIEWS = ("accelerator", "acceleratorShared", "acceleratorSliced", "acceleratorPartitioned")


def unit(spec: Mapping[str, Any]) -> str:
    """Return `<cpu>/<ram>/<local storage>`: `12/192Gi/100Gi`."""
    parts = (at(spec, "unitResources", "cpu"), at(spec, "unitResources", "ram"), at(spec, "localStorage"))
    return "/".join(map(as_str, parts))


def view(resource: object) -> str:
    """Return `<onceMaxRequest>/<remaining>` of one view: `5/47`."""
    return f"{_figure(at(resource, 'onceMaxRequest'))}/{_figure(at(resource, 'remaining'))}"


def accelerator(status: Mapping[str, Any]) -> str:
    """Return the four views EX, SH, SL, PT: `4/4 5/47 100/430 1/3`."""
    return " ".join(view(status.get(name)) for name in _VIEWS)


def partitions(profiles: Iterable[Mapping[str, Any]]) -> str:
    """Return remaining profiles: `1g.10gb:3,7g.80gb:0`."""
    return ",".join(f"{as_str(profile.get('name'))}:{as_int(profile.get('count'))}" for profile in profiles)


def ports(status_ports: object) -> str:
    """Return published ports: `22:30122/TCP,8080:31080/TCP`."""
    return ",".join(
        f"{as_int(port.get('port'))}:{as_int(port.get('nodePort'))}/{as_str(port.get('protocol')) or 'TCP'}"
        for port in as_maps(status_ports)
    )


def instance_type_summary(spec: InstanceTypeSpec, status: InstanceTypeStatus) -> InstanceTypeSummary:
    """Return the whole summary of an InstanceType; an empty text is not written."""
    cells: InstanceTypeSummary = {
        "unit": unit(spec),
        "accelerator": accelerator(status),
        "cpu": view(status.get("cpu")),
    }
    offered = partitions(as_maps(at(status, "acceleratorPartitioned", "remainingProfiles")))
    if offered:
        cells["partitions"] = offered
    return cells


def instance_summary(status: Mapping[str, Any]) -> InstanceSummary:
    """Return the whole summary of an Instance; an empty text is not written."""
    cell = ports(status.get("ports"))
    return {"ports": cell} if cell else {}


def _figure(value: object) -> str:
    return str(as_int(value)) if not isinstance(value, str) else value
