"""The small JSON files that say what a container owns in a driver.

For: MetaX and Cambricon slices, hardware partitions. In/Out: JSON text and fields.
Promises: a field of the wrong type makes the whole file malformed; nothing is guessed from half a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from devicemanager.injection.request import InjectionRefused


class MarkerMalformed(InjectionRefused):
    """A marker that does not hold what it must."""


def fields_of(text: str, where: str, *, texts: tuple[str, ...], numbers: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the marker's fields; `texts` must not be empty, `numbers` must be integers."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MarkerMalformed(f"{where}: no JSON; delete the file once its Pod is gone") from error
    if not isinstance(raw, dict):
        raise MarkerMalformed(f"{where}: an object is expected")
    for name in texts:
        if not isinstance(raw.get(name), str) or not raw[name]:
            raise MarkerMalformed(f"{where}: {name}: {raw.get(name)!r} must be text")
    for name in numbers:
        if not isinstance(raw.get(name), int) or isinstance(raw[name], bool):
            raise MarkerMalformed(f"{where}: {name}: {raw.get(name)!r} must be an integer")
    return raw


def marker_text(fields: Mapping[str, Any]) -> str:
    """Return a marker's text, fields in the given order."""
    return json.dumps(dict(fields), separators=(",", ":"))
