"""AMD: device nodes; slices by a compute-unit mask and a preload library (spec 06 §8).

Promises: the vendor's runtime is told to show nothing (`none`): what a container sees is what its nodes are; a slice's
window of compute units was placed with the allocation and is repeated here word for word.
"""

from __future__ import annotations

from devicemanager.injection.request import Card, DeviceNode, InjectionRefused, Mount, Plan, Request
from devicemanager.injection.site import Site, cores_percentage, granted, memory_mib, physical_index, unless_declared
from nodefeature.resource_names import Family

_LEDGER = "/var/run/vrocm"
_TOOLS = ("libvrocm.so", "rocm-monitor", "rocm-cumask-check")


def plan(request: Request, site: Site) -> Plan:
    """Return what the container gets."""
    cards = granted(request)
    if any(not card.id for card in cards):
        raise InjectionRefused("an AMD accelerator without an id cannot be given away; it is detected anew next pass")
    nodes = [DeviceNode("/dev/kfd", required=True)]
    for card in cards:
        nodes += _drm_nodes(card)
    env = {"AMD_VISIBLE_DEVICES": "none"}
    if request.claim.family is not Family.SLICED:
        return Plan(env=env, devices=tuple(nodes))
    ledger = site.work(request.claim, "run/vrocm")
    env["ROCR_VISIBLE_DEVICES"] = ",".join(f"GPU-{card.id.removeprefix('GPU-')}" for card in cards)
    for position, card in enumerate(cards):
        env[f"VROCM_DEVICE_MEMORY_LIMIT_{position}"] = str(memory_mib(request, card, site))
    env["VROCM_LEDGER_PATH"] = f"{_LEDGER}/ledger"
    env["HSA_CU_MASK"] = ";".join(_mask(position, card, request) for position, card in enumerate(cards))
    return Plan(
        env=env | unless_declared(request.claim, LIBVROCM_LOG_LEVEL="1"),
        devices=tuple(nodes),
        mounts=(
            Mount("/etc/ld.so.preload", site.library("amd", "ld.so.preload")),
            *(Mount(f"/usr/local/vrocm/{tool}", site.library("amd", tool)) for tool in _TOOLS),
            Mount(_LEDGER, ledger, read_only=False),
        ),
        folders=(ledger,),
        notes=tuple(note for card in cards if (note := _shortfall(card, request))),
    )


def _shortfall(card: Card, request: Request) -> str:
    asked = cores_percentage(request.claim, card)
    if card.window is None or not card.cores or card.window.length * 100 >= asked * card.cores:
        return ""
    delivered = card.window.length * 100 // card.cores
    return f"accelerator {card.id}: {asked} % asked, {delivered} % delivered: compute units come in groups"


def _drm_nodes(card: Card) -> list[DeviceNode]:
    number = physical_index(card, 0, "carries no DRM card number")
    render = physical_index(card, 1, "carries no DRM render number")
    return [DeviceNode(f"/dev/dri/card{number}", required=True), DeviceNode(f"/dev/dri/renderD{render}", required=True)]


def _mask(position: int, card: Card, request: Request) -> str:
    if card.window is None:
        share = cores_percentage(request.claim, card)
        raise InjectionRefused(f"accelerator {card.id} has no window of compute units for a slice of {share} %")
    return f"{position}:{card.window.start}-{card.window.start + card.window.length - 1}"
