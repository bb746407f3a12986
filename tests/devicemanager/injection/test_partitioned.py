"""Partitions inside containers: the table of spec 06 §10, and visibility of an owner's partitions (§7.4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from devicemanager.injection import hygon, nvidia, thead
from devicemanager.injection.cdi import Channel
from devicemanager.injection.request import ContainerClaim, InjectionRefused
from devicemanager.injection.site import Site
from devicemanager.injection.surveys import capability_minors, mig_numbers
from nodefeature.resource_names import Family
from tests.builders.injection import BDF, TreeHost, ask, card, claim, partition, put

SITE = Site()
CLAIMS = [claim(Family.PARTITIONED), claim(Family.VISIBILITY, partitioned_owner=True)]
CDI = Channel(("cdi.k8s.io/gpustack-nvidia", "nvidia.com/gpu=GPU-0"))


@pytest.mark.parametrize("claimed", CLAIMS, ids=["holder", "watcher"])
def test_nvidia_always_by_variable(claimed: ContainerClaim) -> None:
    cards = (card(1, partition=partition("MIG-b")), card(0, partition=partition("MIG-a")))
    plan = nvidia.plan(ask("nvidia", claimed, *cards), SITE, CDI)
    assert plan.env == {"NVIDIA_VISIBLE_DEVICES": "MIG-a,MIG-b"}
    assert plan.annotations == {}


@pytest.mark.parametrize("claimed", CLAIMS, ids=["holder", "watcher"])
def test_a_card_is_never_shown_instead_of_its_partition(claimed: ContainerClaim) -> None:
    with pytest.raises(InjectionRefused, match="no live partition"):
        nvidia.plan(ask("nvidia", claimed, card()), SITE, CDI)


@pytest.mark.parametrize("claimed", CLAIMS, ids=["holder", "watcher"])
def test_thead(tmp_path: Path, claimed: ContainerClaim) -> None:
    folder = "/proc/driver/alixpu/capabilities/ppu2/mig/gi3"
    put(tmp_path, f"{folder}/access", "DeviceFileMinor: 21\nDeviceFileMode: 292\n")
    put(tmp_path, f"{folder}/ci0/access", "DeviceFileMinor: 22\n")
    request = ask("thead", claimed, card(2, physical_indexes=(16,), partition=partition("MIG-a", gi=3, ci=0)))
    plan = thead.plan(request, SITE, capability_minors(request, TreeHost(tmp_path)))
    assert plan.env == {}
    assert [(node.path, node.minor, node.required) for node in plan.devices] == [
        ("/dev/alixpu", None, True),
        ("/dev/alixpu_ctl", None, True),
        ("/dev/alixpu_ppu2", 16, True),
        ("/dev/alixpu-caps/alixpu-cap21", 21, True),
        ("/dev/alixpu-caps/alixpu-cap22", 22, True),
    ]


def test_thead_without_a_minor_number_is_refused(tmp_path: Path) -> None:
    request = ask("thead", CLAIMS[0], card(2, physical_indexes=(16,), partition=partition()))
    with pytest.raises(InjectionRefused, match="names no minor number"):
        thead.plan(request, SITE, capability_minors(request, TreeHost(tmp_path)))


@pytest.mark.parametrize("claimed", CLAIMS, ids=["holder", "watcher"])
def test_hygon(tmp_path: Path, claimed: ContainerClaim) -> None:
    put(tmp_path, "/etc/dmi_mig_config/dev4", f"{BDF.upper()}\n")
    put(tmp_path, "/etc/dmi_mig_config/ci/dev4gi3ci0.conf", "mig_uuid: a\n")
    request = ask("hygon", claimed, card(physical_indexes=(1, 129), partition=partition("a", gi=3, ci=0)))
    plan = hygon.plan(request, SITE, numbers=mig_numbers(request, TreeHost(tmp_path)))
    described = "/etc/dmi_mig_config/ci/dev4gi3ci0.conf"
    assert plan.env == {"DMI_MIG_VISIBLE_DEVICE": "MIG-a"}
    assert [(m.container_path, m.host_path, m.read_only, m.optional) for m in plan.mounts] == [
        ("/opt/hyhal", "/opt/hyhal", True, True),
        ("/opt/hygondriver", "/opt/dtk", True, True),
        (described, described, True, False),
    ]
    assert [node.path for node in plan.devices] == ["/dev/kfd", "/dev/mkfd", "/dev/dri/card1", "/dev/dri/renderD129"]


def test_hygon_shows_one_partition(tmp_path: Path) -> None:
    cards = [card(n, partition=partition()) for n in range(2)]
    with pytest.raises(InjectionRefused, match="one partition a container, 2 were granted"):
        hygon.plan(ask("hygon", CLAIMS[0], *cards), SITE)


def test_hygon_card_without_a_number_is_refused() -> None:
    with pytest.raises(InjectionRefused, match="has no file dev<N>"):
        hygon.plan(ask("hygon", CLAIMS[0], card(partition=partition())), SITE, numbers={})
