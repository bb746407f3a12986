"""`gpustack-operator device-manager preflight`: is this node fit, and if not, what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import uvloop
import yaml

from devicemanager.detection import DetectionOptions
from devicemanager.injection.entrance import Drivers
from devicemanager.injection.host import Host
from devicemanager.injection.recorded_host import host_drivers
from devicemanager.injection.site import Site
from devicemanager.partitions.mig import nvidia_driver, thead_driver
from devicemanager.preflight.commands import HostCommands
from devicemanager.preflight.report import TABLE_HEADER, Report, table_rows
from devicemanager.preflight.run import Means, only_one, run_preflight
from devicemanager.preflight.run import PreflightOptions as Preflight
from devicemanager.serve import open_detector
from gpustack_operator.config import (
    DetectorOptions,
    InjectionOptions,
    LogOptions,
    ManufacturerOptions,
    OutputOptions,
    PreflightOptions,
)
from gpustack_operator.processes import environment_of, start_logging
from gpustack_operator.tables import table
from kube.clock import SystemClock
from nodefeature.environment import is_group_id_with_memory


def run(
    manufacturers: ManufacturerOptions,
    detector: DetectorOptions,
    injection: InjectionOptions,
    preflight: PreflightOptions,
    output: OutputOptions,
    logs: LogOptions,
    *,
    environ: Mapping[str, str],
) -> int:
    """Print the report; 0 when every check passed, 1 when one did not."""
    start_logging(logs)
    registry = environment_of(environ)
    root = Path(preflight.host_root)
    with_memory = is_group_id_with_memory(environ)
    options = Preflight(
        detection=DetectionOptions(
            manufacturers=manufacturers.manufacturer, registry=registry, id_with_memory=with_memory
        ),
        node_name=detector.node_name,
        dry_run=preflight.dry_run or bool(detector.recorded),
        image=preflight.probe_image,
        runtime=preflight.runtime,
        is_recorded=bool(detector.recorded),
    )
    means = Means(
        Site(library_root=injection.library_root, registry=registry, containerd=injection.containerd_config_dir),
        Host(root),
        Drivers() if detector.recorded else host_drivers(),
        HostCommands(root),
        {} if detector.recorded else {"nvidia": nvidia_driver(), "thead": thead_driver()},
    )

    async def check() -> Report:
        async with open_detector(
            SystemClock(), registry, recorded=detector.recorded, no_pci_check=detector.no_pci_check, root=root
        ) as opened:
            return await run_preflight(opened, options, means)

    with only_one(root, dry_run=options.dry_run):
        report = uvloop.run(check())
    print(rendered(report, output.output), end="")
    return report.exit_code


def rendered(report: Report, output: str) -> str:
    """Return the report as text."""
    if output == "json":
        return json.dumps(report.body(), indent=2) + "\n"
    if output == "yaml":
        return yaml.safe_dump(report.body(), sort_keys=False, allow_unicode=True)
    failed = sum(not check.passed for check in report.checks)
    lines = [table(TABLE_HEADER, table_rows(report.checks))]
    lines += ["", "to be run by hand:", *(f"  {step}" for step in report.emitted)] if report.emitted else []
    verdict = f"{failed} of {len(report.checks)} checks did not pass" if failed else "all checks passed"
    return "\n".join([*lines, "", verdict]) + "\n"
