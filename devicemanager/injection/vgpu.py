"""The preload library libvgpu: one slice's limits by environment (NVIDIA and Iluvatar, spec 06 §8.2)."""

from __future__ import annotations

from dataclasses import dataclass

from devicemanager.injection.request import Card, Mount, Plan, Request
from devicemanager.injection.site import Site, cores_percentage, memory_mib

_LOCKS = "/tmp/vgpulock"  # noqa: S108 - the library's own fixed place, shared by all containers of the node
_STATE = "/tmp/vgpu"  # noqa: S108 - fixed in the library; on the host it is the container's own folder
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the node's, mounted as it is


@dataclass(frozen=True, slots=True)
class Shim:
    """Where one manufacturer's build lies."""

    preload: str
    library: str


def limits(request: Request, cards: tuple[Card, ...], site: Site, shim: Shim) -> Plan:
    """Return limits and mounts; which cards are visible is the manufacturer's own business."""
    state = site.work(request.claim, "tmp/vgpu")
    return Plan(
        env={
            "CUDA_DEVICE_SM_LIMIT": str(min(cores_percentage(request.claim, card) for card in cards)),
            **{
                f"CUDA_DEVICE_MEMORY_LIMIT_{position}": f"{memory_mib(request, card, site)}m"
                for position, card in enumerate(cards)
            },
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{_STATE}/cudevshr.cache",
        },
        mounts=(
            Mount(_LOCKS, _LOCKS, read_only=False),
            Mount("/etc/ld.so.preload", shim.preload),
            Mount("/usr/local/vgpu/libvgpu.so", shim.library),
            Mount(_STATE, state, read_only=False),
            Mount(_SHARED_MEMORY, _SHARED_MEMORY, read_only=False),
        ),
        folders=(_LOCKS, state),
    )
