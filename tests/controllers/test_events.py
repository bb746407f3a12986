"""Warnings on objects, and saying a thing once."""

from __future__ import annotations

import asyncio

from controllers.events import Events, warning
from controllers.reports import Reports
from nodefeature.destinations import is_object_name
from nodefeature.kinds import EVENT, RESOURCE_FLAVOR
from tests.builders.fake_api import FakeApi
from tests.builders.virtual_clock import VirtualClock

FLAVOR = {"metadata": {"name": "f", "uid": "u"}}


def test_a_warning_is_stored_once() -> None:
    async def scenario() -> None:
        api = FakeApi()
        events = Events(api.client(), VirtualClock())
        for message in ("a", "a", "b", "a"):
            await events.warn(RESOURCE_FLAVOR, FLAVOR, reason="R", message=message)
        assert len(api.writes) == len(api.names(EVENT)) == 2

    asyncio.run(scenario())


def test_a_cluster_scoped_object_is_warned_about_in_default() -> None:
    event = warning(RESOURCE_FLAVOR, FLAVOR, reason="R", message="m", at_time="t")
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]


def test_names_stay_legal_however_long_the_objects_is() -> None:
    named = {"metadata": {"name": "a" * 199 + "-" + "b" * 53}}
    assert is_object_name(warning(RESOURCE_FLAVOR, named, reason="R", message="m", at_time="t")["metadata"]["name"])


def test_reports_say_a_thing_once_and_again_when_it_returns() -> None:
    reports = Reports()
    assert reports.news("a", ["x", "y"]) == ["x", "y"]
    assert reports.news("a", ["x"]) == []
    assert reports.news("a", ["y", "x"]) == ["y"]
    assert reports.news("b", ["x"]) == ["x"]
    reports.forget("a")
    assert reports.news("a", ["x"]) == ["x"]
    assert reports.news("a", []) == []
    assert reports.news("a", ["x"]) == ["x"]
