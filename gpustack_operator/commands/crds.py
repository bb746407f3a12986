"""`gpustack-operator crds`."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from api.crds import crd_manifests


def run(*, environ: Mapping[str, str]) -> None:
    """Print the CustomResourceDefinitions."""
    print(yaml.safe_dump_all(crd_manifests(), sort_keys=False), end="")
