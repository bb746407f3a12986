"""Labels come, go, and vanish for a while, as case B003 needs it."""

from __future__ import annotations

from typing import Any

import pytest

from hack.devcluster.standins.nfd_master import (
    HOLD,
    OWNED_ANNOTATIONS,
    OWNED_LABELS,
    Merged,
    hold_seconds,
    merge,
    node_patch,
)
from kube.reconciler import Object
from nodefeature.fields import annotations_of, labels_of
from nodefeature.kinds import NODE, NODE_FEATURE, NODE_FEATURE_RULE
from nodefeature.labels import NFD_NODE_NAME
from tests.builders.standins import Stage


def feature(name: str, node: str, **labels: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": "gpustack-system", "labels": {NFD_NODE_NAME: node}},
        "spec": {"labels": {f"example.com/{key}": value for key, value in labels.items()}},
    }


def rule(**labels: str) -> Object:
    return {"metadata": {"name": "rule"}, "spec": {"rules": [{"name": "always", "labels": labels}]}}


def test_merge() -> None:
    objects = [feature("a", "n", x="1", y="1"), feature("b", "n", y="2")]
    said = merge(objects, [rule(**{"example.com/x": "rule"})])
    assert said == Merged({"example.com/x": "rule", "example.com/y": "2"}, {})


def node(labels: dict[str, str], owned: str = "") -> Object:
    return {"metadata": {"name": "n", "labels": labels, "annotations": {OWNED_LABELS: owned} if owned else {}}}


NFD = "feature.node.kubernetes.io/pci-10de.present"
PATCHES: dict[str, tuple[Object, dict[str, str], Object]] = {
    "nothing to say": (node({}), {}, {}),
    "added, and remembered": (
        node({"a/b": "admin"}),
        {"x/y": "1"},
        {"labels": {"x/y": "1"}, "annotations": {OWNED_LABELS: "x/y"}},
    ),
    "as it is": (node({"x/y": "1"}, "x/y"), {"x/y": "1"}, {}),
    "changed": (node({"x/y": "1"}, "x/y"), {"x/y": "2"}, {"labels": {"x/y": "2"}}),
    "removed": (node({"x/y": "1"}, "x/y"), {}, {"labels": {"x/y": None}, "annotations": {OWNED_LABELS: None}}),
    "removed by somebody else already": (node({}, "x/y"), {}, {"annotations": {OWNED_LABELS: None}}),
    "an administrator's label stays": (node({"a/b": "1"}, ""), {}, {}),
    "the default prefix is not remembered": (
        node({}),
        {NFD: "true"},
        {"labels": {NFD: "true"}, "annotations": {OWNED_LABELS: "pci-10de.present"}},
    ),
    "the default prefix is removed": (
        node({NFD: "true"}, "pci-10de.present"),
        {},
        {"labels": {NFD: None}, "annotations": {OWNED_LABELS: None}},
    ),
}


@pytest.mark.parametrize("row", PATCHES.values(), ids=PATCHES.keys())
def test_node_patch(row: tuple[Object, dict[str, str], Object]) -> None:
    given, wanted, metadata = row
    assert node_patch(given, Merged(wanted, {})) == ({"metadata": metadata} if metadata else {})


def test_annotations_are_owned_too() -> None:
    patch = node_patch(node({}), Merged({}, {"x/y": "1"}))
    assert patch == {"metadata": {"annotations": {"x/y": "1", OWNED_ANNOTATIONS: "x/y"}}}


@pytest.mark.parametrize(("text", "seconds"), [("45s", 45), ("45", 45), ("", 0), ("-1", 0), ("1h", 0), ("soon", 0)])
def test_hold_seconds(text: str, seconds: float) -> None:
    assert hold_seconds(text) == seconds


def stage(*nodes: str) -> Stage:
    made = Stage("standin-nfd-master")
    for name in nodes:
        made.api.add(NODE, {"metadata": {"name": name, "labels": {"admin": "yes"}}})
        made.api.add(NODE_FEATURE, feature(f"{name}-worker", name, x="1"))
    made.run()
    return made


