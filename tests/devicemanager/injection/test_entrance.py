"""The entrance: from the plugin's grants to its answers, and what stands on disk afterwards."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from api.ledger.modes import Mode
from api.ledger.placements import Placement
from api.pod_requests import Claim, claims_of
from devicemanager.answers import Bus
from devicemanager.detectors.recorded import RecordedDetector
from devicemanager.injection.cu_mask import CuLayout
from devicemanager.injection.entrance import Drivers, HostInjector
from devicemanager.injection.host import Host, HostFault, NodeFacts
from devicemanager.injection.realize import check, write
from devicemanager.injection.recorded_host import RecordedHost, recorded_drivers
from devicemanager.injection.request import DeviceNode, HostFile, InjectionRefused, Mount, Plan
from devicemanager.injection.simulated import SimulatedShareFlags
from devicemanager.injection.site import Site
from devicemanager.inventory import take_inventory
from devicemanager.kubelet.grant import Grant, GrantedCard, Injection
from devicemanager.kubelet.grant import Partition as Granted
from devicemanager.partitions.markers import Markers
from hack.fleet import RECORDED
from nodefeature.manufacturers import build_manufacturers
from tests.builders.injection import BDF, TreeHost, partition, put

REGISTRY = build_manufacturers({})
SITE = Site()
PODS = "/var/lib/gpustack/operator/pods"


def pod(limits: dict[str, str], uid: str = "uid-1", **container: Any) -> dict[str, Any]:
    """Return a Pod with container `main`."""
    main = {"name": "main", "resources": {"limits": limits}} | container
    return {"metadata": {"name": "job", "namespace": "team", "uid": uid}, "spec": {"containers": [main]}}


def granted(manufacturer: str, *, index: int = 0, units: int = 0, **group: Any) -> GrantedCard:
    """Return a granted card."""
    raw = {
        "id": f"CARD-{index}",
        "index": index,
        "physicalIndexes": [index, 128 + index],
        "topology": {"pciBusId": BDF},
        "status": {"logicalSliced": {"count": 4}},
    }
    fields = {"id": "model", "manufacturer": manufacturer, "memory": 65536, "cores": 80, "runtimeVersion": "12.4"}
    return GrantedCard(fields | group, raw, units)


def grant(manufacturer: str, mode: Mode, wanted: dict[str, Any], *cards: GrantedCard, **more: Any) -> Grant:
    """Return a grant to container `main` of a Pod."""
    claims = claims_of(wanted["spec"], REGISTRY)
    container = wanted["spec"]["containers"][0]
    return Grant(manufacturer, mode, wanted, container, cards, claim=claims[0] if claims else None, **more)


def inject(injector: HostInjector, asked: Grant) -> Injection:
    """Return the answer."""
    return asyncio.run(injector.inject(asked))


def quarter(base: str, uid: str = "uid-1") -> dict[str, Any]:
    """Return a Pod that wants a quarter of a card."""
    return pod(
        {f"{base}.sliced": "1", f"{base}.sliced.cores-percentage": "25", f"{base}.sliced.memory-percentage": "25"}, uid
    )


def test_whole_cards_by_ascending_index(tmp_path: Path) -> None:
    asked = grant(
        "nvidia", Mode.EXCLUSIVE, pod({"nvidia.com/gpu": "2"}), granted("nvidia", index=3), granted("nvidia", index=1)
    )
    answer = inject(HostInjector(SITE, TreeHost(tmp_path), Drivers()), asked)
    assert answer == Injection(envs={"NVIDIA_VISIBLE_DEVICES": "CARD-1,CARD-3"})


def test_optional_nodes_that_are_absent_are_left_out(tmp_path: Path) -> None:
    nodes = {"/dev/cambricon_dev0": 0, "/dev/commu0": 0, "/dev/cambricon_ctl": 0}
    asked = grant("cambricon", Mode.EXCLUSIVE, pod({"cambricon.com/mlu": "1"}), granted("cambricon"))
    answer = inject(HostInjector(SITE, TreeHost(tmp_path, nodes), Drivers()), asked)
    assert [node.host_path for node in answer.devices] == ["/dev/cambricon_dev0", "/dev/commu0", "/dev/cambricon_ctl"]


def test_a_required_node_that_is_absent_refuses(tmp_path: Path) -> None:
    asked = grant("cambricon", Mode.EXCLUSIVE, pod({"cambricon.com/mlu": "1"}), granted("cambricon"))
    with pytest.raises(InjectionRefused, match="/dev/cambricon_dev0 is not on this node"):
        inject(HostInjector(SITE, TreeHost(tmp_path), Drivers()), asked)


@pytest.mark.parametrize(
    ("facts", "said"),
    [(NodeFacts(False, None), "is no character device"), (NodeFacts(True, 15), "carries minor 15, want 0")],
)
def test_thead_nodes_are_proven(tmp_path: Path, facts: NodeFacts, said: str) -> None:
    class Odd(TreeHost):
        def node(self, path: str) -> NodeFacts | None:
            return facts if path == "/dev/alixpu_ppu0" else NodeFacts(True, 1)

    asked = grant("thead", Mode.EXCLUSIVE, pod({"alibabacloud.com/ppu": "1"}), granted("thead"))
    with pytest.raises(InjectionRefused, match=said):
        inject(HostInjector(SITE, Odd(tmp_path), Drivers()), asked)


def test_a_missing_slicing_library_refuses_and_names_preflight(tmp_path: Path) -> None:
    asked = grant("nvidia", Mode.SLICED, quarter("nvidia.com/gpu"), granted("nvidia"))
    put(tmp_path, "/dev/shm/x", "")
    with pytest.raises(InjectionRefused, match=r"ld\.so\.preload is not on this node.*preflight"):
        inject(HostInjector(SITE, TreeHost(tmp_path), Drivers()), asked)
    assert not (tmp_path / "var").exists()


def test_hygon_slices_fill_a_card_and_are_kept(tmp_path: Path) -> None:
    injector = HostInjector(SITE, RecordedHost(tmp_path), Drivers())
    asks = [grant("hygon", Mode.SLICED, quarter("hygon.com/dcu", f"uid-{n}"), granted("hygon")) for n in range(5)]
    for asked in asks[:4]:
        inject(injector, asked)
    files = sorted((tmp_path / PODS.lstrip("/")).glob("*/c-main/etc/vdev/docker/vdev0.conf"))
    before = [file.read_text() for file in files]
    assert len({text.split("vdev_id")[1] for text in before}) == 4
    inject(injector, asks[0])
    assert [file.read_text() for file in files] == before
    with pytest.raises(InjectionRefused, match="insufficient free compute units"):
        inject(injector, asks[4])


def test_hygon_stops_at_a_file_it_cannot_understand(tmp_path: Path) -> None:
    put(tmp_path, f"{PODS}/uid-9/c-x/etc/vdev/docker/vdev0.conf", "PciBusId: x\n")
    asked = grant("hygon", Mode.SLICED, quarter("hygon.com/dcu"), granted("hygon"))
    with pytest.raises(InjectionRefused, match=r"uid-9/c-x/etc/vdev/docker/vdev0\.conf: exactly two cu_mask"):
        inject(HostInjector(SITE, RecordedHost(tmp_path), Drivers()), asked)


def test_working_folders_are_open_whatever_the_mask(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        asked = grant("thead", Mode.SLICED, quarter("alibabacloud.com/ppu"), granted("thead"))
        inject(HostInjector(SITE, RecordedHost(tmp_path), Drivers()), asked)
    finally:
        os.umask(mask)
    folder = tmp_path / f"{PODS}/uid-1/c-main/run/vppu".lstrip("/")
    assert folder.stat().st_mode & 0o777 == 0o777
    assert folder.parent.stat().st_mode & 0o777 == 0o777


def test_ascend_shares_before_it_gives(tmp_path: Path) -> None:
    flags = SimulatedShareFlags()
    injector = HostInjector(SITE, RecordedHost(tmp_path), Drivers(share_flag=flags))
    inject(injector, grant("ascend", Mode.EXCLUSIVE, pod({"huawei.com/npu": "1"}), granted("ascend")))
    assert flags.calls == []
    for mode in (Mode.SHARED, Mode.VISIBILITY):
        inject(injector, grant("ascend", mode, pod({}), granted("ascend")))
    assert flags.shared == {"CARD-0"}


def test_ascend_without_a_driver_shares_nothing(tmp_path: Path) -> None:
    with pytest.raises(InjectionRefused, match="without its driver library"):
        inject(
            HostInjector(SITE, RecordedHost(tmp_path), Drivers()),
            grant("ascend", Mode.SHARED, pod({}), granted("ascend")),
        )


def test_amd_window() -> None:
    layouts = {"CARD-0": CuLayout(gfx="gfx1101", compute_units=60, shader_engines=3)}
    injector = HostInjector(SITE, Host(), Drivers(layouts=layouts))
    one = granted("amd")
    claim = _claim("amd.com/gpu")
    assert injector.window(claim, one.group, one.card, [Placement(0, 12)]) == Placement(12, 12)
    with pytest.raises(InjectionRefused, match="layout of its compute units is not known"):
        injector.window(claim, one.group, {"id": "CARD-1"}, [])
    assert injector.window(_claim("nvidia.com/gpu"), one.group, one.card, []) is None


def test_partition_comes_from_the_marker(tmp_path: Path) -> None:
    host = TreeHost(tmp_path)
    Markers(host, PODS, "nvidia").write("uid-1", "main", "CARD-0", compute_slices=3, partition=partition("MIG-a"))
    wanted = pod({"nvidia.com/gpu.partitioned": "1", "nvidia.com/gpu.partitioned.mig-3g.40gb": "1"})
    one = granted("nvidia")
    bound = GrantedCard(one.group, one.card, 0, "3g.40gb", Granted(Placement(0, 4), "MIG-a"))
    injector = HostInjector(SITE, host, Drivers())
    assert inject(injector, grant("nvidia", Mode.PARTITIONED, wanted, bound)).envs == {
        "NVIDIA_VISIBLE_DEVICES": "MIG-a"
    }
    other = GrantedCard(one.group, one.card, 0, "3g.40gb", Granted(Placement(0, 4), "MIG-b"))
    with pytest.raises(InjectionRefused, match="MIG-b was bound, but MIG-a is recorded"):
        inject(injector, grant("nvidia", Mode.PARTITIONED, wanted, other))
    dead = HostInjector(SITE, host, Drivers(), proves=lambda *_: False)
    with pytest.raises(InjectionRefused, match="partition MIG-a is not alive"):
        inject(dead, grant("nvidia", Mode.PARTITIONED, wanted, bound))


def test_a_watcher_sees_its_owners_partition(tmp_path: Path) -> None:
    host = TreeHost(tmp_path)
    Markers(host, PODS, "nvidia").write("uid-1", "main", "CARD-0", compute_slices=3, partition=partition("MIG-a"))
    wanted = pod({"nvidia.com/gpu.partitioned": "1", "nvidia.com/gpu.partitioned.mig-3g.40gb": "1"})
    owner = wanted["spec"]["containers"][0]
    asked = Grant("nvidia", Mode.VISIBILITY, wanted, {"name": "ssh"}, (granted("nvidia"),), owner=owner)
    assert inject(HostInjector(SITE, host, Drivers()), asked).envs == {"NVIDIA_VISIBLE_DEVICES": "MIG-a"}


def test_a_partitioned_container_without_a_marker_is_refused(tmp_path: Path) -> None:
    asked = grant("nvidia", Mode.PARTITIONED, pod({"nvidia.com/gpu.partitioned": "1"}), granted("nvidia"))
    with pytest.raises(InjectionRefused, match="has no partition recorded for container 'main'"):
        inject(HostInjector(SITE, TreeHost(tmp_path), Drivers()), asked)


def test_an_unknown_manufacturer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InjectionRefused, match="acme"):
        inject(
            HostInjector(SITE, TreeHost(tmp_path), Drivers()), grant("acme", Mode.EXCLUSIVE, pod({}), granted("acme"))
        )


def test_nothing_is_written_before_everything_is_checked(tmp_path: Path) -> None:
    plan = Plan(devices=(DeviceNode("/dev/x", required=True),), files=(HostFile("/a/b", "text"),), folders=("/a",))
    with pytest.raises(InjectionRefused):
        check(plan, TreeHost(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_takes_back_the_files_before_it(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    plan = Plan(files=(HostFile("/a/first", "1"), HostFile("/taken/second", "2")))
    with pytest.raises(HostFault, match="/taken"):
        write(plan, TreeHost(tmp_path))
    assert not (tmp_path / "a/first").exists()


def test_a_partial_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = TreeHost(tmp_path)
    host.write(HostFile("/a/conf", "old"))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HostFault, match="/a/conf: cannot be written: No space left on device; free space"):
        host.write(HostFile("/a/conf", "new"))
    assert [entry.name for entry in (tmp_path / "a").iterdir()] == ["conf"]
    assert host.read("/a/conf") == "old"


def test_a_read_only_path_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_args: object, **_more: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(HostFault, match="Read-only file system; mount that path writable"):
        TreeHost(tmp_path).write(HostFile("/a/conf", "new"))


def test_absent_and_unreadable_are_two_answers(tmp_path: Path) -> None:
    host = TreeHost(tmp_path)
    (tmp_path / "folder").mkdir()
    assert host.read("/nothing") is None
    with pytest.raises(HostFault):
        host.read("/folder")
    assert host.read_or_none("/folder") is None
    assert host.names("/nothing") == []


def test_an_optional_mount_that_is_absent_is_left_out(tmp_path: Path) -> None:
    plan = Plan(mounts=(Mount("/x", "/nowhere", optional=True),))
    assert check(plan, TreeHost(tmp_path)).mounts == ()


def _claim(base: str) -> Claim:
    return claims_of(quarter(base)["spec"], REGISTRY)[0]


@pytest.mark.parametrize(
    ("machine", "base"),
    [
        ("nvidia-dgx-h100", "nvidia.com/gpu"),
        ("ascend-910b4-a2", "huawei.com/npu"),
        ("hygon-k100ai", "hygon.com/dcu"),
        ("iluvatar-bi-v150", "iluvatar.com/gpu"),
        ("metax-c550", "metax-tech.com/gpu"),
        ("cambricon-mlu590-m9", "cambricon.com/mlu"),
        ("mthreads-s5000", "mthreads.com/gpu"),
        ("thead-ppu-16", "alibabacloud.com/ppu"),
        ("amd-mi308x", "amd.com/gpu"),
    ],
)
def test_every_recorded_manufacturer_gives_cards_whole_shared_and_sliced(
    tmp_path: Path, machine: str, base: str
) -> None:
    cards = RecordedDetector.load(RECORDED / f"{machine}.yaml").cards
    maker = cards[0].manufacturer
    group = take_inventory(maker, cards, Bus()).groups[0]
    card = group["accelerators"][-1]
    injector = HostInjector(SITE, RecordedHost(tmp_path, cards), recorded_drivers(cards))
    for mode, wanted in ((Mode.EXCLUSIVE, pod({base: "1"})), (Mode.SHARED, pod({f"{base}.shared": "1"}))):
        assert inject(injector, grant(maker, mode, wanted, GrantedCard(group, card, 0))) != Injection()
    asked = quarter(base)
    window = injector.window(claims_of(asked["spec"], REGISTRY)[0], group, card, [])
    sliced = GrantedCard(group, card, 400_000, windows=(window,) if window else ())
    first = inject(injector, grant(maker, Mode.SLICED, asked, sliced))
    assert inject(injector, grant(maker, Mode.SLICED, asked, sliced)) == first


def test_a_recorded_hygon_partition(tmp_path: Path) -> None:
    cards = RecordedDetector.load(RECORDED / "hygon-bw-mig.yaml").cards
    host = RecordedHost(tmp_path, cards)
    group = take_inventory("hygon", cards, Bus()).groups[0]
    card = group["accelerators"][0]
    Markers(host, PODS, "hygon").write("uid-1", "main", card["id"], compute_slices=1, partition=partition("MIG-a"))
    wanted = pod({"hygon.com/dcu.partitioned": "1", "hygon.com/dcu.partitioned.mig-2g.15gb": "1"})
    answer = inject(
        HostInjector(SITE, host, Drivers()), grant("hygon", Mode.PARTITIONED, wanted, GrantedCard(group, card, 0))
    )
    assert answer.envs == {"DMI_MIG_VISIBLE_DEVICE": "MIG-a"}
