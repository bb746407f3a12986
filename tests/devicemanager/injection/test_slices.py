"""Logical slices: every row of spec 06 §8.2 and the case table under it."""

from __future__ import annotations

import pytest

from api.ledger.placements import Placement
from devicemanager.injection import amd, ascend, hygon, iluvatar, metax, mthreads, nvidia, thead
from devicemanager.injection.cdi import ENVVAR
from devicemanager.injection.metax import Sgpu
from devicemanager.injection.request import InjectionRefused, Plan
from devicemanager.injection.site import Site, cores_percentage, memory_mib
from tests.builders.injection import BDF, LIB, WORK, ask, card, claim, sliced

SITE = Site()
V80 = {"memory_mib": 81559, "runtime_version": "12.4", "overcommits_cores": True}


def mounts(plan: Plan) -> list[str]:
    """Return mounts as text: container path, host path, `rw` or `ro`."""
    return [f"{m.container_path} <- {m.host_path} {'ro' if m.read_only else 'rw'}" for m in plan.mounts]


def test_nvidia() -> None:
    plan = nvidia.plan(ask("nvidia", sliced(30, percent=50), card(**V80)), SITE, ENVVAR)
    assert plan.env == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-0",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "40779m",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/vgpu/cudevshr.cache",
        "LIBCUDA_LOG_LEVEL": "0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    assert mounts(plan) == [
        "/tmp/vgpulock <- /tmp/vgpulock rw",
        f"/etc/ld.so.preload <- {LIB}/nvidia/ld.so.preload ro",
        f"/usr/local/vgpu/libvgpu.so <- {LIB}/nvidia/cuda-12/libvgpu.so ro",
        f"/tmp/vgpu <- {WORK}/tmp/vgpu rw",
        "/dev/shm <- /dev/shm rw",
    ]
    assert plan.folders == ("/tmp/vgpulock", f"{WORK}/tmp/vgpu")


def test_nvidia_majors_decide_the_library_and_may_not_differ() -> None:
    def library(*versions: str) -> str:
        cards = [card(n, **(V80 | {"runtime_version": v})) for n, v in enumerate(versions)]
        return nvidia.plan(ask("nvidia", sliced(percent=50), *cards), SITE, ENVVAR).mounts[2].host_path

    assert library("13.0", "13.1") == f"{LIB}/nvidia/cuda-13/libvgpu.so"
    assert library("") == f"{LIB}/nvidia/cuda-12/libvgpu.so"
    with pytest.raises(InjectionRefused, match="different major versions"):
        library("12.4", "13.0")


def test_iluvatar() -> None:
    plan = iluvatar.plan(ask("iluvatar", sliced(25, percent=50), card(memory_mib=32768)), SITE)
    assert plan.env == {
        "IX_VISIBLE_DEVICES": "GPU-0",
        "CUDA_DEVICE_SM_LIMIT": "25",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "16384m",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/vgpu/cudevshr.cache",
        "LIBCUDA_LOG_LEVEL": "0",
    }
    assert mounts(plan)[1:3] == [
        f"/etc/ld.so.preload <- {LIB}/iluvatar/ld.so.preload ro",
        f"/usr/local/vgpu/libvgpu.so <- {LIB}/iluvatar/libvgpu.so ro",
    ]
    assert len(plan.mounts) == 5


