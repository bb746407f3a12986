"""Slices that drivers make: MetaX sGPU (spec 06 §8.5), Cambricon sMLU (§8.6), Ascend's share flag (§8.1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devicemanager.injection import cambricon, metax
from devicemanager.injection.driver_faults import ApiMissing, DriverFault, NotDeclared
from devicemanager.injection.host import HostFault
from devicemanager.injection.reclaim import SgpuReclaimer, SmluReclaimer
from devicemanager.injection.request import HostFile, InjectionRefused, Plan, Request
from devicemanager.injection.share_flag import ensure_shared
from devicemanager.injection.simulated import SimulatedSgpus, SimulatedShareFlags, SimulatedSmlus
from devicemanager.injection.site import Site
from devicemanager.injection.slices import SgpuSlices, SmluSlices
from nodefeature.resource_names import Family
from tests.builders.injection import BDF, WORK, TreeHost, ask, card, claim, put, sliced

SITE = Site()
PODS = "/var/lib/gpustack/operator/pods"
MLU_NODES = {"/dev/cambricon_dev3": 0, "/dev/cambricon-caps/cap_dev3_smlu1": 0, "/dev/cambricon-caps/cap_dev3_smlu2": 0}


class FullDisk(TreeHost):
    """No file can be written."""

    def write(self, file: HostFile) -> None:
        raise HostFault(file.path, "written", OSError(28, "No space left on device"))


def quarter(pod: str = "uid-1", container: str = "main", percent: int = 25) -> Request:
    """Return a quarter of MetaX card BDF."""
    claimed = sliced(percent, percent=percent, pod_uid=pod, container=container)
    return ask("metax", claimed, card(memory_mib=65536, physical_indexes=(1, 129)))


def mlu(pod: str = "uid-1", percent: int = 25) -> Request:
    """Return a slice of Cambricon card 3: of compute, and twice as much of memory."""
    one = card(memory_mib=49152, physical_indexes=(3,))
    return ask("cambricon", sliced(percent, percent=percent * 2, pod_uid=pod), one)


def env(plan: Plan) -> str:
    """Return what shows a MetaX slice."""
    return plan.env["METAX_SGPUS"]


def test_metax_first_slice_sets_the_mode_and_marks(tmp_path: Path) -> None:
    driver = SimulatedSgpus()
    plan = SgpuSlices(SITE, TreeHost(tmp_path), driver).plan(quarter())
    assert env(plan) == f"sgpu={BDF}#0;compute=25;vram=16384;alias=gpustack-uid-1"
    assert driver.calls == ["subdevices", "enable", "create"]
    marker = json.loads((tmp_path / f"{WORK}/metax-sgpu.json".lstrip("/")).read_text())
    assert marker == {
        "podUID": "uid-1",
        "container": "main",
        "cardBDF": BDF,
        "index": 0,
        "coresPct": 25,
        "memMiB": 16384,
    }


def test_metax_next_slice_leaves_the_card_alone(tmp_path: Path) -> None:
    driver = SimulatedSgpus()
    slices = SgpuSlices(SITE, TreeHost(tmp_path), driver)
    slices.plan(quarter())
    driver.calls.clear()
    assert "#1;" in env(slices.plan(quarter("uid-2")))
    assert driver.calls == ["subdevices", "create"]


def test_metax_asked_again_answers_the_same(tmp_path: Path) -> None:
    driver = SimulatedSgpus()
    slices = SgpuSlices(SITE, TreeHost(tmp_path), driver)
    first = slices.plan(quarter())
    assert slices.plan(quarter()) == first
    assert driver.calls.count("create") == 1


def test_metax_index_is_free_in_driver_and_markers(tmp_path: Path) -> None:
    driver = SimulatedSgpus()
    driver.enable(BDF)
    driver.create(BDF, 0, 1, "someone")
    put(tmp_path, f"{PODS}/uid-9/c-x/metax-sgpu.json", metax.dump_marker(metax.Sgpu("uid-9", "x", BDF, 1, 1, 1)))
    put(tmp_path, f"{PODS}/uid-8/c-x/metax-sgpu.json", "not json")
    assert "#2;" in env(SgpuSlices(SITE, TreeHost(tmp_path), driver).plan(quarter()))


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        (metax.dump_marker(metax.Sgpu("uid-1", "main", BDF, 0, 50, 16384)), "names another slice"),
        (metax.dump_marker(metax.Sgpu("uid-1", "main", BDF, 5, 25, 16384)), "its subdevice 5 .* is gone"),
        (metax.dump_marker(metax.Sgpu("uid-1", "main", BDF, metax.WHOLE, 25, 16384)), "names another slice"),
        ("{", "no JSON"),
        ('{"podUID": 3}', "podUID: 3 must be text"),
    ],
    ids=["other-figures", "lost", "was-whole", "corrupt", "wrong-type"],
)
def test_metax_own_marker_fails_closed(tmp_path: Path, marker: str, said: str) -> None:
    driver = SimulatedSgpus()
    put(tmp_path, f"{WORK}/metax-sgpu.json", marker)
    with pytest.raises(InjectionRefused, match=said):
        SgpuSlices(SITE, TreeHost(tmp_path), driver).plan(quarter())
    assert not driver.live[BDF]


def test_metax_whole_and_slices_exclude_each_other(tmp_path: Path) -> None:
    driver = SimulatedSgpus()
    slices = SgpuSlices(SITE, TreeHost(tmp_path), driver)
    assert slices.plan(quarter("uid-2", percent=100)).env == {}
    with pytest.raises(InjectionRefused, match="is held whole and cannot be sliced"):
        slices.plan(quarter())
    with pytest.raises(InjectionRefused, match="is sliced already and cannot be held whole"):
        slices.plan(quarter("uid-3", percent=100))


def test_metax_has_sixteen(tmp_path: Path) -> None:
    driver = SimulatedSgpus()
    driver.enable(BDF)
    for number in range(16):
        driver.create(BDF, number, 1, "someone")
    with pytest.raises(InjectionRefused, match="all 16 subdevices"):
        SgpuSlices(SITE, TreeHost(tmp_path), driver).plan(quarter())


def test_metax_unmakes_what_cannot_be_marked(tmp_path: Path) -> None:
    driver = SimulatedSgpus()
    with pytest.raises(HostFault, match="No space left on device; free space"):
        SgpuSlices(SITE, FullDisk(tmp_path), driver).plan(quarter())
    assert not driver.live[BDF]


def test_metax_refusal_of_the_driver_is_a_refusal(tmp_path: Path) -> None:
    driver = SimulatedSgpus()
    driver.fail_next("create", DriverFault("-EINVAL"))
    with pytest.raises(InjectionRefused, match="-EINVAL"):
        SgpuSlices(SITE, TreeHost(tmp_path), driver).plan(quarter())


@pytest.mark.parametrize("slices", [SgpuSlices, SmluSlices])
def test_without_a_driver_there_are_no_slices(tmp_path: Path, slices: type[SgpuSlices | SmluSlices]) -> None:
    with pytest.raises(InjectionRefused, match="preflight"):
        slices(SITE, TreeHost(tmp_path), None).plan(quarter())


def test_cambricon_name() -> None:
    assert cambricon.instance_name(claim()) == "gpustack:uid-1:0d6e4079e367"


def test_cambricon_first_slice(tmp_path: Path) -> None:
    driver = SimulatedSmlus()
    plan = SmluSlices(SITE, TreeHost(tmp_path, MLU_NODES), driver).plan(mlu())
    assert plan.env == {"VIRTUAL_DEVICES": "/dev/cambricon-caps/cap_dev3_smlu1"}
    assert [node.path for node in plan.devices] == ["/dev/cambricon_dev3", "/dev/cambricon-caps/cap_dev3_smlu1"]
    place = tmp_path / f"{WORK}/cambricon-smlu.json".lstrip("/")
    assert place.stat().st_mode & 0o777 == 0o600
    marker = json.loads(place.read_text())
    assert (marker["coresPct"], marker["memMiB"], marker["profileID"]) == (25, 24576, 1)
    assert driver.enabled == {3}


def test_cambricon_reuses_an_equal_profile(tmp_path: Path) -> None:
    driver = SimulatedSmlus()
    slices = SmluSlices(SITE, TreeHost(tmp_path, MLU_NODES), driver)
    slices.plan(mlu())
    slices.plan(mlu("uid-2"))
    assert (len(driver.made_profiles[3]), len(driver.live[3])) == (1, 2)
    assert driver.calls.count("enable") == 1


def test_cambricon_asked_again_answers_the_same(tmp_path: Path) -> None:
    slices = SmluSlices(SITE, TreeHost(tmp_path, MLU_NODES), SimulatedSmlus())
    assert slices.plan(mlu()) == slices.plan(mlu())


def test_cambricon_malformed_marker_comes_before_a_missing_limit(tmp_path: Path) -> None:
    put(tmp_path, f"{WORK}/cambricon-smlu.json", "[]")
    request = ask("cambricon", sliced(), card(memory_mib=1, physical_indexes=(3,)))
    with pytest.raises(InjectionRefused, match="an object is expected"):
        SmluSlices(SITE, TreeHost(tmp_path), SimulatedSmlus()).plan(request)


@pytest.mark.parametrize(
    ("operation", "fault", "said"),
    [
        ("is_enabled", ApiMissing("no such function"), "its driver has no sMLU"),
        ("is_enabled", DriverFault("busy"), "cannot be read: busy"),
        ("enable", DriverFault("denied"), f"at {BDF}, device index 3: .*denied; on the node: cnmon set -c 3 -smlu on"),
        ("create_profile", DriverFault("full"), "full"),
        ("create", DriverFault("full"), "full"),
    ],
)
def test_cambricon_refusals_leave_nothing(tmp_path: Path, operation: str, fault: DriverFault, said: str) -> None:
    driver = SimulatedSmlus()
    driver.fail_next(operation, fault)
    with pytest.raises(InjectionRefused, match=said):
        SmluSlices(SITE, TreeHost(tmp_path, MLU_NODES), driver).plan(mlu())
    assert not driver.live[3]
    assert not driver.made_profiles[3]


@pytest.mark.parametrize("host", [FullDisk, TreeHost], ids=["full-disk", "node-missing"])
def test_cambricon_unmakes_what_cannot_be_given(tmp_path: Path, host: type[TreeHost]) -> None:
    driver = SimulatedSmlus()
    nodes = MLU_NODES if host is FullDisk else {}
    with pytest.raises(InjectionRefused):
        SmluSlices(SITE, host(tmp_path, nodes), driver).plan(mlu())
    assert not driver.live[3]
    assert not driver.made_profiles[3]


def test_cambricon_lost_instance_fails_closed(tmp_path: Path) -> None:
    driver = SimulatedSmlus()
    slices = SmluSlices(SITE, TreeHost(tmp_path, MLU_NODES), driver)
    slices.plan(mlu())
    driver.live[3].clear()
    with pytest.raises(InjectionRefused, match="is gone; recreate the Pod"):
        slices.plan(mlu())


def test_reclaiming_metax(tmp_path: Path) -> None:
    driver = SimulatedSgpus()
    host = TreeHost(tmp_path)
    slices = SgpuSlices(SITE, host, driver)
    slices.plan(quarter("dead"))
    slices.plan(quarter("alive"))
    driver.create(BDF, 7, 1, "")
    reclaim = SgpuReclaimer(SITE, host, driver, lambda: [BDF])
    for _ in range(2):
        reclaim(frozenset({"alive"}))
    assert sorted(driver.live[BDF]) == [0, 1, 7]
    reclaim(frozenset({"alive"}))
    assert sorted(driver.live[BDF]) == [1, 7]
    assert not host.exists(f"{PODS}/dead/c-main/metax-sgpu.json")
    assert host.exists(f"{PODS}/alive/c-main/metax-sgpu.json")


def test_reclaiming_cambricon(tmp_path: Path) -> None:
    driver = SimulatedSmlus()
    slices = SmluSlices(SITE, TreeHost(tmp_path, MLU_NODES), driver)
    slices.plan(mlu("dead"))
    slices.plan(mlu("alive"))
    driver.live[3]["somebody's"] = cambricon.SmluInstance("somebody's", 9)
    reclaim = SmluReclaimer(SITE, TreeHost(tmp_path), driver, lambda: [3])
    for passing in range(3):
        assert len(driver.live[3]) == 3, passing
        reclaim(frozenset({"alive"}))
    assert sorted(driver.live[3]) == ["gpustack:alive:0d6e4079e367", "somebody's"]
    assert len(driver.made_profiles[3]) == 1
    for _ in range(3):
        reclaim(frozenset())
    assert (sorted(driver.live[3]), len(driver.made_profiles[3])) == (["somebody's"], 0)


@pytest.mark.parametrize(
    ("reading", "writing", "calls", "said"),
    [
        (None, None, ["is_shared", "share"], ""),
        (NotDeclared("V2"), None, ["is_shared"], "has no container-share flag"),
        (DriverFault("busy"), None, ["is_shared", "share"], ""),
    ],
    ids=["off-then-on", "not-declared", "unreadable-still-written"],
)
def test_share_flag(reading: DriverFault | None, writing: DriverFault | None, calls: list[str], said: str) -> None:
    driver = SimulatedShareFlags()
    for operation, fault in (("is_shared", reading), ("share", writing)):
        if fault:
            driver.fail_next(operation, fault)
    assert said in ensure_shared(card(), driver)
    assert driver.calls == calls


def test_share_flag_that_is_on_is_left_alone() -> None:
    driver = SimulatedShareFlags()
    driver.shared.add("GPU-0")
    assert ensure_shared(card(), driver) == ""
    assert driver.calls == ["is_shared"]


@pytest.mark.parametrize(
    ("reading", "writing", "calls", "said"),
    [
        (ApiMissing("no symbol"), None, 1, "cannot share it between containers: no symbol"),
        (None, ApiMissing("no symbol"), 2, "cannot share it between containers: no symbol"),
        (
            DriverFault("busy"),
            DriverFault("denied"),
            2,
            r"reading it failed \(busy\), then turning it on failed \(denied\).*npu-smi set -t device-share -i 2 -c 1",
        ),
    ],
    ids=["read-missing", "write-missing", "both-failed"],
)
def test_share_flag_refused(reading: DriverFault | None, writing: DriverFault | None, calls: int, said: str) -> None:
    driver = SimulatedShareFlags()
    for operation, fault in (("is_shared", reading), ("share", writing)):
        if fault:
            driver.fail_next(operation, fault)
    with pytest.raises(InjectionRefused, match=said):
        ensure_shared(card(physical_indexes=(5, 2, 1)), driver)
    assert len(driver.calls) == calls


def test_families_that_need_the_flag() -> None:
    from devicemanager.injection.ascend import SHARING

    assert set(SHARING) == {Family.SHARED, Family.SLICED, Family.VISIBILITY}
