"""The engines as Go tool dependencies: what is built, under which key it is cached.

For: `build`, and every start, which asks for a binary or a manifest by name.
In: `tools/<tool>/go.mod` with its `tool` directives and `go.sum`. Out: `<cache>/<tool>-<version>-<key>/{bin,share}`.
Promises: the key covers go.mod, go.sum, sources of our own and the build's flags, so a changed version is never served
from an old folder; a folder is put in place in one step, so a broken build leaves nothing behind; without Go a built
cache still serves.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hack.controlplane.errors import BuildError, ControlPlaneError, MissingError
from hack.controlplane.go import default_cache, find_go, go_environment, run_go

MODULES = Path(__file__).parent / "tools"
DEFAULT_CACHE = default_cache(os.environ)
_KUBERNETES_VERSION = "k8s.io/component-base/version"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One Go module of `tools/`: the packages to build and the files of its source that a start needs."""

    name: str
    module: str
    """The Go module whose version names the cache folder."""
    binaries: Mapping[str, str]
    """Binary name -> Go package."""
    shared: tuple[str, ...] = ()
    """Files and folders of the module's source, copied to `share/` under the same path."""
    version_variables: Callable[[str], Mapping[str, str]] = field(default=lambda _version: {})
    """Go variables set by the linker, from the module's version."""

    @property
    def folder(self) -> Path:
        """Return the folder of this tool's go.mod."""
        return MODULES / self.name

    @property
    def version(self) -> str:
        """Return the version that go.mod requires, such as `v1.36.3`."""
        text = (self.folder / "go.mod").read_text()
        found = re.search(rf"^\s*(?:require )?{re.escape(self.module)} (v\S+)", text, re.MULTILINE)
        if found is None:
            raise BuildError(f"{self.folder / 'go.mod'}: requires no {self.module}; add it with `go get -tool`")
        return found.group(1)

    def cached(self, cache: Path) -> Path:
        """Return the folder this tool has, or will have, in `cache`."""
        recipe = [(self.folder / file).read_bytes() for file in ("go.mod", "go.sum")]
        recipe += [file.read_bytes() for file in sorted(self.folder.rglob("*.go"))]
        recipe += [repr((sorted(self.binaries.items()), self.shared, self._flags())).encode()]
        return cache / f"{self.name}-{self.version}-{hashlib.sha256(b'|'.join(recipe)).hexdigest()[:12]}"

    def _targets(self, folder: Path) -> list[str]:
        """Return where to and what to build: all binaries at once, so that one is compiled while another is linked."""
        if len(self.binaries) == 1:  # it may be named otherwise than its package
            ((name, package),) = self.binaries.items()
            return [str(folder / name), package]
        return [f"{folder}/", *self.binaries.values()]

    def _flags(self) -> list[str]:
        variables = self.version_variables(self.version)
        settings = " ".join(f"-X {name}={value}" for name, value in sorted(variables.items()))
        return ["-trimpath", "-ldflags", f"-s -w {settings}".rstrip()]


def _kubernetes_variables(version: str) -> Mapping[str, str]:
    major, minor, _ = version.removeprefix("v").split(".", 2)
    return {
        f"{_KUBERNETES_VERSION}.gitVersion": version,
        f"{_KUBERNETES_VERSION}.gitMajor": major,
        f"{_KUBERNETES_VERSION}.gitMinor": minor,
        f"{_KUBERNETES_VERSION}.gitTreeState": "clean",
    }


