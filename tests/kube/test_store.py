"""The promises of kube.store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.errors import OperatorError
from kube.reconciler import Index, Key
from kube.store import JOURNAL, CacheMutated, Change, Store
from nodefeature.fields import labels_of, name_of
from nodefeature.kinds import NODE, POD

B019 = json.loads((Path(__file__).parents[1] / "cases" / "B019-null-fields.json").read_text())


def node(name: str, version: int = 1, uid: str = "u", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version)}, **fields}


def zone(obj: dict[str, Any]) -> list[str]:
    return [value for value in (labels_of(obj).get("zone"),) if value]


def in_zone(name: str, value: str, version: int = 1) -> dict[str, Any]:
    obj = node(name, version)
    obj["metadata"]["labels"] = {"zone": value}
    return obj


def test_managed_fields_are_dropped_and_the_projection_applied() -> None:
    store = Store(NODE, project=lambda obj: {"metadata": obj["metadata"]})
    obj = node("a", status={"x": 1})
    obj["metadata"]["managedFields"] = [{"manager": "m"}]
    store.put(store.prepare(obj))
    assert store.get(Key("a")) == node("a")


def test_what_put_and_remove_say() -> None:
    store = Store(NODE)
    first, second, namesake = node("a", 1), node("a", 2, spec={"x": 1}), node("a", 3, uid="u2")
    assert store.put(first) == (Change(None, first),)
    assert store.put(second) == (Change(first, second),)
    assert store.put(node("a", 2, spec={"x": 1})) == ()
    assert store.put(node("a", 1)) == ()
    assert store.put(namesake) == (Change(second, None), Change(None, namesake))
    assert store.remove(Key("a"), "u") == ()
    assert store.remove(Key("a"), "u2") == (Change(namesake, None),)
    assert store.remove(Key("a")) == ()


@pytest.mark.parametrize(
    ("version", "authoritative", "want"),
    [(7, False, "new"), (20, False, "new"), (21, False, "old"), (7, True, "old"), (20, True, "old")],
    ids=["a late event", "the same version", "a newer one", "a list", "a list of the same version"],
)
def test_a_late_event_of_an_older_namesake_changes_nothing(version: int, authoritative: bool, want: str) -> None:
    store = Store(NODE)
    store.put(node("a", 5, uid="old"))
    store.remove(Key("a"), "old")
    store.put(node("a", 20, uid="new"))
    changes = store.put(node("a", version, uid="old"), authoritative=authoritative)
    kept = store.get(Key("a"))
    assert kept is not None
    assert kept["metadata"]["uid"] == want
    assert len(changes) == (2 if want == "old" else 0)


def test_a_reader_is_told_what_changed_since() -> None:
    store = Store(NODE)
    assert store.changed(-1) == (0, None)
    assert store.changed(0) == (0, set())
    store.put(node("a", 1))
    store.put(node("b", 1))
    store.put(node("a", 2))  # nobody can see it
    assert store.changed(0) == (2, {Key("a"), Key("b")})
    assert store.changed(1) == (2, {Key("b")})
    store.put(node("a", 3, uid="u2"))
    store.remove(Key("b"))
    store.remove(Key("c"))
    assert store.changed(2) == (4, {Key("a"), Key("b")})
    assert store.changed(4) == (4, set())
    for number in range(JOURNAL):
        store.put(node(f"n{number}"))
    now, keys = store.changed(4)
    assert keys is not None
    assert (now, len(keys)) == (4 + JOURNAL, JOURNAL)
    assert store.changed(3) == (now, None), "too long ago"


def test_the_values_of_an_index() -> None:
    store = Store(NODE)
    store.add_index(Index(NODE, "zone", zone))
    for name, value in (("a", "z1"), ("b", "z1"), ("c", "z2")):
        store.put(in_zone(name, value))
    assert sorted(store.values("zone")) == ["z1", "z2"]
    store.remove(Key("c"))
    assert sorted(store.values("zone")) == ["z1"]


def test_a_list_may_go_back_in_versions() -> None:
    store = Store(NODE)
    store.put(node("a", 9, spec={"x": 1}))
    back = node("a", 5, spec={"x": 2})
    assert len(store.put(back, authoritative=True)) == 1
    assert store.get(Key("a")) is back


def test_a_change_that_nobody_can_see_is_stored_in_silence() -> None:
    store = Store(NODE)
    store.put(node("a", 1, spec={"x": 1}))
    newer = node("a", 2, spec={"x": 1})
    assert store.put(newer) == ()
    assert store.get(Key("a")) is newer


def test_objects_without_a_version_are_always_believed() -> None:
    store = Store(NODE)
    store.put({"metadata": {"name": "a"}})
    assert len(store.put({"metadata": {"name": "a"}, "spec": {}})) == 1


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "z1", "z2", "z3"]))))
def test_an_index_agrees_with_a_full_scan(steps: list[tuple[str, str]]) -> None:
    store = Store(NODE)
    store.add_index(Index(NODE, "zone", zone))
    for version, (name, value) in enumerate(steps, start=1):
        if value:
            store.put(in_zone(name, value, version))
        else:
            store.remove(Key(name))
        for each in ("z1", "z2", "z3"):
            want = sorted(name_of(obj) for obj in store.list() if labels_of(obj).get("zone") == each)
            assert sorted(name_of(obj) for obj in store.by("zone", each)) == want


def test_an_index_is_asked_only_for_what_changed() -> None:
    asked: list[str] = []

    def values(obj: dict[str, Any]) -> list[str]:
        asked.append(name_of(obj))
        return ["all"]

    store = Store(NODE)
    for number in range(100):
        store.put(node(f"n{number}"))
    store.add_index(Index(NODE, "all", values))
    asked.clear()
    store.put(node("n5", 2, spec={"x": 1}))
    assert asked == ["n5"]
    assert len(tuple(store.by("all", "all"))) == 100


def test_an_index_declared_twice_must_be_the_same() -> None:
    store = Store(NODE)
    store.add_index(Index(NODE, "zone", zone))
    store.add_index(Index(NODE, "zone", zone))
    with pytest.raises(OperatorError, match="declared twice"):
        store.add_index(Index(NODE, "zone", lambda _obj: []))


@pytest.mark.parametrize("obj", B019["objects"], ids=lambda obj: f"{obj['kind']}-{obj['metadata']['name']}")
def test_b019_null_fields_are_stored_and_a_failing_index_hides_nothing(
    obj: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(POD)
    store.add_index(Index(POD, "strict", lambda found: [found["metadata"]["labels"]["zone"]]))
    good = in_zone("good", "z1")
    store.put(store.prepare(good))
    for version in ("1", "2"):  # the second time it is also the old one
        copy = json.loads(json.dumps(obj))
        copy["metadata"]["resourceVersion"] = version
        store.put(store.prepare(copy))
    store.remove(Key(name_of(obj), obj["metadata"].get("namespace", "")))
    assert list(store.by("strict", "z1")) == [good]
    assert [r for r in caplog.records if r.message == "index failed" and name_of(obj) in vars(r)["object"]]


def test_writing_to_a_cached_object_is_an_error_that_names_it() -> None:
    store = Store(NODE, detect_mutations=True)
    store.put(node("a", 1))
    store.put(node("b", 1))
    store.check()
    cached = store.get(Key("b"))
    assert cached is not None
    cached["spec"] = {}
    with pytest.raises(CacheMutated, match="nodes b"):
        store.check()
    with pytest.raises(CacheMutated, match="nodes b"):
        store.put(node("b", 2))


def test_label_values_are_shared() -> None:
    store = Store(NODE)
    values = []
    for name in ("a", "b"):
        raw = json.loads(json.dumps(in_zone(name, "some-zone")))
        store.put(store.prepare(raw))
        cached = store.get(Key(name))
        assert cached is not None
        values.append(cached["metadata"]["labels"]["zone"])
    assert values[0] is values[1]
