"""`gpustack-operator device-manager monitor`: how busy the cards are, once or live."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

import uvloop
import yaml

from devicemanager.detection import DetectionOptions
from devicemanager.monitor import TABLE_HEADER, Monitor, Snapshot, snapshot_body, table_rows
from devicemanager.serve import detect_once, open_detector
from gpustack_operator.config import DetectorOptions, LogOptions, ManufacturerOptions, OutputOptions, WatchOptions
from gpustack_operator.processes import environment_of, start_logging
from gpustack_operator.tables import table
from kube.clock import SystemClock
from nodefeature.environment import is_group_id_with_memory

_CLEAR = "\x1b[H\x1b[2J"


def run(
    manufacturers: ManufacturerOptions,
    detector: DetectorOptions,
    output: OutputOptions,
    watch: WatchOptions,
    logs: LogOptions,
    *,
    environ: Mapping[str, str],
) -> None:
    """Print samples; what could not be measured goes to standard error."""
    start_logging(logs)
    registry = environment_of(environ)
    options = DetectionOptions(
        manufacturers=manufacturers.manufacturer, registry=registry, id_with_memory=is_group_id_with_memory(environ)
    )
    clock = SystemClock()

    async def measure() -> None:
        async with open_detector(
            clock, registry, recorded=detector.recorded, no_pci_check=detector.no_pci_check
        ) as opened:
            monitor = Monitor(opened, clock, period_s=watch.watch or detector.monitor_period)
            while True:
                groups = (await detect_once(opened, options)).all_groups()
                shown = await monitor.sample(groups)
                sys.stdout.write(rendered(shown, output.output, live=bool(watch.watch) and sys.stdout.isatty()))
                sys.stdout.flush()
                if not watch.watch:
                    return
                await clock.sleep(watch.watch)

    uvloop.run(measure())


def rendered(snapshot: Snapshot, output: str, *, live: bool = False) -> str:
    """Return one sample as text; `live` redraws the screen of a table."""
    if output == "json":
        return json.dumps(snapshot_body(snapshot)) + "\n"
    if output == "yaml":
        return "---\n" + yaml.safe_dump(snapshot_body(snapshot), sort_keys=False, allow_unicode=True)
    body = snapshot_body(snapshot)
    lines = [f"measured {body['timestamp']}", table(TABLE_HEADER, table_rows(snapshot))]
    lines += [f"{maker}: not measured: {reason}" for maker, reason in sorted(snapshot.troubles.items())]
    return (_CLEAR if live else "") + "\n".join(lines) + "\n"
