"""The worker's NodeFeature as a decision: spec 04 §14.1 and decision 0182."""

from __future__ import annotations

import pytest

from controllers.node_feature import rederives
from controllers.worker_feature import IDENTITY_NOTE, SEEN_NOTE, managed_word, wanted_feature, worker_feature
from kube.reconciler import Object
from nodefeature.fields import labels_of
from nodefeature.labels import CPU_ONLY, GENERAL_PREFIX, MANAGED, SYSTEM_NAMESPACE, TOPOLOGY_PROFILE
from nodefeature.topology import DEFAULT_PROFILE
from tests.builders.fake_api import merge
from tests.builders.node_labels import card_labels, cpu_annotations
from tests.builders.nodes import amd_labels, epyc_node, node

REDERIVES: dict[str, tuple[Object, bool]] = {
    "managed label set to false": ({"metadata": {"labels": {MANAGED: "false"}}}, True),
    "cpu-model labels appear": ({"metadata": {"labels": amd_labels()}}, True),
    "cpu-name annotation appears": ({"metadata": {"annotations": cpu_annotations(name="AMD EPYC 7571")}}, True),
    "cpu capacity 2 -> 4": ({"status": {"capacity": {"cpu": "4"}}}, True),
    "unrelated annotation": ({"metadata": {"annotations": {"example.com/a": "b"}}}, False),
    "unrelated label": ({"metadata": {"labels": {"example.com/a": "b"}}}, False),
    "Ready condition": ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, False),
    "deleting node": (
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {MANAGED: "false"}}},
        False,
    ),
}


@pytest.mark.parametrize(("change", "want"), REDERIVES.values(), ids=REDERIVES.keys())
def test_rederives(change: Object, want: bool) -> None:
    old = node("n", cpu="2")
    assert rederives(old, merge(old, change)) is want


def test_a_new_node_derives() -> None:
    assert rederives(None, node("n"))


WORDS: dict[str, tuple[str, str | None, str, bool, tuple[str, str]]] = {
    # name: (on the node, in the NodeFeature, last agreed on, manual, (word, agreed on))
    "new node": ("", None, "", False, ("true", "true")),
    "new node, manual": ("", None, "", True, ("", "")),
    "new node marked by an admin": ("false", None, "", False, ("false", "false")),
    "manual, marked by an admin": ("true", None, "", True, ("true", "true")),
    "settled": ("true", "true", "true", False, ("true", "true")),
    "admin says false on the node": ("false", "true", "true", False, ("false", "false")),
    "admin says false in the NodeFeature": ("true", "false", "true", False, ("false", "true")),
    "NFD copied that": ("false", "false", "true", False, ("false", "false")),
    "restored in the NodeFeature": ("false", "true", "false", False, ("true", "false")),
    "both changed: the node has the word": ("false", "maybe", "true", False, ("false", "false")),
    "NFD took the label away": ("", "true", "true", False, ("true", "true")),
    "NFD took the label away, unmanaged": ("", "false", "false", False, ("false", "false")),
    "manual is switched on later": ("true", "true", "true", True, ("true", "true")),
    "manual, admin marks a node": ("true", "", "", True, ("true", "true")),
    "NodeFeature stripped by hand": ("true", "", "true", False, ("true", "true")),
}


@pytest.mark.parametrize(("on_node", "in_feature", "seen", "manual", "want"), WORDS.values(), ids=WORDS.keys())
def test_managed_word(on_node: str, in_feature: str | None, seen: str, manual: bool, want: tuple[str, str]) -> None:
    assert managed_word(on_node=on_node, in_feature=in_feature, seen=seen, manual=manual) == want


def decide(node: Object, stored: Object | None = None, *, manual: bool = False, mixed: bool = True) -> dict[str, str]:
    return dict(wanted_feature(node, stored, effective=labels_of(node), manual=manual, mixed=mixed).labels)


def said(node: Object, stored: Object | None = None) -> Object:
    wanted = wanted_feature(node, stored, effective=labels_of(node), manual=False, mixed=True)
    return worker_feature(node, wanted, namespace=SYSTEM_NAMESPACE)


def test_13_1_cpu_node() -> None:
    assert decide(epyc_node("cpu-1")) == {
        MANAGED: "true",
        GENERAL_PREFIX + "amd": "true",
        GENERAL_PREFIX + "amd-epyc-7571": "true",
        GENERAL_PREFIX + "amd-epyc-7571.count": "64",
        TOPOLOGY_PROFILE: DEFAULT_PROFILE,
    }


def test_13_4_manual_node_has_no_mark() -> None:
    assert MANAGED not in decide(node("n"), manual=True)


