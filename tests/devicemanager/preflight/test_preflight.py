"""Preflight: every check named, what to do, and the exit code (spec 06 §15)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from devicemanager.answers import Empty, Failed, Found
from devicemanager.detection import DetectionOptions
from devicemanager.detectors.recorded import RecordedDetector
from devicemanager.injection.cu_mask import CuLayout
from devicemanager.injection.driver_faults import ApiMissing
from devicemanager.injection.entrance import Drivers
from devicemanager.injection.host import Host
from devicemanager.injection.request import Plan
from devicemanager.injection.simulated import SimulatedSgpus, SimulatedShareFlags, SimulatedSmlus
from devicemanager.injection.site import Site
from devicemanager.partitions.simulated import SimulatedCards, simulate
from devicemanager.preflight.commands import HostCommands
from devicemanager.preflight.driver_checks import driver_check
from devicemanager.preflight.node_checks import container_engine, node_checks, runtime_of
from devicemanager.preflight.probe import Ran, can_probe, probe, probe_command
from devicemanager.preflight.report import Check, Depth, Report, State
from devicemanager.preflight.run import Means, PreflightOptions, PreflightRunning, only_one, run_preflight
from hack.fleet import RECORDED
from tests.builders.cards import ScriptedDetector, cards
from tests.builders.injection import TreeHost, card, put

LIB = "/var/lib/gpustack/operator/lib"
NVIDIA_SHIMS = (f"{LIB}/nvidia/ld.so.preload", f"{LIB}/nvidia/cuda-13/libvgpu.so")


@dataclass
class Commands:
    """Answers commands by their first word."""

    answers: dict[str, Ran] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    def run(self, command: Sequence[str]) -> Ran:
        self.ran.append(" ".join(command))
        return self.answers.get(command[0], Ran(127, "not found"))


def healthy_host(root: Path, *paths: str) -> TreeHost:
    """Return a node whose kubelet, engine and given paths are there."""
    for path in (
        "/var/lib/kubelet/device-plugins/kubelet.sock",
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        "/usr/bin/docker",
        *paths,
    ):
        put(root, path, "")
    return TreeHost(root)


def preflight(
    detector: Any, host: Host, *makers: str, runner: Commands | None = None, drivers: Drivers | None = None, **more: Any
) -> Report:
    """Run a preflight of `makers` on node gpu-a."""
    fields: dict[str, Any] = {"node_name": "gpu-a", "dry_run": True} | more
    options = PreflightOptions(detection=DetectionOptions(manufacturers=makers or ("nvidia",)), **fields)
    means = Means(Site(), host, drivers or Drivers(), runner or Commands())
    return asyncio.run(run_preflight(detector, options, means))


def row(report: Report, name: str, about: str = "nvidia") -> Check:
    """Return one check."""
    (found,) = [check for check in report.checks if (check.about, check.name) == (about, name)]
    return found


def test_a_fit_node(tmp_path: Path) -> None:
    host = healthy_host(tmp_path, *NVIDIA_SHIMS, "/dev/shm/x")
    smi = Commands({"nvidia-smi": Ran(0, "GPU 0: Tesla T4 (UUID: GPU-0)\nGPU 1: Tesla T4 (UUID: GPU-1)\n")})
    report = preflight(ScriptedDetector(Found(cards(2))), host, runner=smi)
    assert report.exit_code == 0
    assert [(check.name, check.state.value, check.depth.value) for check in report.checks] == [
        ("node-name", "ok", "declared"),
        ("kubelet-registration", "ok", "declared"),
        ("kubelet-pod-resources", "ok", "declared"),
        ("container-engine", "ok", "declared"),
        ("working-folder", "ok", "declared"),
        ("detected", "ok", "measured"),
        ("sliced-runtime-loaded", "ok", "declared"),
        ("sliced-quota-in-force", "ok", "simulated"),
        ("sidecar-visibility", "ok", "simulated"),
        ("co-tenancy", "ok", "simulated"),
        ("mig-partitioning", "not-declared", "declared"),
        ("host-tool", "ok", "measured"),
    ]


def test_everything_that_fails_says_what_to_do(tmp_path: Path) -> None:
    report = preflight(ScriptedDetector(Found(cards(1))), TreeHost(tmp_path), node_name="")
    assert report.exit_code == 1
    failed = [check for check in report.checks if not check.passed]
    assert {check.name for check in failed} == {
        "node-name",
        "kubelet-registration",
        "kubelet-pod-resources",
        "sliced-runtime-loaded",
    }
    assert all(check.remedy for check in failed)
    assert row(report, "sliced-runtime-loaded").said == f"missing: {', '.join(sorted(NVIDIA_SHIMS))}"


@pytest.mark.parametrize(
    ("answer", "state", "code"),
    [
        (Empty("no PCI device of vendor 10de"), State.NOT_DECLARED, 0),
        (Failed("driver/library version mismatch"), State.UNAVAILABLE, 1),
        (Found(cards(1)), State.UNAVAILABLE, 1),
    ],
)
def test_detected(tmp_path: Path, answer: Any, state: State, code: int) -> None:
    found = answer if not isinstance(answer, Found) else Found(tuple(replace(c, uuid=None) for c in answer.cards))
    report = preflight(ScriptedDetector(found), healthy_host(tmp_path))
    assert (row(report, "detected").state, report.exit_code) == (state, code)


def test_every_manufacturer_asked_is_reported(tmp_path: Path) -> None:
    report = preflight(ScriptedDetector({}), healthy_host(tmp_path), "amd", "ascend", "thead")
    assert [check.about for check in report.checks if check.name == "detected"] == ["amd", "ascend", "thead"]


@pytest.mark.parametrize(
    ("machine", "maker", "names"),
    [
        ("hygon-bw-mig", "hygon", {"detected", "toolkit", "sliced-runtime-loaded", "sidecar-visibility"}),
        (
            "mthreads-s5000",
            "mthreads",
            {"detected", "sliced-runtime-loaded", "sliced-quota-in-force", "sidecar-visibility", "co-tenancy"},
        ),
        (
            "metax-c550",
            "metax",
            {
                "detected",
                "toolkit",
                "sliced-runtime-loaded",
                "sliced-quota-in-force",
                "sidecar-visibility",
                "co-tenancy",
                "sgpu-mode",
            },
        ),
        (
            "cambricon-mlu590-m9",
            "cambricon",
            {
                "detected",
                "toolkit",
                "sliced-runtime-loaded",
                "sliced-quota-in-force",
                "sidecar-visibility",
                "co-tenancy",
                "smlu-mode",
            },
        ),
        (
            "amd-mi308x",
            "amd",
            {
                "detected",
                "toolkit",
                "sliced-runtime-loaded",
                "sliced-quota-in-force",
                "sidecar-visibility",
                "co-tenancy",
                "cu-mask-topology",
            },
        ),
        (
            "iluvatar-bi-v150",
            "iluvatar",
            {
                "detected",
                "toolkit",
                "sliced-runtime-loaded",
                "sliced-quota-in-force",
                "sidecar-visibility",
                "co-tenancy",
            },
        ),
        (
            "thead-ppu-16",
            "thead",
            {
                "detected",
                "toolkit",
                "sliced-runtime-loaded",
                "sliced-quota-in-force",
                "sidecar-visibility",
                "co-tenancy",
                "mig-partitioning",
            },
        ),
        (
            "ascend-910b4-a2",
            "ascend",
            {
                "detected",
                "toolkit",
                "sliced-runtime-loaded",
                "sliced-quota-in-force",
                "sidecar-visibility",
                "co-tenancy",
                "container-share",
            },
        ),
    ],
)
def test_rows_of_each_manufacturer(tmp_path: Path, machine: str, maker: str, names: set[str]) -> None:
    detector = RecordedDetector.load(RECORDED / f"{machine}.yaml")
    report = preflight(detector, healthy_host(tmp_path), maker, is_recorded=True)
    assert {check.name for check in report.checks if check.about == maker} == names


def test_two_halves_of_a_hygon_card_are_held_apart(tmp_path: Path) -> None:
    detector = RecordedDetector.load(RECORDED / "hygon-k100ai.yaml")
    report = preflight(detector, healthy_host(tmp_path), "hygon", is_recorded=True)
    assert row(report, "co-tenancy", "hygon").said == "two halves of one card, compute split"


def test_b036_a_card_without_memory_cannot_be_sliced(tmp_path: Path) -> None:
    detector = RecordedDetector.load(RECORDED / "nvidia-gb10-spark.yaml")
    report = preflight(detector, healthy_host(tmp_path), is_recorded=True)
    assert "no per-card memory" in row(report, "sliced-quota-in-force").said


def test_the_hosts_own_tool_counts_otherwise(tmp_path: Path) -> None:
    smi = Commands({"nvidia-smi": Ran(0, "GPU 0: x\nGPU 1: x\n")})
    found = row(preflight(ScriptedDetector(Found(cards(1))), healthy_host(tmp_path), runner=smi), "host-tool")
    assert found.said == "nvidia-smi -L lists 2 accelerators, 1 were detected"
    assert not found.passed


ASCEND_950 = replace(
    cards(1)[0],
    manufacturer="ascend",
    soc="Ascend950",
    product="Ascend950",
    memory_mib=65536,
    runtime_version="9.0",
    physical_indexes=(0, 1, 0),
)
INFO = "/usr/local/Ascend/Ascend-Docker-Runtime/ascend_docker_runtime_install.info"
RANKS = "/etc/hccl_rootinfo.json"


@pytest.mark.parametrize(
    ("info", "ranks", "states"),
    [
        ("version=v26.0.0\n", None, ("ok", "ok")),
        ("version=26.1.0\n", '{"version": "2.0"}', ("ok", "ok")),
        ("version=7.1.0\n", '{"version": "1.0"}', ("unavailable", "unavailable")),
        (None, "{", ("unavailable", "unavailable")),
    ],
)
def test_ascend_950(tmp_path: Path, info: str | None, ranks: str | None, states: tuple[str, str]) -> None:
    for path, text in ((INFO, info), (RANKS, ranks)):
        if text is not None:
            put(tmp_path, path, text)
    report = preflight(ScriptedDetector(Found((ASCEND_950,)), manufacturer="ascend"), healthy_host(tmp_path), "ascend")
    names = ("ascend-docker-runtime", "hccl-ranktable")
    assert tuple(row(report, name, "ascend").state.value for name in names) == states


def test_a_link_in_place_of_the_rank_table(tmp_path: Path) -> None:
    put(tmp_path, "/elsewhere", '{"version": "2.0"}')
    (tmp_path / "etc").mkdir()
    (tmp_path / RANKS.lstrip("/")).symlink_to(tmp_path / "elsewhere")
    report = preflight(ScriptedDetector(Found((ASCEND_950,)), manufacturer="ascend"), healthy_host(tmp_path), "ascend")
    assert not row(report, "hccl-ranktable", "ascend").passed


AMD = card(id="GPU-1", cores=60)
MLU = card(physical_indexes=(3,))


@pytest.mark.parametrize(
    ("maker", "drivers", "state", "said"),
    [
        ("ascend", Drivers(), "unavailable", "no driver interface"),
        ("ascend", Drivers(share_flag=SimulatedShareFlags()), "ok", "off for GPU-0; turned on when first needed"),
        ("cambricon", Drivers(smlu=SimulatedSmlus()), "ok", "off for devices 3"),
        ("metax", Drivers(sgpu=SimulatedSgpus()), "ok", "1 cards, 0 subdevices"),
        (
            "amd",
            Drivers(layouts={"GPU-1": CuLayout(gfx="gfx1101", compute_units=60, shader_engines=3)}),
            "ok",
            "half is 30 of 60",
        ),
        (
            "amd",
            Drivers(layouts={"GPU-1": CuLayout(gfx="gfx803", compute_units=60)}),
            "unavailable",
            "cannot be sliced by",
        ),
        ("amd", Drivers(), "unavailable", "layout of its compute units is not known"),
    ],
)
def test_driver_rows(maker: str, drivers: Drivers, state: str, said: str) -> None:
    one = {"amd": AMD, "cambricon": MLU}.get(maker, card())
    found = driver_check(maker, [one], drivers)
    assert found is not None
    assert found.state.value == state
    assert said in found.said


def test_a_mode_is_turned_on_only_when_that_is_allowed() -> None:
    flags, smlus = SimulatedShareFlags(), SimulatedSmlus()
    for may_write in (False, True):
        driver_check("ascend", [card()], Drivers(share_flag=flags), may_write=may_write)
        driver_check("cambricon", [MLU], Drivers(smlu=smlus), may_write=may_write)
        assert (flags.shared, smlus.enabled) == (({"GPU-0"}, {3}) if may_write else (set(), set()))


def test_a_driver_that_fails_is_unavailable() -> None:
    flags = SimulatedShareFlags()
    flags.fail_next("is_shared", ApiMissing("no symbol"))
    found = driver_check("ascend", [card()], Drivers(share_flag=flags))
    assert found is not None
    assert (found.state, found.said) == (State.UNAVAILABLE, "no symbol")


@pytest.mark.parametrize(
    ("cards_", "state", "said"),
    [
        (SimulatedCards({}), State.NOT_DECLARED, "no card is in partition mode"),
        (SimulatedCards({"GPU-0": ()}), State.UNAVAILABLE, "offer no profile"),
    ],
)
def test_partition_rows(cards_: SimulatedCards, state: State, said: str) -> None:
    found = driver_check("nvidia", [card()], Drivers(), partitions=cards_)
    assert found is not None
    assert found.state is state
    assert said in found.said


def test_partition_row_of_a_recorded_machine() -> None:
    machine = RecordedDetector.load(RECORDED / "nvidia-hgx-a100-80gb-mig-mixed.yaml")
    found = driver_check("nvidia", [card()], Drivers(), partitions=simulate(machine.cards))
    assert found is not None
    assert "1g.10gb" in found.said


@pytest.mark.parametrize(
    ("files", "endpoint"),
    [
        ({}, ""),
        ({"/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///a.sock\n"}, "unix:///a.sock"),
        (
            {
                "/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///a.sock\n",
                "/var/lib/kubelet/kubelet.conf.d/10.conf": "containerRuntimeEndpoint: unix:///b.sock\n",
            },
            "unix:///b.sock",
        ),
        (
            {"/var/lib/kubelet/kubeadm-flags.env": 'ARGS="--container-runtime-endpoint=unix:///c.sock --x"'},
            "unix:///c.sock",
        ),
        (
            {"/proc/7/comm": "kubelet\n", "/proc/7/cmdline": "kubelet\0--container-runtime-endpoint\0unix:///d.sock"},
            "unix:///d.sock",
        ),
        ({"/var/lib/kubelet/config.yaml": "{"}, ""),
    ],
    ids=["nothing", "config", "drop-in", "kubeadm", "running", "malformed"],
)
def test_container_engine(tmp_path: Path, files: dict[str, str], endpoint: str) -> None:
    for path, text in files.items():
        put(tmp_path, path, text)
    assert container_engine(TreeHost(tmp_path)) == endpoint


@pytest.mark.parametrize(
    ("tools", "asked", "tool"),
    [(["docker", "ctr"], "", "docker"), (["ctr"], "", "ctr"), ([], "", ""), (["docker"], "ctr", "ctr")],
)
def test_runtime(tmp_path: Path, tools: list[str], asked: str, tool: str) -> None:
    for name in tools:
        put(tmp_path, f"/usr/bin/{name}", "")
    assert runtime_of(TreeHost(tmp_path), asked) == tool


def test_node_checks_count_what_is_there(tmp_path: Path) -> None:
    assert [check.passed for check in node_checks(TreeHost(tmp_path), node_name="a")] == [True, False, False, True]


def test_probe_command() -> None:
    plan = Plan(env={"NVIDIA_VISIBLE_DEVICES": "GPU-0"})
    assert " ".join(probe_command("nvidia", plan, "busybox", "nerdctl", "nvidia")) == (
        "nerdctl --namespace gpustack-preflight run --rm --label gpustack.ai/preflight=true --network none "
        "--runtime nvidia --env NVIDIA_VISIBLE_DEVICES=GPU-0 busybox sh -c grep -q libvgpu.so /proc/self/maps"
    )
    assert [maker for maker in ("amd", "cambricon", "hygon", "iluvatar") if can_probe(maker)] == ["amd", "hygon"]


@pytest.mark.parametrize(("code", "state"), [(0, State.OK), (1, State.UNAVAILABLE)])
def test_probe_sweeps_first(code: int, state: State) -> None:
    commands: list[str] = []

    class Docker:
        def run(self, command: Sequence[str]) -> Ran:
            commands.append(" ".join(command[:3]))
            return Ran(0, "abc\n") if command[1] == "ps" else Ran(code, "boom")

    assert probe("nvidia", Plan(), image="busybox", tool="docker", runner=Docker()).state is state
    assert commands == ["docker ps --all", "docker rm --force", "docker run --rm"]


@pytest.mark.parametrize(
    ("more", "emitted"), [({"dry_run": True}, 2), ({"dry_run": False, "runtime": "ctr"}, 2), ({"dry_run": False}, 0)]
)
def test_what_is_not_run_is_written_out(tmp_path: Path, more: dict[str, Any], emitted: int) -> None:
    runner = Commands({"docker": Ran(0, "")})
    host = healthy_host(tmp_path, *NVIDIA_SHIMS)
    report = preflight(ScriptedDetector(Found(cards(1))), host, runner=runner, image="busybox", **more)
    assert len(report.emitted) == emitted
    assert any(line.startswith("docker run") for line in runner.ran) == (emitted == 0)
    assert ("sliced-container" in {check.name for check in report.checks}) == (emitted == 0)


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    before = sorted(healthy_host(tmp_path)._root.rglob("*"))
    with only_one(tmp_path, dry_run=True):
        preflight(ScriptedDetector(Found(cards(1))), TreeHost(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before


def test_one_at_a_time(tmp_path: Path) -> None:
    with (
        only_one(tmp_path, dry_run=False),
        pytest.raises(PreflightRunning, match="another preflight"),
        only_one(tmp_path, dry_run=False),
    ):
        pass
    with only_one(tmp_path, dry_run=False):
        assert [entry.name for entry in (tmp_path / "var/lib/gpustack/operator/preflight").iterdir()] == ["lock"]


def _is_there(root: Path) -> None:
    (root / "var/lib/gpustack/operator/pods/uid-1").mkdir(parents=True)


def _is_in_a_file(root: Path) -> None:
    put(root, "/var/lib/gpustack", "a file")


def _leads_nowhere(root: Path) -> None:
    (root / "var/lib").mkdir(parents=True)
    (root / "var/lib/gpustack").symlink_to(root / "gone")


WORKING_FOLDERS: dict[str, tuple[Callable[[Path], None], bool]] = {
    "not there yet": (lambda root: None, True),
    "there": (_is_there, True),
    "in a file": (_is_in_a_file, False),
    "a link that leads nowhere": (_leads_nowhere, False),
}


@pytest.mark.parametrize("case", WORKING_FOLDERS)
def test_a_working_folder_is_tried_and_nothing_of_it_left(tmp_path: Path, case: str) -> None:
    prepare, passed = WORKING_FOLDERS[case]
    prepare(tmp_path)
    host = healthy_host(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    report = preflight(ScriptedDetector({}), host, dry_run=False)
    assert row(report, "working-folder", "node").passed == passed
    assert sorted(tmp_path.rglob("*")) == before


def test_a_working_folder_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _is_there(tmp_path)
    asked: list[str] = []

    def full(*, prefix: str, dir: Path) -> str:
        asked.append(str(dir))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("devicemanager.injection.host.mkdtemp", full)
    check = row(preflight(ScriptedDetector({}), healthy_host(tmp_path), dry_run=False), "working-folder", "node")
    assert (check.passed, asked) == (False, [str(tmp_path / "var/lib/gpustack/operator/pods")])
    assert "No space left on device; free space" in check.said


def test_report_body() -> None:
    check = Check(about="nvidia", name="x", state=State.NOT_DECLARED, depth=Depth.SIMULATED, said="nothing")
    assert Report((check,), ("step",)).body() == {
        "passed": True,
        "checks": [{"about": "nvidia", "check": "x", "state": "not-declared", "depth": "simulated", "said": "nothing"}],
        "emitted": ["step"],
    }


def test_host_commands() -> None:
    commands = HostCommands()
    assert commands.run(["sh", "-c", "echo out; echo err >&2; exit 3"]) == Ran(3, "out\nerr\n")
    assert commands.run(["/does/not/exist"]).code == 127
    assert HostCommands(deadline_s=0.05).run(["sleep", "5"]).code == 124
