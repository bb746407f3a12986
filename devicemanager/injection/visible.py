"""Which of NVIDIA's channels this node uses: reads specifications once, and the engine's configuration once.

In: a strategy, the host. Out: plans. Promises: specifications are read at most once a process (spec 06 §9).
"""

from __future__ import annotations

import os
from fnmatch import fnmatch

from devicemanager.injection import nvidia
from devicemanager.injection.cdi import SPEC_FOLDERS, CdiNames, Channel, choose_channel, read_names
from devicemanager.injection.engine import Engine, imports_of, read_engine
from devicemanager.injection.host import Host, HostFault
from devicemanager.injection.request import Plan, Request
from devicemanager.injection.site import Site

_SUFFIXES = (".json", ".yaml")


class Visibility:
    """Plans NVIDIA's containers."""

    def __init__(self, site: Site, host: Host) -> None:
        self._site = site
        self._host = host
        known = site.registry.get("nvidia")
        self._strategy = known.injection_strategy if known else "envvar"
        self._kind = known.base if known else ""
        self._names: CdiNames | None = None
        self._engine: Engine | None = None

    def plan(self, request: Request) -> Plan:
        """Return what a container gets."""
        return nvidia.plan(request, self._site, self._channel(request))

    def _channel(self, request: Request) -> Channel:
        if self._strategy == "envvar":
            return Channel()
        if self._names is None:
            self._names = read_names(self._specifications())
        if self._engine is None:
            self._engine = read_engine(self._engine_texts())
        return choose_channel(self._strategy, request, kind=self._kind, names=self._names, engine=self._engine)

    def _specifications(self) -> dict[str, str | None]:
        files: dict[str, str | None] = {}
        for folder in SPEC_FOLDERS:
            try:
                names = self._host.names(folder)
            except HostFault:
                files[folder] = None
                continue
            paths = [f"{folder}/{name}" for name in names if name.endswith(_SUFFIXES)]
            files.update((path, self._host.read_or_none(path)) for path in paths)
        return files

    def _engine_texts(self) -> list[str | None]:
        main = f"{self._site.containerd}/config.toml"
        if not self._host.exists(main):
            return []
        texts = [self._host.read_or_none(main)]
        for pattern in imports_of(texts[0]):
            folder, name = os.path.split(pattern if pattern.startswith("/") else f"{self._site.containerd}/{pattern}")
            try:
                names = self._host.names(folder)
            except HostFault:
                texts.append(None)
                continue
            texts += [self._host.read_or_none(f"{folder}/{found}") for found in names if fnmatch(found, name)]
        return texts