@pytest.mark.parametrize(
    ("labels", "mixed", "want"),
    [({}, True, False), ({}, False, True), (card_labels("nvidia-t4", "1"), False, False)],
    ids=["mixed", "not mixed, no card", "not mixed, cards"],
)
def test_cpu_only_mark(labels: dict[str, str], mixed: bool, want: bool) -> None:
    assert (CPU_ONLY in decide(node("n", labels=labels), mixed=mixed)) is want


IDENTITIES: dict[str, tuple[Object, Object, str]] = {
    "the name comes later": (node("n", labels=amd_labels()), epyc_node("n"), "amd-epyc-7571"),
    "NFD takes name and model away": (epyc_node("n"), node("n"), "amd-epyc-7571"),
    "NFD takes the name away": (epyc_node("n"), node("n", labels=amd_labels()), "amd-epyc-7571"),
    "NFD takes the labels and leaves the name": (
        epyc_node("n"),
        node("n", annotations=cpu_annotations(name="AMD EPYC 7571")),
        "amd-epyc-7571",
    ),
    "the vendor comes after the name": (
        node("n", annotations=cpu_annotations(name="AMD EPYC 7571")),
        epyc_node("n"),
        "amd-epyc-7571",
    ),
    "NFD takes the model away": (node("n", labels=amd_labels("25", "1")), node("n"), "amd-25-1"),
    "another model": (node("n", labels=amd_labels("25", "1")), node("n", labels=amd_labels("26", "2")), "amd-26-2"),
    "another name": (
        epyc_node("n"),
        node("n", labels=amd_labels(), annotations=cpu_annotations(name="AMD EPYC 7763 64-Core Processor")),
        "amd-epyc-7763",
    ),
    "never any identity": (node("n"), node("n"), "generic"),
}


@pytest.mark.parametrize(("before", "after", "key"), IDENTITIES.values(), ids=IDENTITIES.keys())
def test_weaker_evidence_never_replaces_a_stronger_key(before: Object, after: Object, key: str) -> None:
    labels = decide(after, said(before))
    general = {label for label in labels if label.startswith(GENERAL_PREFIX)}
    prefix = key.partition("-")[0]
    assert general == {GENERAL_PREFIX + prefix, GENERAL_PREFIX + key, f"{GENERAL_PREFIX}{key}.count"}


def test_a_kept_key_follows_the_number_of_cores() -> None:
    assert decide(node("n", cpu="32"), said(epyc_node("n")))[GENERAL_PREFIX + "amd-epyc-7571.count"] == "32"


def test_an_unmarked_node_feature_is_judged_by_its_key() -> None:
    stored = said(epyc_node("n"))
    del stored["metadata"]["annotations"]
    assert GENERAL_PREFIX + "amd-epyc-7571" in decide(node("n"), stored)
    assert GENERAL_PREFIX + "amd-23-1" in decide(node("n", labels=amd_labels()), stored)


def test_a_settled_node_feature_has_no_difference() -> None:
    shown = epyc_node("n")
    stored = said(shown)
    wanted = wanted_feature(shown, stored, effective=labels_of(shown), manual=False, mixed=True)
    assert wanted.difference(shown, stored) == {}
    assert stored["metadata"]["annotations"] == {IDENTITY_NOTE: "name", SEEN_NOTE: "true"}


def test_a_difference_names_only_what_differs_and_guards_its_version() -> None:
    shown = epyc_node("n")
    stored = said(shown)
    stored["metadata"] |= {"resourceVersion": "7", "ownerReferences": [], "labels": {"a": "b"}}
    stored["spec"]["labels"] |= {"foreign": "x", MANAGED: "true"}
    wanted = wanted_feature(shown, stored, effective=labels_of(shown), manual=False, mixed=True)
    patch = wanted.difference(shown, stored)
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["spec"] == {"labels": {"foreign": None}}
    assert patch["metadata"]["ownerReferences"][0]["uid"] == "uid-n"
    assert set(patch["metadata"]) == {"resourceVersion", "ownerReferences", "labels"}


@pytest.mark.parametrize("cpu", ["eight", "-1", None, ["4"], True])
def test_cores_that_do_not_parse_are_named_and_the_rest_stays(cpu: object) -> None:
    broken = node("n")
    broken["status"]["capacity"]["cpu"] = cpu
    wanted = wanted_feature(broken, None, effective={}, manual=False, mixed=True)
    assert GENERAL_PREFIX + "generic" in wanted.labels
    assert GENERAL_PREFIX + "generic.count" not in wanted.labels
    assert [("status.capacity.cpu" in problem) for problem in wanted.problems] == ([] if cpu is None else [True])
