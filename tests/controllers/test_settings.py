"""Live settings: design §8.9, spec 01 §12, bad input of the settings Secret."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest

import controllers
from api.settings import DECLARATIONS, SECRET_NAME, Declaration
from controllers import RECONCILERS
from controllers.settings import LiveSettings, SettingsWatch, changed_names, wakes
from kube.reconciler import Key, Object
from nodefeature.kinds import EVENT, SECRET
from nodefeature.labels import SYSTEM_NAMESPACE
from tests.builders.chain import bench, set_settings, settings_secret
from tests.builders.fake_api import FakeApi


def live(api: FakeApi, **seeds: str) -> LiveSettings:
    return LiveSettings(bench(api).caches, seeds={name.replace("_", "-"): text for name, text in seeds.items()})


def test_an_absent_secret_means_every_default() -> None:
    settings = live(FakeApi()).now()
    assert (settings.instance_type_mixed_on_node, settings.node_management_manual) == (True, False)


def test_a_missing_key_has_its_default_or_its_seed() -> None:
    api = FakeApi()
    set_settings(api, node_management_manual="true")
    settings = live(api, instance_type_derived_from_node="false").now()
    assert settings.node_management_manual
    assert settings.instance_type_mixed_on_node
    assert not settings.instance_type_derived_from_node


def test_a_value_holds_from_the_moment_the_watch_brings_it() -> None:
    api = FakeApi()
    settings = live(api)
    assert settings.now().instance_type_mixed_on_node
    set_settings(api, instance_type_mixed_on_node="false")
    assert not settings.now().instance_type_mixed_on_node
    api.remove(SECRET, SECRET_NAME, SYSTEM_NAMESPACE)
    assert settings.now().instance_type_mixed_on_node


def test_a_value_that_does_not_parse_keeps_the_last_good_one() -> None:
    api = FakeApi()
    settings = live(api)
    set_settings(api, instance_type_mixed_on_node="false")
    assert not settings.now().instance_type_mixed_on_node
    set_settings(api, instance_type_mixed_on_node="maybe", node_management_manual="true")
    assert not settings.now().instance_type_mixed_on_node
    assert settings.now().node_management_manual, "its neighbours go on"
    assert ["instance-type-mixed-on-node" in str(p) for p in settings.reading().problems] == [True]


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"instance-type-mixed-on-node": None},
        {"instance-type-mixed-on-node": 5},
        {"instance-type-mixed-on-node": "%"},
    ],
    ids=["null", "list", "null value", "number", "no base64"],
)
def test_b019_a_broken_secret_is_read(data: object) -> None:
    api = FakeApi()
    api.add(SECRET, {"metadata": {"name": SECRET_NAME, "namespace": SYSTEM_NAMESPACE}, "data": data})
    assert live(api).now().instance_type_mixed_on_node


def test_a_refused_value_is_reported_once_also_across_restarts() -> None:
    async def scenario() -> None:
        api = FakeApi()
        set_settings(api, instance_type_mixed_on_node="maybe")
        chain = bench(api, ["settings"])
        await chain.settle()
        (event,) = api.store[EVENT].values()
        assert event["reason"] == "SettingRefused"
        assert "instance-type-mixed-on-node" in event["message"]
        assert event["involvedObject"]["name"] == SECRET_NAME
        assert event["metadata"]["namespace"] == SYSTEM_NAMESPACE
        assert await bench(api, ["settings"]).settle() == []

    asyncio.run(scenario())


def test_changes_and_unknown_keys_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        api = FakeApi()
        set_settings(api, nonsense="x", node_management_manual="true")
        chain = bench(api, ["settings"])
        with caplog.at_level("INFO"):
            await chain.settle()
            await chain.reconcilers[0].reconcile(Key(SECRET_NAME, SYSTEM_NAMESPACE))

    asyncio.run(scenario())
    assert [r.__dict__.get("setting") for r in caplog.records if r.levelname == "INFO"] == ["node-management-manual"]
    assert ["nonsense" in r.__dict__["reason"] for r in caplog.records if r.levelname == "WARNING"] == [True]


WAKES: dict[str, tuple[Object | None, Object | None, str, bool]] = {
    "a concerned reconciler": (
        settings_secret(),
        settings_secret(instance_type_mixed_on_node="false"),
        "node_flavor",
        True,
    ),
    "awareness": (
        settings_secret(),
        settings_secret(instance_type_aware_cpu_manufacturer="true"),
        "node_flavor",
        True,
    ),
    "not concerned": (settings_secret(), settings_secret(node_management_manual="true"), "node_flavor", False),
    "the same text": (
        settings_secret(node_management_manual="true"),
        settings_secret(node_management_manual="true"),
        "node_feature",
        False,
    ),
    "key removed": (settings_secret(node_management_manual="true"), settings_secret(), "node_feature", True),
    "secret removed": (settings_secret(node_management_manual="true"), None, "node_feature", True),
    "another secret": (
        {"metadata": {"name": "other"}},
        {"metadata": {"name": "other"}, "data": {"node-management-manual": "x"}},
        "node_feature",
        False,
    ),
}


@pytest.mark.parametrize(("old", "new", "reconciler", "want"), WAKES.values(), ids=WAKES.keys())
def test_wakes(old: Object | None, new: Object | None, reconciler: str, want: bool) -> None:
    watch = wakes(reconciler, lambda caches: [Key("all")])
    assert watch.window_s == 0
    assert list(watch.keys(old, new, bench(FakeApi()).caches)) == ([Key("all")] if want else [])


CHAIN = frozenset(reconciler.NAME for reconciler in RECONCILERS)
READ_ONCE = {
    ("instance", "container-registry"),
    ("instance", "container-namespace"),
    ("instance", "instance-general-resources-overcommit"),
    ("instance", "instance-ssh-server-image"),
    ("instance", "instance-persistent-volume-placement"),
}
"""Read when an Instance's Pod is made, which a later change leaves alone (spec 05 §8): nobody is woken."""


