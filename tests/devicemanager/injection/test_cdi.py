"""CDI: which channel shows NVIDIA's cards (spec 06 §9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from devicemanager.injection.cdi import ENVVAR, CdiNames, Channel, choose_channel, read_names
from devicemanager.injection.engine import Engine, imports_of, read_engine
from devicemanager.injection.request import ContainerClaim, InjectionRefused
from devicemanager.injection.site import Site
from devicemanager.injection.visible import Visibility
from nodefeature.manufacturers import build_manufacturers
from nodefeature.resource_names import Family
from tests.builders.injection import TreeHost, ask, card, claim, put

KIND = "nvidia.com/gpu"
ANNOTATION = ("cdi.k8s.io/gpustack-nvidia", "nvidia.com/gpu=GPU-0,nvidia.com/gpu=GPU-1")
BOTH = CdiNames({KIND: frozenset({"GPU-0", "GPU-1", "all"})})
READY = Engine(resolves_cdi=True, default_handler="runc")


def spec(*names: str, **changes: Any) -> str:
    """Return a CDI specification as NVIDIA's generator lays it out."""
    edits = {"deviceNodes": [{"path": "/dev/nvidia0"}]}
    body = {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": [{"name": name, "containerEdits": edits} for name in names],
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    }
    return json.dumps(body | changes)


def choose(
    strategy: str, names: CdiNames = BOTH, engine: Engine = READY, claimed: ContainerClaim | None = None
) -> Channel:
    """Return the channel for cards GPU-0 and GPU-1."""
    request = ask("nvidia", claimed or claim(), card(1), card(0))
    return choose_channel(strategy, request, kind=KIND, names=names, engine=engine)


def test_envvar_is_the_default() -> None:
    assert choose("envvar") == ENVVAR


@pytest.mark.parametrize("strategy", ["cdi-annotations", "auto"])
@pytest.mark.parametrize(
    "claimed", [claim(Family.PARTITIONED), claim(Family.VISIBILITY, partitioned_owner=True)], ids=["holder", "watcher"]
)
def test_partitions_always_go_by_variable(strategy: str, claimed: ContainerClaim) -> None:
    assert choose(strategy, claimed=claimed) == ENVVAR


def test_annotation() -> None:
    assert choose("cdi-annotations") == Channel(ANNOTATION)


def test_a_name_that_no_specification_has_is_refused() -> None:
    names = CdiNames({KIND: frozenset({"GPU-0"})})
    with pytest.raises(InjectionRefused, match=r"names nvidia\.com/gpu=GPU-1; generate it anew"):
        choose("cdi-annotations", names)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (CdiNames({}), "CDI names not checked (none names a device)"),
        (
            CdiNames({KIND: frozenset({"GPU-0"})}, ("/etc/cdi/a.yaml",)),
            "CDI names not checked (unreadable: /etc/cdi/a.yaml)",
        ),
    ],
    ids=["no-names-at-all", "unreadable"],
)
def test_what_cannot_be_checked_is_handed_over_and_noted(names: CdiNames, said: str) -> None:
    assert choose("cdi-annotations", names) == Channel(ANNOTATION, (said,))


@pytest.mark.parametrize(
    ("names", "engine", "runtime", "said"),
    [
        (BOTH, READY, "nvidia", "the Pod names the RuntimeClass nvidia"),
        (BOTH, Engine(fault="there is none"), "", "configuration is unreadable"),
        (BOTH, Engine(True, "nvidia", True), "", "default handler is nvidia"),
        (BOTH, Engine(), "", "does not resolve CDI"),
        (CdiNames({KIND: frozenset({"GPU-1"})}), READY, "", "names GPU-0"),
    ],
    ids=["runtime-class", "unreadable-config", "vendor-default", "no-cdi", "name-missing"],
)
def test_auto_keeps_the_variable(names: CdiNames, engine: Engine, runtime: str, said: str) -> None:
    channel = choose("auto", names, engine, claim(runtime_class=runtime))
    assert channel.annotation is None
    assert said in channel.notes[0]


