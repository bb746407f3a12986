"""`gpustack-operator rbac`."""

from __future__ import annotations

from collections.abc import Mapping

from gpustack_operator.config import RbacOptions
from gpustack_operator.rbac import as_yaml, manifests, processes


def run(options: RbacOptions, *, environ: Mapping[str, str]) -> None:
    """Print the objects of the chosen processes."""
    for process in processes(options.namespace):
        if process.name in options.process:
            print(as_yaml(manifests(process, options.namespace)), end="")