def reconciler_of(module: str) -> str:
    """Return the reconciler a module is a part of: its parts carry its name first. The module itself when none is."""
    owners = [name for name in CHAIN if f"{module}_".startswith(f"{name}_")]
    return max(owners, key=len, default=module)


def readers() -> dict[str, set[str]]:
    """Return, by attribute of `Settings`, the reconcilers whose modules read it."""
    found: dict[str, set[str]] = {}
    for module in Path(controllers.__file__).parent.glob("*.py"):
        for part in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(part, ast.Attribute):
                found.setdefault(part.attr, set()).add(reconciler_of(module.stem))
    return found


@pytest.mark.parametrize("declaration", DECLARATIONS, ids=lambda one: one.name)
def test_a_setting_wakes_exactly_who_reads_it(declaration: Declaration) -> None:
    read_by = readers().get(declaration.field, set())
    assert read_by <= CHAIN, "a setting is read by reconcilers, who hand its value on"
    assert declaration.wakes == {name for name in read_by if (name, declaration.name) not in READ_ONCE}


@pytest.mark.parametrize("reconciler", sorted({name for one in DECLARATIONS for name in one.wakes}))
def test_who_is_to_be_woken_watches_the_secret(reconciler: str) -> None:
    (chosen,) = (one for one in RECONCILERS if reconciler == one.NAME)
    assert SECRET in {watch.kind for watch in chosen.WATCHES}


def test_changed_names_takes_nulls() -> None:
    assert changed_names(None, {"data": None}) == frozenset()


def test_the_secret_alone_is_a_request() -> None:
    (watch,) = SettingsWatch.WATCHES
    caches = bench(FakeApi()).caches
    assert list(watch.keys(None, {"metadata": {"name": "other"}}, caches)) == []
    assert list(watch.keys(settings_secret(), None, caches)) == [Key(SECRET_NAME, SYSTEM_NAMESPACE)]
