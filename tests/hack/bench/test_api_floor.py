"""What the floor of `bench-api` leaves when it does not come to stand."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hack.bench import api_floor
from hack.bench.api_floor import Floor
from hack.controlplane.errors import RequestError
from nodefeature.kinds import API_SERVICE, SERVICE, Kind


class Admin:
    """A server that takes objects and never says that one is available."""

    def __init__(self, *, refusing: bool) -> None:
        self.refusing = refusing
        self.deleted: list[Kind] = []

    def apply(self, manifest: dict[str, Any]) -> None:
        if self.refusing:
            raise RequestError("apply refused", code=500)

    def get(self, kind: Kind, name: str) -> dict[str, Any]:
        return {"status": {}}

    def delete(self, kind: Kind, name: str, namespace: str = "") -> None:
        self.deleted.append(kind)
        if self.refusing:
            raise RequestError("delete refused", code=500)


@pytest.mark.parametrize("refusing", [False, True], ids=["never available", "the server refuses all"])
def test_a_floor_that_does_not_stand_leaves_nothing(
    refusing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = tmp_path / "relay"
    relay.write_text("#!/bin/sh\nexec sleep 60\n")
    relay.chmod(0o755)
    admin = Admin(refusing=refusing)
    control_plane: Any = SimpleNamespace(
        admin=admin, kubeconfig=tmp_path / "config", tools=SimpleNamespace(binary=lambda _: relay)
    )
    begun: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def noted(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        begun.append(popen(*args, **kwargs))
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    monkeypatch.setattr(api_floor, "_WITHIN_S", 0.2)
    with pytest.raises((RuntimeError, RequestError)):
        Floor(control_plane, tmp_path, namespace="bench")
    try:
        assert [one.returncode for one in begun] == [-9], "the relay goes on"
        assert refusing or admin.deleted == [API_SERVICE, SERVICE]
    finally:
        for one in begun:
            if one.poll() is None:
                os.kill(one.pid, 9)
                one.wait()