def test_auto_goes_to_annotations_when_everything_stands() -> None:
    assert choose("auto") == Channel(ANNOTATION, ("cards by CDI annotation",))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "[]",
        ": : :",
        spec("a", kind="nvidia"),
        spec("a", cdiVersion=5),
        spec("a", devices=[{"name": "a", "containerEdits": {"deviceNodes": [{}]}}]),
        spec("a", devices=[{"name": "a", "containerEdits": {"env": "X=1"}}]),
        spec("a", devices=[{"name": "a", "containerEdits": {"mounts": [{"hostPath": "/x"}]}}]),
        spec("a", devices=[{"name": "a", "containerEdits": {"hooks": [{"path": "/x"}]}}]),
        spec(
            "a", devices=[{"name": "a", "containerEdits": {"hooks": [{"hookName": "x", "path": "/x", "timeout": -1}]}}]
        ),
        spec("a", devices=[{"name": "a"}]),
        spec("a", devices={}),
        spec("a", devices=[{"containerEdits": {}}]),
    ],
)
def test_what_is_no_specification_is_unreadable(text: str | None) -> None:
    assert read_names({"/etc/cdi/x.json": text}) == CdiNames({}, ("/etc/cdi/x.json",))


def test_fields_of_newer_versions_are_passed_over() -> None:
    edits = {"intelRdt": {"closID": "x"}, "additionalGids": [7], "netDevices": []}
    text = spec(devices=[{"name": "GPU-0", "containerEdits": edits, "later": 1}], cdiVersion="1.9.0", later={})
    assert read_names({"/etc/cdi/x.json": text}) == CdiNames({KIND: frozenset({"GPU-0"})})


def test_names_of_several_files_join() -> None:
    names = read_names({"/etc/cdi/a.json": spec("GPU-0"), "/var/run/cdi/b.yaml": spec("GPU-1", "all")})
    assert names == BOTH


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("version = 3", Engine(True, "runc")),
        ('version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true', Engine(True, "runc")),
        ("version = 2", Engine(False, "runc")),
        (
            'version = 3\n[plugins."io.containerd.cri.v1.runtime".containerd]\ndefault_runtime_name = "nvidia"',
            Engine(True, "nvidia", True),
        ),
        (
            'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "gpu"\n'
            '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.gpu.options]\n'
            'BinaryName = "/usr/bin/nvidia-container-runtime"',
            Engine(False, "gpu", True),
        ),
        ("version = ", Engine(fault="a file of it is no TOML")),
    ],
)
def test_engine(text: str, engine: Engine) -> None:
    assert read_engine([text]) == engine


def test_engine_that_is_not_there() -> None:
    assert read_engine([]).fault == "there is none"
    assert read_engine(["version = 3", None]).fault == "a file of it cannot be read"
    assert imports_of("imports = 3") == imports_of(None) == imports_of("x = ") == ()


def test_a_drop_in_that_makes_nvidia_the_default_counts(tmp_path: Path) -> None:
    put(tmp_path, "/etc/containerd/config.toml", 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]')
    drop_in = '[plugins."io.containerd.cri.v1.runtime".containerd]\ndefault_runtime_name = "nvidia"'
    put(tmp_path, "/etc/containerd/conf.d/99-nvidia.toml", drop_in)
    put(tmp_path, "/etc/cdi/nvidia.yaml", spec("GPU-0"))
    auto = Site(registry=build_manufacturers({"GPUSTACK_NVIDIA_DEVICE_INJECTION_STRATEGY": "auto"}))
    plan = Visibility(auto, TreeHost(tmp_path)).plan(ask("nvidia", claim(), card()))
    assert plan.env == {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}
    assert plan.notes == ("cards by variable: the container engine's default handler is nvidia",)


def test_the_engines_folder_is_where_the_site_says(tmp_path: Path) -> None:
    put(tmp_path, "/opt/containerd/config.toml", "version = 3")
    put(tmp_path, "/etc/cdi/nvidia.yaml", spec("GPU-0"))
    registry = build_manufacturers({"GPUSTACK_NVIDIA_DEVICE_INJECTION_STRATEGY": "auto"})
    site = Site(registry=registry, containerd="/opt/containerd")
    plan = Visibility(site, TreeHost(tmp_path)).plan(ask("nvidia", claim(), card()))
    assert plan.annotations == {"cdi.k8s.io/gpustack-nvidia": "nvidia.com/gpu=GPU-0"}


def test_specifications_are_read_once(tmp_path: Path) -> None:
    put(tmp_path, "/var/run/cdi/nvidia.yaml", spec("GPU-0"))
    env = {"GPUSTACK_NVIDIA_DEVICE_INJECTION_STRATEGY": "cdi-annotations"}
    visibility = Visibility(Site(registry=build_manufacturers(env)), TreeHost(tmp_path))
    first = visibility.plan(ask("nvidia", claim(), card()))
    put(tmp_path, "/var/run/cdi/nvidia.yaml", spec("GPU-9"))
    assert visibility.plan(ask("nvidia", claim(), card())) == first
    assert first.env == {}
    assert first.annotations == {"cdi.k8s.io/gpustack-nvidia": "nvidia.com/gpu=GPU-0"}
