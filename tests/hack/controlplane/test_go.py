"""Tests of where built tools are kept and with which variables Go builds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.controlplane.errors import MissingError
from hack.controlplane.go import can_hold, default_cache, find_go, go_environment

OURS = Path("gpustack-operator", "controlplane")


def nobody() -> Path:
    raise RuntimeError("Could not determine home directory.")


def blocked(folder: Path) -> Path:
    """Return a path below a file: nobody can make a folder there, not even root."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "file").touch()
    return folder / "file" / "below"


def test_one_cache_serves_every_clone(tmp_path: Path) -> None:
    assert default_cache({}, home=lambda: tmp_path) == tmp_path / ".cache" / OURS
    assert default_cache({"XDG_CACHE_HOME": str(tmp_path / "xdg")}, home=nobody) == tmp_path / "xdg" / OURS


def test_a_named_cache_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_cache({"CONTROLPLANE_CACHE_DIR": "named"}, home=nobody) == tmp_path / "named"


def test_without_a_home_to_write_to_the_checkout_serves(tmp_path: Path) -> None:
    assert default_cache({}, home=nobody, checkout=tmp_path) == tmp_path / ".state" / "tools"
    home = blocked(tmp_path)
    assert default_cache({}, home=lambda: home, checkout=tmp_path) == tmp_path / ".state" / "tools"


def test_a_folder_can_be_made_where_its_nearest_parent_is_one(tmp_path: Path) -> None:
    assert can_hold(tmp_path / "a" / "b")
    assert not can_hold(blocked(tmp_path))


def go_that_says(folder: Path, **settings: str) -> Path:
    go = folder / "bin" / "go"
    go.parent.mkdir(parents=True)
    answers = "\n".join(f'[ "$2" = {key} ] && echo "{value}"' for key, value in settings.items())
    go.write_text(f"#!/bin/sh\n{answers}\nexit 0\n")
    go.chmod(0o755)
    return go


@pytest.mark.parametrize("version", ["go1.26.0", "go1.26.8 X:nodwarf5", "go1.27-custom", "go1.30.1", "go2.0"])
def test_a_go_that_is_new_enough(tmp_path: Path, version: str) -> None:
    go = go_that_says(tmp_path, GOVERSION=version)
    assert find_go({"PATH": str(go.parent)}) == str(go)


@pytest.mark.parametrize(
    "version", ["go1.3.3", "go1.25.9", "go1.26rc1", "go1.26beta2", "devel go1.27-abcdef Mon Nov 30", ""]
)
def test_a_go_that_is_not(tmp_path: Path, version: str) -> None:
    go = go_that_says(tmp_path, GOVERSION=version)
    with pytest.raises(MissingError, match="is too old: install Go"):
        find_go({"PATH": str(go.parent)})


def test_gos_own_caches_are_kept_where_they_are(tmp_path: Path) -> None:
    go = go_that_says(tmp_path, GOCACHE=str(tmp_path / "build"), GOMODCACHE=str(tmp_path / "mod"))
    env = go_environment(str(go), {"GOFLAGS": "-mod=vendor", "GOROOT": "/old", "GOPROXY": "direct"}, spare=tmp_path)
    assert env == {
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOFLAGS": "-mod=readonly",
        "GOPROXY": "direct",
        "GOWORK": "off",
    }


def test_without_a_home_go_gets_folders_of_its_own(tmp_path: Path) -> None:
    go = go_that_says(tmp_path, GOCACHE="off", GOMODCACHE=str(blocked(tmp_path)))
    env = go_environment(str(go), {}, spare=tmp_path / ".go")
    assert (env["GOCACHE"], env["GOMODCACHE"]) == (str(tmp_path / ".go/gocache"), str(tmp_path / ".go/gomodcache"))
    assert "-modcacherw" in env["GOFLAGS"]
