"""Text in and out of a Secret's `data`.

For: kinds that are kept in Secrets. In/Out: text. Promises: what is no base64 of UTF-8 text reads as nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from nodefeature.fields import as_str, at


def encoded(text: str) -> str:
    """Return text as a value of `data`."""
    return base64.b64encode(text.encode()).decode()


def decoded(secret: Mapping[str, Any], key: str) -> str:
    """Return the text of one key of a Secret."""
    try:
        return base64.b64decode(as_str(at(secret, "data", key)), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
