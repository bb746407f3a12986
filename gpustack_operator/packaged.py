"""Data files of the package, read when a process needs them.

For: `commands/`. Out: decoded content. Promises: a broken file is an error that names every mistake in it.
"""

from __future__ import annotations

from importlib.resources import files

from nodefeature.presets import Presets, load_presets


def unit_resource_presets() -> Presets:
    """Return CPU and memory per card by product (spec 01 §11)."""
    return load_presets((files("nodefeature") / "presets.yaml").read_text(encoding="utf-8"))