def test_ascend() -> None:
    one = card(id="NPU 1", family="910B", memory_mib=65536, physical_indexes=(5, 2, 1), runtime_version="9.0")
    plan = ascend.plan(ask("ascend", sliced(20, mib=8192), one), SITE)
    library = f"{LIB}/ascend/cann-9-910b"
    config = "/etc/enpu/vcann-rt/npu_info.config"
    assert plan.env == {"ASCEND_VISIBLE_DEVICES": "5", "ENPU_LOG_LEVEL": "1", "ENPU_DSMI_HOOK": "1"}
    assert mounts(plan) == [
        f"/etc/ld.so.preload <- {LIB}/ascend/ld.so.preload ro",
        f"/opt/enpu/vcann-rt/lib/libvruntime.so <- {library}/lib/libvruntime.so ro",
        f"/opt/enpu/vcann-rt/tools/enpu-monitor <- {library}/tools/enpu-monitor ro",
        f"{config} <- {WORK}{config} ro",
        "/dev/shm <- /dev/shm rw",
    ]
    (file,) = plan.files
    assert (file.path, file.mode) == (WORK + config, 0o644)
    assert file.text == (
        "physical-npu-id=5\nvirtual-npu-id=0\naicore-quota=20\nmemory-quota=8192\nshm-id=NPU-1\nscheduling-policy=2\n"
    )


def test_ascend_is_single_npu() -> None:
    cards = [card(n, physical_indexes=(n,)) for n in range(2)]
    with pytest.raises(InjectionRefused, match="vcann-rt logical slicing is single-NPU"):
        ascend.plan(ask("ascend", sliced(percent=50), *cards), SITE)


@pytest.mark.parametrize(
    ("own", "others", "virtual"),
    [
        (None, ["physical-npu-id=5\nvirtual-npu-id=0\n", "physical-npu-id=5\nvirtual-npu-id=2\n"], 1),
        (None, ["physical-npu-id=6\nvirtual-npu-id=0\n"], 0),
        ("physical-npu-id=5\nvirtual-npu-id=7\n", ["physical-npu-id=5\nvirtual-npu-id=0\n"], 7),
        ("physical-npu-id=6\nvirtual-npu-id=7\n", [], 0),
        ("garbage", ["virtual-npu-id=0\n", "physical-npu-id=5\nvirtual-npu-id=-1\n"], 0),
    ],
    ids=["lowest-free", "other-npu", "own-kept", "own-of-another-npu", "malformed-ignored"],
)
def test_ascend_virtual_number(own: str | None, others: list[str], virtual: int) -> None:
    one = card(memory_mib=65536, physical_indexes=(5,), family="910B")
    plan = ascend.plan(ask("ascend", sliced(20, mib=1), one), SITE, own, others)
    assert f"virtual-npu-id={virtual}\n" in plan.files[0].text


def test_thead() -> None:
    one = card(memory_mib=98304, physical_indexes=(16,), overcommits_cores=True)
    plan = thead.plan(ask("thead", sliced(10, percent=25), one), SITE)
    assert plan.env == {
        "HGGC_DEVICE_SM_LIMIT": "10",
        "HGGC_DEVICE_MEMORY_LIMIT_0": "24576",
        "HGGC_LEDGER_PATH": "/var/run/vppu/ledger",
        "LIBHGGC_LOG_LEVEL": "1",
    }
    assert mounts(plan) == [
        f"/etc/ld.so.preload <- {LIB}/thead/ld.so.preload ro",
        f"/usr/local/vppu/hgml_dlsym_hook.so <- {LIB}/thead/hgml_dlsym_hook.so ro",
        f"/usr/local/vppu/hggc_quota.so <- {LIB}/thead/hggc_quota.so ro",
        f"/usr/local/vppu/ppu-monitor <- {LIB}/thead/ppu-monitor ro",
        f"/var/run/vppu <- {WORK}/run/vppu rw",
    ]
    assert plan.folders == (f"{WORK}/run/vppu",)
    assert [node.path for node in plan.devices] == ["/dev/alixpu", "/dev/alixpu_ctl", "/dev/alixpu_ppu0"]


def test_thead_without_a_share_gets_all_compute_where_it_is_overcommitted() -> None:
    one = card(memory_mib=98304, physical_indexes=(16,), overcommits_cores=True)
    env = thead.plan(ask("thead", sliced(mib=8192), one), SITE).env
    assert (env["HGGC_DEVICE_SM_LIMIT"], env["HGGC_DEVICE_MEMORY_LIMIT_0"]) == ("100", "8192")


