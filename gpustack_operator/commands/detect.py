"""`gpustack-operator device-manager detect`: a pure read, for people and support cases."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import uvloop

from devicemanager.detection import Detection, DetectionOptions
from devicemanager.serve import detect_once, groups_as_yaml, open_detector
from gpustack_operator.config import DetectorOptions, LogOptions, ManufacturerOptions
from gpustack_operator.processes import environment_of, start_logging
from kube.clock import SystemClock
from nodefeature.environment import is_group_id_with_memory


def run(
    manufacturers: ManufacturerOptions, detector: DetectorOptions, logs: LogOptions, *, environ: Mapping[str, str]
) -> None:
    """Print the groups; what could not be measured, what is odd, and that nothing is there, go to standard error."""
    start_logging(logs)
    registry = environment_of(environ)
    options = DetectionOptions(
        manufacturers=manufacturers.manufacturer, registry=registry, id_with_memory=is_group_id_with_memory(environ)
    )

    async def once() -> Detection:
        async with open_detector(
            SystemClock(), registry, recorded=detector.recorded, no_pci_check=detector.no_pci_check
        ) as opened:
            return await detect_once(opened, options)

    detection = uvloop.run(once())
    for finding in detection.all_findings():
        print(finding, file=sys.stderr)
    if not detection.all_groups():
        looked = ", ".join(manufacturers.manufacturer)
        print(
            f"no accelerators found; looked for {looked}. Where some should be, `device-manager preflight` says what "
            "is missing",
            file=sys.stderr,
        )
    print(groups_as_yaml(detection), end="")