def shown(made: Stage, name: str) -> dict[str, str]:
    return dict(labels_of(made.api.get(NODE, name) or {}))


class TestNode:
    def test_labels_follow_the_objects(self) -> None:
        made = stage("n")
        assert shown(made, "n") == {"admin": "yes", "example.com/x": "1"}
        assert made.run(60) == [], "a settled cluster is left alone"
        made.api.add(NODE_FEATURE, feature("n-worker", "n", y="2"))
        made.run()
        assert shown(made, "n") == {"admin": "yes", "example.com/y": "2"}
        made.api.remove(NODE_FEATURE, "n-worker", "gpustack-system")
        made.run()
        assert shown(made, "n") == {"admin": "yes"}

    def test_a_rule_reaches_every_node(self) -> None:
        made = stage("a", "b")
        made.api.add(NODE_FEATURE_RULE, rule(**{"example.com/r": "1"}))
        made.run()
        assert [shown(made, n)["example.com/r"] for n in ("a", "b")] == ["1", "1"]

    def test_a_bad_rule_is_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        made = stage("a", "b")
        made.api.add(NODE_FEATURE_RULE, {"metadata": {"name": "r"}, "spec": {"rules": [{"name": "r", "matchAny": []}]}})
        made.run()
        assert [record.message for record in caplog.records] == ["rule left out"]
        assert shown(made, "a")["example.com/x"] == "1"

    def test_an_object_that_names_another_node_moves(self) -> None:
        made = stage("a", "b")
        made.api.add(NODE_FEATURE, feature("a-worker", "b", x="1", z="3"))
        made.run()
        assert shown(made, "a") == {"admin": "yes"}
        assert shown(made, "b")["example.com/z"] == "3"


class TestHold:
    """B003: labels vanish for 45 s, for 210 s, on half of the nodes."""

    def held(self, made: Stage, name: str, seconds: str) -> None:
        made.api.edit(NODE, name, {"metadata": {"annotations": {HOLD: seconds}}})

    @pytest.mark.parametrize("seconds", [45, 210])
    def test_labels_go_at_once_and_return_by_themselves(self, seconds: int) -> None:
        made = stage("n")
        self.held(made, "n", f"{seconds}s")
        made.run(seconds - 3)
        assert shown(made, "n") == {"admin": "yes"}
        made.run(5)
        assert shown(made, "n") == {"admin": "yes", "example.com/x": "1"}
        assert HOLD not in annotations_of(made.api.get(NODE, "n") or {})
        assert made.run(300) == []

    def test_half_of_the_nodes(self) -> None:
        made = stage("a", "b")
        self.held(made, "a", "45s")
        made.run()
        assert shown(made, "a") == {"admin": "yes"}
        assert shown(made, "b")["example.com/x"] == "1"

    def test_what_the_objects_say_meanwhile_waits(self) -> None:
        made = stage("n")
        self.held(made, "n", "45s")
        made.run()
        made.api.add(NODE_FEATURE, feature("n-worker", "n", x="2"))
        made.run(10)
        assert shown(made, "n") == {"admin": "yes"}
        made.run(60)
        assert shown(made, "n")["example.com/x"] == "2"

    def test_taking_the_annotation_away_ends_it(self) -> None:
        made = stage("n")
        self.held(made, "n", "3600s")
        made.run()
        made.api.edit(NODE, "n", {"metadata": {"annotations": {HOLD: None}}})
        made.run()
        assert shown(made, "n")["example.com/x"] == "1"

    def test_no_time_holds_nothing(self) -> None:
        made = stage("n")
        self.held(made, "n", "soon")
        made.run()
        assert shown(made, "n")["example.com/x"] == "1"


@pytest.mark.parametrize("broken", [{"metadata": None}, {"metadata": {"name": "n", "labels": None}}, {"spec": None}])
def test_b019_nulls(broken: Any) -> None:
    assert merge([broken], [broken]) == Merged({}, {})
    assert node_patch(broken, Merged({}, {})) == {}
