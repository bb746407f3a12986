"""`gpustack-operator demo`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import uvloop

from gpustack_operator.config import DemoOptions
from kube.errors import OperatorError

CHECKOUT = Path(__file__).resolve().parents[2]


def run(options: DemoOptions, *, environ: Mapping[str, str]) -> int:
    """Run the demo."""
    if not (CHECKOUT / "hack" / "demo-fleet.yaml").is_file():
        raise OperatorError("the demo runs from a checkout of the project: its stand-ins are not part of the package")
    # An editable install knows the packages of the product alone.
    if str(CHECKOUT) not in sys.path:
        sys.path.append(str(CHECKOUT))
    # Imported here: it needs the stand-ins' fleet loader, which an installed package lacks.
    from gpustack_operator.demo.run import demo

    try:
        return uvloop.run(demo(options, environ))
    except PermissionError as refused:
        raise OperatorError(f"{refused.filename}: {refused.strerror}; choose another DEMO_STATE_DIR") from refused
    except FileNotFoundError as missing:
        raise OperatorError(f"{missing.filename}: {missing.strerror}; choose another DEMO_STATE_DIR") from missing
