"""`gpustack-operator demo`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

import uvloop

from gpustack_operator.config import DemoOptions
from kube.errors import OperatorError


def run(options: DemoOptions, *, environ: Mapping[str, str]) -> int:
    """Run the demo."""
    if find_spec("hack") is None:
        raise OperatorError("the demo runs from a checkout of the project: its stand-ins are not part of the package")
    # Imported here: it needs the stand-ins' fleet loader, which an installed package lacks.
    from gpustack_operator.demo.run import demo

    return uvloop.run(demo(options, environ))
