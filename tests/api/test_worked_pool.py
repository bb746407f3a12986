"""The worked node of spec 02 §3.8, carried through: Pods, ledger, views, status, table cells (§4.4, §4.7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from api.devices import cards_of, spec_groups
from api.ledger.capability import group_detail
from api.ledger.evidence import charge_of
from api.ledger.findings import ledger_problems
from api.ledger.modes import CARD_UNITS, SHARE_UNITS, Mode
from api.ledger.placements import Placement
from api.ledger.rebuild import rebuild
from api.ledger.transport import ALLOCATED_ANNOTATION, Record, dump
from api.ledger.views import contribution, fold, sliced_detail, status_of
from api.summary import instance_type_summary
from nodefeature.manufacturers import build_manufacturers

OBJECTS = list(yaml.safe_load_all((Path(__file__).parents[1] / "rows/02-objects.yaml").read_text("utf-8")))
NODE, ASCEND, TYPE = OBJECTS[0], OBJECTS[1], OBJECTS[2]
GROUP, POOL = "h100-80gb-hbm3", "nvidia-h100-80gb-hbm3"
GPU = "nvidia.com/gpu"


def pod(name: str, limits: dict[str, str], card: int, mode: Mode, units: int, **partition: Any) -> Any:
    record = Record("main", GROUP, "nvidia", f"GPU-0{card}", card, mode, units, **partition)
    return {
        "metadata": {"name": name, "namespace": "team-a", "annotations": {ALLOCATED_ANNOTATION: dump([record], {})}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }


def sliced(percent: int) -> dict[str, str]:
    return {f"{GPU}.sliced": "1", f"{GPU}.sliced.units": str(percent * 16_000)}


PODS = [
    pod("exclusive", {GPU: "1"}, 0, Mode.EXCLUSIVE, CARD_UNITS),
    *[pod(f"share-{n}", {f"{GPU}.shared": "1"}, 1, Mode.SHARED, SHARE_UNITS) for n in range(3)],
    *[pod(f"slice-{p}", sliced(p), 2, Mode.SLICED, p * 16_000) for p in (50, 20)],
    pod(
        "partition",
        {f"{GPU}.partitioned": "1", f"{GPU}.partitioned.mig-3g.40gb": "1", f"{GPU}.partitioned.units": "800000"},
        3,
        Mode.PARTITIONED,
        800_000,
        profile="3g.40gb",
        placements=(Placement(0, 4),),
    ),
]


def test_pods_rebuild_the_worked_ledger() -> None:
    groups, registry = spec_groups(NODE), build_manufacturers({})
    charged = [charge_of(one, spec_groups=groups, registry=registry) for one in PODS]
    rebuilt = rebuild(groups, [charge for charge, _ in charged])
    assert rebuilt.status == NODE["status"]
    assert [*rebuilt.problems, *(found for _, problems in charged for found in problems)] == []


def test_the_worked_groups_have_their_aggregates() -> None:
    for node in (NODE, ASCEND):
        for group in spec_groups(node):
            assert group_detail(cards_of(group)) == group["acceleratorSlicedDetail"]
        assert ledger_problems(node) == []


def test_the_worked_ledger_gives_the_worked_status() -> None:
    views = fold([contribution(NODE, POOL)])
    for name, view in status_of(views).items():
        assert view == TYPE["status"][name], name
    assert sliced_detail(views) == TYPE["status"]["detail"]["slicedDetail"]
    cells = instance_type_summary(TYPE["spec"], {**TYPE["status"], **status_of(views)})  # type: ignore[typeddict-item]  # raw
    assert cells["accelerator"] == "4/4 5/47 100/430 1/3"
    assert views.runtime_versions == ("12.8",)


def test_the_sick_ascend_card_is_not_promised() -> None:
    views = fold([contribution(ASCEND, "ascend-910b3")])
    assert (views.exclusive.remaining, views.exclusive.capacity) == (0, 2)
    assert (views.sliced.once, views.sliced.remaining, views.sliced.capacity) == (75, 75, 200)
