"""The nine manufacturers' rules, by name."""

from __future__ import annotations

from devicemanager.manufacturers import amd, ascend, cambricon, hygon, iluvatar, metax, mthreads, nvidia, thead
from devicemanager.manufacturers.rules import Rules

RULES: dict[str, Rules] = {
    module.RULES.manufacturer: module.RULES
    for module in (amd, ascend, cambricon, hygon, iluvatar, metax, mthreads, nvidia, thead)
}

MANUFACTURERS: tuple[str, ...] = tuple(sorted(RULES))