def test_thead_two_models() -> None:
    cards = (card(0, memory_mib=98304, physical_indexes=(0,)), card(1, memory_mib=49152, physical_indexes=(1,)))
    env = thead.plan(ask("thead", sliced(10, percent=25), *cards), SITE).env
    assert [value for key, value in env.items() if "MEMORY" in key] == ["24576", "12288"]
    assert sum(key.endswith("SM_LIMIT") for key in env) == 1


def test_amd() -> None:
    one = card(2, id="GPU-8c6b", memory_mib=16368, cores=60, physical_indexes=(1, 129), window=Placement(12, 12))
    plan = amd.plan(ask("amd", sliced(25, percent=25), one), SITE)
    assert plan.env == {
        "AMD_VISIBLE_DEVICES": "none",
        "ROCR_VISIBLE_DEVICES": "GPU-8c6b",
        "VROCM_DEVICE_MEMORY_LIMIT_0": "4092",
        "VROCM_LEDGER_PATH": "/var/run/vrocm/ledger",
        "HSA_CU_MASK": "0:12-23",
        "LIBVROCM_LOG_LEVEL": "1",
    }
    assert mounts(plan) == [
        f"/etc/ld.so.preload <- {LIB}/amd/ld.so.preload ro",
        f"/usr/local/vrocm/libvrocm.so <- {LIB}/amd/libvrocm.so ro",
        f"/usr/local/vrocm/rocm-monitor <- {LIB}/amd/rocm-monitor ro",
        f"/usr/local/vrocm/rocm-cumask-check <- {LIB}/amd/rocm-cumask-check ro",
        f"/var/run/vrocm <- {WORK}/run/vrocm rw",
    ]
    assert plan.notes == ("accelerator GPU-8c6b: 25 % asked, 20 % delivered: compute units come in groups",)


def test_amd_two_cards_and_a_serial_without_prefix() -> None:
    cards = [
        card(n, id=f"ab{n}", memory_mib=16368, physical_indexes=(n, 128 + n), window=Placement(0, 6)) for n in (0, 1)
    ]
    env = amd.plan(ask("amd", sliced(10, percent=50), *cards), SITE).env
    assert env["ROCR_VISIBLE_DEVICES"] == "GPU-ab0,GPU-ab1"
    assert env["HSA_CU_MASK"] == "0:0-5;1:0-5"


def test_amd_without_a_window_is_refused() -> None:
    with pytest.raises(InjectionRefused, match="no window of compute units"):
        amd.plan(ask("amd", sliced(10, percent=50), card(memory_mib=1, physical_indexes=(0, 128))), SITE)


def test_mthreads_is_reckoned_on_the_first_card() -> None:
    cards = (card(0, memory_mib=49152), card(1, memory_mib=98304))
    env = mthreads.plan(ask("mthreads", sliced(25, percent=50), *cards), SITE).env
    assert env == {
        "MTHREADS_VISIBLE_DEVICES": "GPU-0,GPU-1",
        "MTHREADS_QOS_MEMORY_LIMIT": str(24576 * 2**20),
        "MTHREADS_QOS_COMPUTING_POWER_WEIGHT": "25",
    }


def test_hygon() -> None:
    one = card(memory_mib=65536, cores=80, physical_indexes=(1, 129))
    plan = hygon.plan(ask("hygon", sliced(25, percent=25), one), SITE)
    assert mounts(plan) == [
        "/opt/hygondriver <- /opt/dtk ro",
        "/opt/hyhal <- /opt/hyhal ro",
        f"/etc/vdev/docker <- {WORK}/etc/vdev/docker ro",
    ]
    assert [node.path for node in plan.devices] == ["/dev/kfd", "/dev/mkfd", "/dev/dri/card1", "/dev/dri/renderD129"]
    (file,) = plan.files
    assert file.path == f"{WORK}/etc/vdev/docker/vdev0.conf"
    assert file.text == (
        f"PciBusId: {BDF}\ncu_mask: 0x00000000000fffff\ncu_mask: 0x0000000000000000\ncu_count: 20\nmem: 16384 MiB\n"
        "device_id: 0\nvdev_id: 0\npipe_id: 0\nenable: 1\n"
    )


