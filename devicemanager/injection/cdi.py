"""CDI: what the node's specifications name, and which channel makes NVIDIA's cards visible (spec 06 §9).

For: `nvidia`, through `injectors`.
In: the files under /etc/cdi and /var/run/cdi, the container engine's configuration, a strategy. Out: a channel.
Promises: specifications are read, never written; exactly one channel is chosen; `auto` goes to annotations only when
everything it needs was seen, and says why it did not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from devicemanager.injection.engine import Engine
from devicemanager.injection.request import InjectionRefused, Request
from devicemanager.injection.site import granted, who
from nodefeature.resource_names import Family

if TYPE_CHECKING:
    from devicemanager.injection.cdi_spec import CdiSpec

SPEC_FOLDERS = ("/etc/cdi", "/var/run/cdi")


@dataclass(frozen=True, slots=True)
class CdiNames:
    """The devices that the node's specifications name, by kind; and the files that could not be read."""

    by_kind: Mapping[str, frozenset[str]]
    unreadable: tuple[str, ...] = ()

    def missing(self, kind: str, names: Iterable[str]) -> list[str]:
        """Return the names that no specification of a kind has."""
        known = self.by_kind.get(kind, frozenset())
        return [name for name in names if name not in known]


@dataclass(frozen=True, slots=True)
class Channel:
    """How cards become visible: by an annotation, or, without one, by the manufacturer's variable."""

    annotation: tuple[str, str] | None = None
    notes: tuple[str, ...] = ()


ENVVAR = Channel()


def read_names(files: Mapping[str, str | None]) -> CdiNames:
    """Return what specification files name; a text of None stands for a file that could not be read."""
    by_kind: dict[str, set[str]] = {}
    unreadable = []
    for path, text in sorted(files.items()):
        spec = _parse(text)
        if spec is None:
            unreadable.append(path)
        else:
            by_kind.setdefault(spec.kind, set()).update(device.name for device in spec.devices)
    return CdiNames({kind: frozenset(names) for kind, names in by_kind.items()}, tuple(unreadable))


def choose_channel(strategy: str, request: Request, *, kind: str, names: CdiNames, engine: Engine) -> Channel:
    """Return the channel for a request."""
    if strategy == "envvar" or request.claim.family is Family.PARTITIONED or request.claim.partitioned_owner:
        return ENVVAR
    wanted = [card.id for card in granted(request)]
    value = ",".join(f"{kind}={name}" for name in wanted)
    annotation = (f"cdi.k8s.io/gpustack-{request.manufacturer}", value)
    missing = names.missing(kind, wanted)
    if strategy == "auto":
        reason = _not_by_annotation(request, engine, missing)
        note = f"cards by variable: {reason}" if reason else "cards by CDI annotation"
        return Channel(notes=(note,)) if reason else Channel(annotation, (note,))
    if not missing:
        return Channel(annotation)
    if names.by_kind and not names.unreadable:
        raise InjectionRefused(
            f"{who(request.claim)}: no CDI specification in {', '.join(SPEC_FOLDERS)} names "
            f"{', '.join(f'{kind}={name}' for name in missing)}; generate it anew"
        )
    why = f"unreadable: {', '.join(names.unreadable)}" if names.unreadable else "none names a device"
    return Channel(annotation, (f"CDI names not checked ({why})",))


def _not_by_annotation(request: Request, engine: Engine, missing: list[str]) -> str:
    if request.claim.runtime_class:
        return f"the Pod names the RuntimeClass {request.claim.runtime_class}"
    if engine.fault:
        return f"the container engine's configuration is unreadable: {engine.fault}"
    if engine.vendor_default:
        return f"the container engine's default handler is {engine.default_handler}"
    if not engine.resolves_cdi:
        return "the container engine does not resolve CDI"
    if missing:
        return f"no CDI specification names {', '.join(missing)}"
    return ""


def _parse(text: str | None) -> CdiSpec | None:
    if text is None:
        return None
    # Imported here: few nodes read specifications, and the checker would cost every agent 8 MiB.
    from pydantic import ValidationError

    from devicemanager.injection.cdi_spec import CdiSpec

    try:
        return CdiSpec.model_validate(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))  # noqa: S506 - both loaders are the safe ones
    except (yaml.YAMLError, ValidationError, RecursionError):
        return None
