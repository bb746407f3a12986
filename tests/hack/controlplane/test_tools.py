"""Tests of the tools' versions, cache keys and the build's refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.controlplane.errors import BuildError, MissingError
from hack.controlplane.tools import KUBERNETES, TOOLS, Tool, Toolbox, build

GO_MOD = """module example/x

go 1.26.0

replace (
\texample.org/engine => example.org/engine v9.9.9
)

tool example.org/engine/cmd/engine

require (
\texample.org/engine/api v0.1.0 // indirect
\texample.org/engine v1.2.3 // indirect
)
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    folder = tmp_path / "tools" / "engine"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text(GO_MOD)
    (folder / "go.sum").write_text("example.org/engine v1.2.3 h1:x\n")
    (folder / "main.go").write_text("package main\n")
    monkeypatch.setattr("hack.controlplane.tools.MODULES", tmp_path / "tools")
    return Tool(name="engine", module="example.org/engine", binaries={"engine": "example.org/engine/cmd/engine"})


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_is_pinned_by_a_module_with_sums(tool: Tool) -> None:
    text = (tool.folder / "go.mod").read_text()
    own = text.partition("\nmodule ")[2].partition("\n")[0] + "/"
    assert tool.version.startswith("v")
    assert all(package in text or package.startswith(own) for package in tool.binaries.values())
    assert f"{tool.module} {tool.version} h1:" in (tool.folder / "go.sum").read_text()
    packages = [package.rpartition("/")[2] for package in tool.binaries.values()]
    assert len(packages) == 1 or packages == list(tool.binaries), "built together, binaries are named by their packages"


def test_kubernetes_reports_the_version_of_its_module() -> None:
    variables = KUBERNETES.version_variables("v1.36.3")
    assert variables["k8s.io/component-base/version.gitVersion"] == "v1.36.3"
    assert variables["k8s.io/component-base/version.gitMinor"] == "36"


def test_version_is_the_one_required_not_a_replacement_or_a_longer_path(engine: Tool) -> None:
    assert engine.version == "v1.2.3"


def test_a_module_that_requires_nothing_is_refused(engine: Tool) -> None:
    (engine.folder / "go.mod").write_text("module example/x\n")
    with pytest.raises(BuildError, match=r"requires no example\.org/engine"):
        _ = engine.version


@pytest.mark.parametrize("file", ["go.mod", "go.sum", "main.go"])
def test_a_changed_module_is_cached_elsewhere(engine: Tool, tmp_path: Path, file: str) -> None:
    before = engine.cached(tmp_path)
    path = engine.folder / file
    path.write_text(path.read_text() + "// changed\n")
    assert engine.cached(tmp_path) != before
    assert engine.cached(tmp_path).name.startswith("engine-v1.2.3-")


def test_require_names_what_is_not_built_and_what_to_run(tmp_path: Path) -> None:
    for tool in TOOLS[1:]:
        tool.cached(tmp_path).mkdir()
    with pytest.raises(MissingError) as caught:
        Toolbox(tmp_path).require()
    assert f"not built: etcd {TOOLS[0].version}; run `python -m hack.controlplane build`" in str(caught.value)


def test_without_go_one_line_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"^Go is missing: install Go .*$"):
        build(tmp_path / "cache", say=lambda _line: None, environment={"PATH": str(tmp_path)})


def fake_go(folder: Path, version: str) -> Path:
    """Put a `go` into a folder of its own that knows its version and compiles nothing."""
    go = folder / "bin" / "go"
    go.parent.mkdir()
    answer = f'[ "$1 $2" = "env GOVERSION" ] && {{ echo "{version}"; exit 0; }}'
    go.write_text(f"#!/bin/sh\n{answer}\necho 'main.go:1: no such thing' >&2\nexit 1\n")
    go.chmod(0o755)
    return go


@pytest.mark.parametrize("version", ["go1.19.8", "go1.25.9", "", "devel"])
def test_an_old_go_is_named_in_one_line(tmp_path: Path, version: str) -> None:
    path = f"{fake_go(tmp_path, version).parent}:/usr/bin:/bin"
    with pytest.raises(MissingError, match=r"^/.*/go: .* is too old: install Go 1\.26 or newer .*$"):
        build(tmp_path / "cache", say=lambda _line: None, environment={"PATH": path})


def test_a_full_cache_needs_no_go(tmp_path: Path) -> None:
    for tool in TOOLS:
        tool.cached(tmp_path).mkdir()
    said: list[str] = []
    build(tmp_path, say=said.append, environment={"PATH": ""})
    assert said == [f"all {len(TOOLS)} tools are in {tmp_path}"]


def test_a_failed_build_shows_the_compiler_and_leaves_nothing(
    engine: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hack.controlplane.tools.TOOLS", (engine,))
    go = fake_go(tmp_path, "go1.26.6")
    with pytest.raises(BuildError, match=r"ended with 1:\nmain\.go:1: no such thing"):
        build(tmp_path / "cache", say=lambda _line: None, environment={"PATH": f"{go.parent}:/usr/bin:/bin"})
    assert list((tmp_path / "cache").iterdir()) == []


def patient_go(folder: Path, fails: int) -> Path:
    """Put a `go` into a folder that cannot fetch a module so many times, then builds, and tells what it was given."""
    go = folder / "bin" / "go"
    go.parent.mkdir()
    go.write_text(f"""#!/bin/sh
[ "$1 $2" = "env GOVERSION" ] && {{ echo go1.26.6; exit 0; }}
[ "$1" = env ] && {{ echo {folder}; exit 0; }}
echo once >> {folder}/calls
[ "$(wc -l < {folder}/calls)" -le {fails} ] && {{ echo 'example.org/engine: 502 Bad Gateway' >&2; exit 1; }}
while [ "$1" != -o ]; do shift; done
echo "$GOFLAGS,$GOOS,$CGO_ENABLED,$GOPROXY" > "$2"
""")
    go.chmod(0o755)
    return go


@pytest.mark.parametrize("fails", [0, 1])
def test_a_module_that_could_not_be_fetched_is_asked_for_once_more(
    engine: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    monkeypatch.setattr("hack.controlplane.tools.TOOLS", (engine,))
    path = f"{patient_go(tmp_path, fails).parent}:/usr/bin:/bin"
    given = {"PATH": path, "GOFLAGS": "-mod=vendor", "GOOS": "plan9", "GOPROXY": "https://proxy.example"}
    said: list[str] = []
    monkeypatch.chdir(tmp_path)
    build(Path("cache"), say=said.append, environment=given)
    assert sum("502 Bad Gateway\nonce more" in line for line in said) == fails
    built = engine.cached(tmp_path / "cache") / "bin" / "engine"
    assert built.read_text() == "-mod=readonly,,0,https://proxy.example\n"
