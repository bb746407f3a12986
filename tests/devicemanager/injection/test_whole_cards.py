"""Exclusive, shared and visible cards: every row of spec 06 §8.1."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from devicemanager.injection import amd, ascend, cambricon, hygon, iluvatar, metax, mthreads, nvidia, thead
from devicemanager.injection.cdi import ENVVAR
from devicemanager.injection.request import InjectionRefused, Plan, Request
from devicemanager.injection.site import Site
from nodefeature.resource_names import Family
from tests.builders.injection import ask, card, claim

SITE = Site()
PLANS: dict[str, Callable[[Request], Plan]] = {
    "amd": lambda request: amd.plan(request, SITE),
    "ascend": lambda request: ascend.plan(request, SITE),
    "cambricon": cambricon.plan,
    "hygon": lambda request: hygon.plan(request, SITE),
    "iluvatar": lambda request: iluvatar.plan(request, SITE),
    "metax": metax.plan,
    "mthreads": lambda request: mthreads.plan(request, SITE),
    "nvidia": lambda request: nvidia.plan(request, SITE, ENVVAR),
    "thead": lambda request: thead.plan(request, SITE),
}
WHOLE = (Family.EXCLUSIVE, Family.SHARED, Family.VISIBILITY)
CAMBRICON = ["cambr-msgq:", "cambr-rpc:", "cmsg_ctrl", "commu", "cambricon_ipcm"]


def nodes(plan: Plan) -> list[str]:
    """Return device nodes as text: path, permissions, `!` when required."""
    return [f"{node.path} {node.permissions}{'!' if node.required else ''}" for node in plan.devices]


@pytest.mark.parametrize("family", WHOLE)
@pytest.mark.parametrize(
    ("manufacturer", "variable", "value"),
    [
        ("nvidia", "NVIDIA_VISIBLE_DEVICES", "GPU-0,GPU-1"),
        ("mthreads", "MTHREADS_VISIBLE_DEVICES", "GPU-0,GPU-1"),
        ("iluvatar", "IX_VISIBLE_DEVICES", "GPU-0,GPU-1"),
        ("ascend", "ASCEND_VISIBLE_DEVICES", "4,7"),
    ],
)
def test_variable_alone(manufacturer: str, variable: str, value: str, family: Family) -> None:
    cards = (card(1, physical_indexes=(7, 3, 1)), card(0, physical_indexes=(4, 2, 0)))
    plan = PLANS[manufacturer](ask(manufacturer, claim(family), *cards))
    assert plan == Plan(env={variable: value})


def test_ascend_950_goes_by_the_device_index() -> None:
    one = card(family="950", physical_indexes=(4, 9, 0))
    assert PLANS["ascend"](ask("ascend", claim(), one)).env == {"ASCEND_VISIBLE_DEVICES": "9"}


@pytest.mark.parametrize(
    ("manufacturer", "changes", "said"),
    [
        ("ascend", {"family": "950", "physical_indexes": (4,)}, "carries no dcmi device index"),
        ("ascend", {}, "carries no dcmi physical index"),
        ("cambricon", {}, "carries no cnDev device index"),
        ("amd", {"id": "", "physical_indexes": (0, 128)}, "without an id"),
        ("amd", {"physical_indexes": (0,)}, "carries no DRM render number"),
        ("thead", {}, "no recorded minor number to prove its device node addresses it"),
    ],
)
def test_what_is_not_known_is_refused(manufacturer: str, changes: dict[str, object], said: str) -> None:
    with pytest.raises(InjectionRefused, match=said):
        PLANS[manufacturer](ask(manufacturer, claim(), card(**changes)))


@pytest.mark.parametrize("manufacturer", sorted(set(PLANS) - {"metax", "hygon"}))
def test_no_card_is_refused(manufacturer: str) -> None:
    with pytest.raises(InjectionRefused, match='no allocated accelerator found for exclusive container "main"'):
        PLANS[manufacturer](ask(manufacturer, claim()))


@pytest.mark.parametrize("family", WHOLE)
def test_cambricon(family: Family) -> None:
    plan = PLANS["cambricon"](
        ask("cambricon", claim(family), card(1, physical_indexes=(7,)), card(physical_indexes=(3,)))
    )
    assert plan.env == {"CAMBRICON_VISIBLE_DEVICES": "3,7"}
    per_card = [[f"/dev/cambricon_dev{n} rw!", *(f"/dev/{name}{n} rw" for name in CAMBRICON)] for n in (3, 7)]
    assert nodes(plan) == [*per_card[0], *per_card[1], "/dev/cambricon_ctl rw", "/dev/cambricon_gdr rw"]


@pytest.mark.parametrize("family", WHOLE)
def test_amd(family: Family) -> None:
    plan = PLANS["amd"](ask("amd", claim(family), card(physical_indexes=(1, 129))))
    assert plan.env == {"AMD_VISIBLE_DEVICES": "none"}
    assert nodes(plan) == ["/dev/kfd rw!", "/dev/dri/card1 rw!", "/dev/dri/renderD129 rw!"]


@pytest.mark.parametrize("family", WHOLE)
@pytest.mark.parametrize(
    ("indexes", "drm"),
    [((1, 129), ["/dev/dri/card1 rw", "/dev/dri/renderD129 rw"]), ((1,), ["/dev/dri/card1 rw"]), ((), [])],
)
def test_hygon(indexes: tuple[int, ...], drm: list[str], family: Family) -> None:
    plan = PLANS["hygon"](ask("hygon", claim(family), card(physical_indexes=indexes)))
    assert plan.env == {}
    assert nodes(plan) == ["/dev/kfd rwm", "/dev/mkfd rwm", *drm]
    assert [(m.container_path, m.host_path, m.read_only) for m in plan.mounts] == [("/opt/hyhal", "/opt/hyhal", True)]


@pytest.mark.parametrize("family", WHOLE)
def test_metax(family: Family) -> None:
    plan = PLANS["metax"](ask("metax", claim(family), card(physical_indexes=(1, 129))))
    assert (plan.env, plan.mounts) == ({}, ())
    assert nodes(plan) == [
        f"{path} rw" for path in ("/dev/mxcd", "/dev/mxnd", "/dev/mxgd", "/dev/dri/card1", "/dev/dri/renderD129")
    ]


@pytest.mark.parametrize("family", WHOLE)
def test_thead(family: Family) -> None:
    plan = PLANS["thead"](ask("thead", claim(family), card(2, physical_indexes=(16,))))
    assert (plan.env, plan.mounts) == ({}, ())
    assert nodes(plan) == ["/dev/alixpu rw!", "/dev/alixpu_ctl rw!", "/dev/alixpu_ppu2 rw!"]
    assert [(node.character, node.minor) for node in plan.devices] == [(True, None), (True, None), (True, 16)]