def test_metax() -> None:
    held = Sgpu("uid-1", "main", BDF, 3, 25, 16384)
    plan = metax.plan(ask("metax", sliced(25, mib=16384), card(physical_indexes=(1, 129))), held)
    assert plan.env == {"METAX_SGPUS": f"sgpu={BDF}#3;compute=25;vram=16384;alias=gpustack-uid-1"}
    assert [node.path for node in plan.devices] == ["/dev/mxcd", "/dev/dri/renderD129"]


def test_metax_whole_has_no_variable() -> None:
    held = Sgpu("uid-1", "main", BDF, metax.WHOLE, 100, 65536)
    assert metax.plan(ask("metax", sliced(100, percent=100), card(physical_indexes=(1, 129))), held).env == {}


@pytest.mark.parametrize(
    ("percent", "mib", "memory", "want"),
    [
        (50, 0, 32768, 16384),
        (50, 0, 81559, 40779),
        (0, 8192, 98304, 8192),
        (0, 99999, 32768, 32768),
        (120, 0, 100, 100),
    ],
)
def test_memory_limit(percent: int, mib: int, memory: int, want: int) -> None:
    request = ask("nvidia", sliced(percent=percent, mib=mib), card(memory_mib=memory))
    assert memory_mib(request, request.cards[0], SITE) == want


def test_no_memory_figure_is_refused() -> None:
    request = ask("thead", sliced(10), card(memory_mib=1))
    with pytest.raises(InjectionRefused, match="derive sliced memory limit") as refused:
        memory_mib(request, request.cards[0], SITE)
    assert "alibabacloud.com/ppu.sliced.memory-percentage or alibabacloud.com/ppu.sliced.memory-mib" in str(
        refused.value
    )


def test_b036_a_card_without_memory_of_its_own_cannot_be_sliced() -> None:
    request = ask("nvidia", sliced(10, mib=4096), card(memory_mib=0))
    with pytest.raises(InjectionRefused, match="no per-card memory"):
        nvidia.plan(request, SITE, ENVVAR)


@pytest.mark.parametrize(
    ("cores", "percent", "mib", "overcommits", "want"),
    [
        (25, 50, 0, True, 25),
        (0, 50, 0, True, 100),
        (0, 50, 0, False, 50),
        (0, 0, 8192, False, 13),
        (0, 0, 0, False, 100),
        (0, 0, 999999, False, 100),
    ],
    ids=["said", "overcommitted", "memory-share", "memory-share-rounded-up", "nothing-said", "capped"],
)
def test_default_compute_share(cores: int, percent: int, mib: int, overcommits: bool, want: int) -> None:
    one = card(memory_mib=65536, overcommits_cores=overcommits)
    assert cores_percentage(sliced(cores, percent, mib), one) == want


def test_the_containers_own_log_level_stays() -> None:
    declared = sliced(percent=50, declared=frozenset({"LIBCUDA_LOG_LEVEL"}))
    env = nvidia.plan(ask("nvidia", declared, card(**V80)), SITE, ENVVAR).env
    assert "LIBCUDA_LOG_LEVEL" not in env
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize("changes", [{"pod_uid": "../x"}, {"container": "a/b"}, {"pod_uid": ""}, {"container": ".."}])
def test_names_that_leave_the_folder_are_refused(changes: dict[str, str]) -> None:
    with pytest.raises(InjectionRefused, match="cannot be part of a path"):
        SITE.work(claim(**changes))


def test_no_card_for_a_slice() -> None:
    with pytest.raises(InjectionRefused, match='no allocated accelerator found for sliced container "main"'):
        iluvatar.plan(ask("iluvatar", sliced(percent=5)), SITE)
