"""What containerd's configuration says about device injection (spec 06 §9).

In: the texts of config.toml and of the files it imports. Out: frozen facts.
Promises: an absent or unreadable configuration is a fault, never a guess. CRI-O cannot be seen this way.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodefeature.fields import as_bool, as_int, as_map, as_str, at

_PLUGINS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
_VENDOR_WORDS = ("nvidia",)
# From this configuration version on, containerd resolves CDI without being told.
_ALWAYS_CDI = 3


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine; `fault` says why it could not be judged."""

    resolves_cdi: bool = False
    default_handler: str = ""
    vendor_default: bool = False
    fault: str = ""


def read_engine(texts: Sequence[str | None]) -> Engine:
    """Return what the configuration, then its imports in order, say together."""
    merged: dict[str, Any] = {}
    if not texts:
        return Engine(fault="there is none")
    for text in texts:
        if text is None:
            return Engine(fault="a file of it cannot be read")
        try:
            _merge(merged, tomllib.loads(text))
        except (tomllib.TOMLDecodeError, RecursionError):
            return Engine(fault="a file of it is no TOML")
    return _judge(merged)


def imports_of(text: str | None) -> tuple[str, ...]:
    """Return the patterns a configuration imports."""
    try:
        raw = tomllib.loads(text or "").get("imports", [])
    except (tomllib.TOMLDecodeError, RecursionError):
        return ()
    return tuple(item for item in raw if isinstance(item, str)) if isinstance(raw, list) else ()


def _judge(config: Mapping[str, Any]) -> Engine:
    version = as_int(config.get("version"))
    plugins = as_map(config.get("plugins"))
    plugin = next((as_map(plugins[name]) for name in _PLUGINS if name in plugins), {})
    containerd = as_map(plugin.get("containerd"))
    handler = as_str(containerd.get("default_runtime_name"))
    binary = as_str(at(containerd, "runtimes", handler, "options", "BinaryName"))
    return Engine(
        resolves_cdi=version >= _ALWAYS_CDI or as_bool(plugin.get("enable_cdi")),
        default_handler=handler or "runc",
        vendor_default=any(word in text.lower() for word in _VENDOR_WORDS for text in (handler, binary)),
    )


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