ETCD = Tool(name="etcd", module="go.etcd.io/etcd/server/v3", binaries={"etcd": "go.etcd.io/etcd/server/v3"})
KUBERNETES = Tool(
    name="kubernetes",
    module="k8s.io/kubernetes",
    binaries={
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    },
    version_variables=_kubernetes_variables,
)
KUEUE = Tool(
    name="kueue",
    module="sigs.k8s.io/kueue",
    binaries={"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
    shared=("charts/kueue",),
    version_variables=lambda version: {"sigs.k8s.io/kueue/pkg/version.GitVersion": version},
)
NFD = Tool(
    name="nfd",
    module="sigs.k8s.io/node-feature-discovery",
    binaries={"nfd-master": "sigs.k8s.io/node-feature-discovery/cmd/nfd-master"},
    shared=("deployment/base/nfd-crds/nfd-api-crds.yaml", "deployment/base/rbac"),
    version_variables=lambda version: {"sigs.k8s.io/node-feature-discovery/pkg/version.version": version},
)
KWOK = Tool(
    name="kwok",
    module="sigs.k8s.io/kwok",
    binaries={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
    shared=("kustomize/stage",),
)
HELM = Tool(name="helm", module="helm.sh/helm/v3", binaries={"helm": "helm.sh/helm/v3/cmd/helm"})

CLIENTS = Tool(
    name="clients",
    module="k8s.io/client-go",
    binaries={name: f"gpustack.ai/controlplane/clients/{name}" for name in ("informer", "load", "relay", "service")},
)
"""Programs of our own that tests and benches run beside a control plane; a control plane starts without them."""

ENGINES = (ETCD, KUBERNETES, KUEUE, NFD, KWOK, HELM)
TOOLS = (*ENGINES, CLIENTS)


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Read side of a cache: paths of binaries and manifests."""

    cache: Path = DEFAULT_CACHE

    def missing(self, tools: Sequence[Tool] | None = None) -> list[Tool]:
        """Return the tools, of these or of all, whose present version is not in the cache."""
        return [tool for tool in (TOOLS if tools is None else tools) if not tool.cached(self.cache).is_dir()]

    def require(self, tools: Sequence[Tool] = ENGINES) -> None:
        """Raise MissingError unless these tools are in the cache."""
        if absent := self.missing(tools):
            names = ", ".join(f"{tool.name} {tool.version}" for tool in absent)
            raise MissingError(f"{self.cache}: not built: {names}; run `python -m hack.controlplane build` (needs Go)")

    def binary(self, name: str) -> Path:
        """Return the path of a binary such as `kube-apiserver`."""
        for tool in TOOLS:
            if name in tool.binaries:
                return tool.cached(self.cache) / "bin" / name
        raise KeyError(name)

    def shared(self, tool: Tool, path: str) -> Path:
        """Return the path of a manifest that came with a tool's source."""
        return tool.cached(self.cache) / "share" / path


def build(cache: Path, *, say: Callable[[str], None], jobs: int = 0, environment: Mapping[str, str]) -> None:
    """Build what the cache lacks; `jobs` 0 leaves the parallelism to Go. Raises MissingError without Go."""
    cache = cache.absolute()  # Go is run elsewhere
    absent = Toolbox(cache).missing()
    if not absent:
        say(f"all {len(TOOLS)} tools are in {cache}")
        return
    go = find_go(environment)
    _open_cache(cache)
    env = go_environment(go, environment, spare=cache / ".go")
    for tool in absent:
        began = time.monotonic()
        say(f"building {tool.name} {tool.version}: {', '.join(tool.binaries)}")
        _build_tool(tool, go=go, cache=cache, jobs=jobs, env=env, say=say)
        say(f"built {tool.name} in {time.monotonic() - began:.0f} s")


def _open_cache(cache: Path) -> None:
    """Make the cache folder, and say before minutes of building when nothing can be put there."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryDirectory(dir=cache, prefix=".probe-").cleanup()
    except OSError as error:
        raise ControlPlaneError(
            f"{cache}: cannot hold built tools: {error.strerror}; name another folder with --cache-dir "
            "or CONTROLPLANE_CACHE_DIR"
        ) from error


def _build_tool(
    tool: Tool, *, go: str, cache: Path, jobs: int, env: Mapping[str, str], say: Callable[[str], None]
) -> None:
    target = tool.cached(cache)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{tool.name}-") as scratch:
        work = Path(scratch) / "made"
        (work / "bin").mkdir(parents=True)
        parallel = [f"-p={jobs}"] if jobs else []
        command = [go, "build", *parallel, "-buildvcs=false", *tool._flags(), "-o", *tool._targets(work / "bin")]
        try:
            run_go(command, cwd=tool.folder, env=env)
        except BuildError as error:  # hundreds of modules are fetched: what was compiled is kept, a second try is cheap
            say(f"{tool.name}: {error}\nonce more")
            run_go(command, cwd=tool.folder, env=env)
        if tool.shared:
            listed = run_go([go, "list", "-m", "-json", tool.module], cwd=tool.folder, env=env)
            _copy_shared(tool, source=Path(json.loads(listed)["Dir"]), target=work / "share")
        try:
            work.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another build was faster; its folder has the same content
                raise


def _copy_shared(tool: Tool, *, source: Path, target: Path) -> None:
    for path in tool.shared:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        if (source / path).is_dir():
            shutil.copytree(source / path, target / path, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source / path, target / path)
    for folder in [target, *(entry for entry in target.rglob("*") if entry.is_dir())]:
        os.chmod(folder, 0o755)  # the module cache is read-only; a cache folder must be removable
