"""One preflight: every check of the node and of each manufacturer asked.

For: `device-manager preflight`. In: a detector, the host, drivers, options, a runner of commands. Out: a Report.
Promises: one preflight at a time on a node; it leaves nothing but its lock; with `dry_run` nothing is written and no
mode is changed, what would be run is written out.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from api.devices import DeviceGroup
from api.ledger.fit import is_sliceable
from devicemanager.answers import Detector
from devicemanager.detection import NOTHING_YET, DetectionOptions, look, next_detection
from devicemanager.injection.asking import card_facts
from devicemanager.injection.entrance import Drivers
from devicemanager.injection.host import Host
from devicemanager.injection.request import InjectionRefused
from devicemanager.injection.site import Site
from devicemanager.partitions.port import PartitionDriver
from devicemanager.preflight.driver_checks import driver_check
from devicemanager.preflight.maker_checks import Maker, maker_checks, slice_plan
from devicemanager.preflight.node_checks import depth_of, node_checks, runtime_of
from devicemanager.preflight.probe import Runner, can_probe, probe, probe_command, sweep_commands, written_out
from devicemanager.preflight.report import NODE, Check, Depth, Report, State
from kube.errors import OperatorError

FOLDER = "/var/lib/gpustack/operator/preflight"
_COUNTING = {
    "nvidia": ("nvidia-smi", "-L"),
    "ascend": ("npu-smi", "info", "-l"),
    "amd": ("rocm-smi", "--showuniqueid"),
}
_LINES = {"nvidia": "GPU ", "ascend": "NPU ID", "amd": "Unique ID"}


class PreflightRunning(OperatorError):
    """Another preflight is at work on this node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightOptions:
    """What a preflight may do. `image` empty: no container is run. `runtime` empty: the node is asked."""

    detection: DetectionOptions
    node_name: str
    dry_run: bool = False
    image: str = ""
    runtime: str = ""
    is_recorded: bool = False


@dataclass(frozen=True, slots=True)
class Means:
    """What a preflight acts through."""

    site: Site
    host: Host
    drivers: Drivers
    runner: Runner
    partitions: Mapping[str, PartitionDriver] = field(default_factory=dict)


async def run_preflight(detector: Detector, options: PreflightOptions, means: Means) -> Report:
    """Return the report."""
    seen = await look(detector, options.detection.manufacturers)
    detection = next_detection(NOTHING_YET, seen, options.detection)
    checks = node_checks(means.host, node_name=options.node_name)
    checks.append(_working_folder(means, options))
    emitted: list[str] = []
    for name in options.detection.manufacturers:
        groups = detection.groups.get(name, ())
        maker = Maker(name, seen.answers[name], groups, depth_of(is_recorded=options.is_recorded))
        checks += maker_checks(maker, means.site, means.host)
        checks += _driver_row(maker, options, means)
        if groups and not options.is_recorded:
            checks += _counted(maker, means.runner)
            checks += _probed(maker, options, means, emitted)
    return Report(tuple(checks), tuple(emitted))


@contextmanager
def only_one(root: Path, *, dry_run: bool) -> Iterator[None]:
    """Hold the node's preflight lock; a dry run needs none. The lock file stays, everything else there goes."""
    if dry_run:
        yield
        return
    folder = root / FOLDER.lstrip("/")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise PreflightRunning(f"{folder}: {error.strerror}; use --dry-run where nothing may be written") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise PreflightRunning(f"{folder}/lock: another preflight is at work on this node; wait for it") from error
    finally:
        os.close(descriptor)


def _working_folder(means: Means, options: PreflightOptions) -> Check:
    folder = means.site.pods_root
    if options.dry_run:
        return Check(about=NODE, name="working-folder", state=State.OK, said=f"{folder}, not tried by a dry run")
    try:
        means.host.try_folder(folder)
    except InjectionRefused as refused:
        return Check(
            about=NODE,
            name="working-folder",
            state=State.UNAVAILABLE,
            depth=Depth.MEASURED,
            said=str(refused),
            remedy="make that path writable for the agent",
        )
    return Check(about=NODE, name="working-folder", state=State.OK, depth=Depth.MEASURED, said=folder)


def _driver_row(maker: Maker, options: PreflightOptions, means: Means) -> list[Check]:
    cards = [card_facts(group, card) for group, card in maker.cards]
    row = driver_check(
        maker.name,
        cards,
        means.drivers,
        partitions=means.partitions.get(maker.name),
        may_write=not options.dry_run,
    )
    return [row] if row is not None else []


def _counted(maker: Maker, runner: Runner) -> list[Check]:
    """Compare the cards with what the vendor's own tool lists."""
    command = _COUNTING.get(maker.name)
    if command is None:
        return []
    ran = runner.run(command)
    name, said = "host-tool", " ".join(command)
    if ran.code != 0:
        return [Check(about=maker.name, name=name, state=State.NOT_DECLARED, said=f"{said} ended with {ran.code}")]
    lines = sum(_LINES[maker.name] in line for line in ran.output.splitlines())
    found = len(maker.cards)
    if lines == found:
        return [Check(about=maker.name, name=name, state=State.OK, depth=Depth.MEASURED, said=f"{said}: {lines}")]
    return [
        Check(
            about=maker.name,
            name=name,
            state=State.UNAVAILABLE,
            depth=Depth.MEASURED,
            said=f"{said} lists {lines} accelerators, {found} were detected",
            remedy="`device-manager detect` names what was left out",
        )
    ]


def _probed(maker: Maker, options: PreflightOptions, means: Means, emitted: list[str]) -> list[Check]:
    sliceable = _first_sliceable(maker)
    if not options.image or not can_probe(maker.name) or sliceable is None:
        return []
    tool = runtime_of(means.host, options.runtime)
    try:
        plan = slice_plan(maker.name, means.site, *sliceable)
    except InjectionRefused:
        return []  # the row sliced-quota-in-force says why
    runtime = means.site.registry.runtime_class(maker.name)
    if options.dry_run or tool in ("", "ctr"):
        shown = tool or "docker"
        listing, removal = sweep_commands(shown)
        emitted += [written_out([*removal, f"$({written_out(listing)})"])]
        emitted += [written_out(probe_command(maker.name, plan, options.image, shown, runtime))]
        return []
    return [probe(maker.name, plan, image=options.image, tool=tool, runner=means.runner, runtime=runtime)]


def _first_sliceable(maker: Maker) -> tuple[DeviceGroup, Mapping[str, object]] | None:
    return next(((group, card) for group, card in maker.cards if is_sliceable(card)), None)
