"""Ascend: visible devices by number; slices by the file npu_info.config (spec 06 §8.1-§8.3).

Promises: a slice keeps the virtual number it has; a new one gets the lowest that no other container of the node uses on
the same NPU.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from devicemanager.injection.request import Card, HostFile, InjectionRefused, Mount, Plan, Request
from devicemanager.injection.site import (
    Site,
    cores_percentage,
    granted,
    memory_mib,
    only_card,
    physical_index,
    runtime_major,
    unless_declared,
)
from nodefeature.resource_names import Family

CONFIG = "etc/enpu/vcann-rt/npu_info.config"
_DEFAULT_CANN = 8
_FAMILY_BY_DEVICE = "950"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the node's, mounted as it is
SHARING = (Family.SHARED, Family.SLICED, Family.VISIBILITY)
"""Families whose cards need the driver's container-share flag."""


@dataclass(frozen=True, slots=True)
class NpuInfo:
    """The two numbers that tell slices of one NPU apart."""

    physical: int
    virtual: int


def plan(request: Request, site: Site, own: str | None = None, others: Iterable[str] = ()) -> Plan:
    """Return what the container gets; `own` is its existing npu_info.config, `others` are the other containers'."""
    if request.claim.family is not Family.SLICED:
        return Plan(env={"ASCEND_VISIBLE_DEVICES": ",".join(str(_number(card)) for card in granted(request))})
    card = only_card(request, "vcann-rt logical slicing is single-NPU")
    number = _number(card)
    library = library_folder(site, runtime_major((card,), _DEFAULT_CANN), card.family)
    config = site.work(request.claim, CONFIG)
    return Plan(
        env={
            "ASCEND_VISIBLE_DEVICES": str(number),
            **unless_declared(request.claim, ENPU_LOG_LEVEL="1", ENPU_DSMI_HOOK="1"),
        },
        mounts=(
            Mount("/etc/ld.so.preload", site.library("ascend", "ld.so.preload")),
            Mount("/opt/enpu/vcann-rt/lib/libvruntime.so", f"{library}/lib/libvruntime.so"),
            Mount("/opt/enpu/vcann-rt/tools/enpu-monitor", f"{library}/tools/enpu-monitor"),
            Mount(f"/{CONFIG}", config),
            Mount(_SHARED_MEMORY, _SHARED_MEMORY, read_only=False),
        ),
        files=(HostFile(config, _config_text(request, card, site, own=own, others=others)),),
    )


def library_folder(site: Site, major: int, family: str) -> str:
    """Return where the slicing library for a CANN major version and a family is expected."""
    return site.library("ascend", f"cann-{major}-{family.lower()}")


def parse_npu_info(text: str) -> NpuInfo | None:
    """Return the numbers of a file, None when it does not hold both."""
    values: dict[str, int] = {}
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if value.strip().isascii() and value.strip().isdecimal():
            values[key.strip()] = int(value)
    physical, virtual = values.get("physical-npu-id"), values.get("virtual-npu-id")
    return None if physical is None or virtual is None else NpuInfo(physical, virtual)


def _number(card: Card) -> int:
    if card.family == _FAMILY_BY_DEVICE:
        return physical_index(card, 1, "carries no dcmi device index")
    return physical_index(card, 0, "carries no dcmi physical index")


def _config_text(request: Request, card: Card, site: Site, *, own: str | None, others: Iterable[str]) -> str:
    physical = physical_index(card, 0, "carries no dcmi physical index")
    before = parse_npu_info(own) if own is not None else None
    if before is not None and before.physical == physical:
        virtual = before.virtual
    else:
        infos = map(parse_npu_info, others)
        used = {info.virtual for info in infos if info is not None and info.physical == physical}
        virtual = next(number for number in range(len(used) + 1) if number not in used)
    percent = cores_percentage(request.claim, card)
    if percent > 100:
        raise InjectionRefused(f"a slice of {percent} % of accelerator {card.id} is more than all of it")
    lines = (
        f"physical-npu-id={physical}",
        f"virtual-npu-id={virtual}",
        f"aicore-quota={percent}",
        f"memory-quota={memory_mib(request, card, site)}",
        f"shm-id={card.id.replace(' ', '-')}",
        "scheduling-policy=2",
    )
    return "\n".join(lines) + "\n"
