"""What plans need to know of this node before they can be made.

In: a request and the host. Out: other containers' slices, partitions' device numbers.
Promises: only what a request needs is read; slices that could be given away twice are read entirely or not at all.
"""

from __future__ import annotations

from devicemanager.injection import ascend, hygon, thead
from devicemanager.injection.host import Host
from devicemanager.injection.request import Request
from devicemanager.injection.shown import partitions, shows_partitions
from devicemanager.injection.site import Site
from devicemanager.injection.vdev import VdevConf, parse_vdev
from nodefeature.resource_names import Family


def npu_infos(request: Request, site: Site, host: Host) -> tuple[str | None, list[str]]:
    """Return the container's own npu_info.config, and those of all others."""
    if request.claim.family is not Family.SLICED:
        return None, []
    mine = site.work(request.claim, ascend.CONFIG)
    paths = [f"{folder}/{ascend.CONFIG}" for folder in host.work_folders(site.pods_root)]
    texts = [host.read(path) for path in paths if path != mine]
    return host.read(mine), [text for text in texts if text is not None]


def vdev_confs(request: Request, site: Site, host: Host) -> tuple[dict[str, VdevConf], list[VdevConf]]:
    """Return the container's own vdev files by name, and all others of the node."""
    own: dict[str, VdevConf] = {}
    others: list[VdevConf] = []
    if request.claim.family is not Family.SLICED:
        return own, others
    mine = site.work(request.claim, hygon.VDEV_FOLDER)
    for work in host.work_folders(site.pods_root):
        folder = f"{work}/{hygon.VDEV_FOLDER}"
        for name in host.names(folder):
            text = host.read(f"{folder}/{name}") if name.startswith("vdev") and name.endswith(".conf") else None
            if text is None:
                continue
            conf = parse_vdev(text, f"{folder}/{name}")
            if folder == mine:
                own[name] = conf
            else:
                others.append(conf)
    return own, others


def mig_numbers(request: Request, host: Host) -> dict[str, int]:
    """Return MIG's own numbers of Hygon's cards, by bus address: the files dev<N>, one line each."""
    if not shows_partitions(request.claim):
        return {}
    numbers = {}
    for name in host.names(hygon.MIG_CONFIG):
        digits = name.removeprefix("dev")
        if name.startswith("dev") and digits.isdecimal():
            numbers[(host.read(f"{hygon.MIG_CONFIG}/{name}") or "").strip().lower()] = int(digits)
    return numbers


def capability_minors(request: Request, host: Host) -> dict[str, thead.CapabilityMinors]:
    """Return the minor numbers of T-Head partitions' capability nodes, by card id."""
    found: dict[str, thead.CapabilityMinors] = {}
    if not shows_partitions(request.claim):
        return found
    for card, _ in partitions(request):
        gpu, compute = (thead.minor_in(host.read(path) or "") for path in thead.capability_files(card))
        if gpu is not None and compute is not None:
            found[card.id] = thead.CapabilityMinors(gpu, compute)
    return found
