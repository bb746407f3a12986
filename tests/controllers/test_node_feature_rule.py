"""What is installed at start: spec 07 §3.2, spec 04 §10.1."""

from __future__ import annotations

import asyncio

import pytest

from controllers.node_feature_rule import admission_check, install_all, node_feature_rule, vendor_ids
from nodefeature.kinds import ADMISSION_CHECK, NODE_FEATURE_RULE
from tests.builders.chain import manufacturers
from tests.builders.fake_api import FakeApi
from tests.builders.virtual_clock import VirtualClock, settle


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (manufacturers().names, "1002 10de 19e5 1d94 1ded 1e3e 1ed5 9999 cabc"),
        (("nvidia",), "10de"),
        (("nvidia", "nvidia", "not-a-manufacturer"), "10de"),
    ],
    ids=["all nine", "nvidia", "twice and unknown"],
)
def test_vendor_list(names: tuple[str, ...], want: str) -> None:
    assert " ".join(vendor_ids(manufacturers(), names)) == want


def test_rules() -> None:
    rule = node_feature_rule(manufacturers(), ("nvidia",))
    assert rule["metadata"] == {
        "name": "gpustack-cpu-info",
        "labels": {"app.kubernetes.io/part-of": "gpustack-operator"},
    }
    info, detect, identify = rule["spec"]["rules"]
    assert len(info["annotations"]) == 13
    assert info["annotations"]["feature.gpustack.ai/cpu-cache-l1i"] == "@cpu.model.cache_l1i"
    assert info["annotations"]["feature.gpustack.ai/cpu-threads-per-core"] == "@cpu.model.threads_per_core"
    (device,) = detect["matchFeatures"]
    assert device["matchExpressions"] == {
        "class": {"op": "InRegexp", "value": ["^02", "^03", "^0b", "^12"]},
        "vendor": {"op": "In", "value": ["10de"]},
    }
    assert "labels" not in detect
    assert identify["labels"] == {"feature.gpustack.ai/acceleratable": "false"}


def test_admission_check() -> None:
    assert admission_check()["spec"] == {"controllerName": "worker.gpustack.ai/node-devices"}


def test_each_is_installed_as_soon_as_its_kind_is_served(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        api, clock = FakeApi(), VirtualClock()
        api.unserved = {NODE_FEATURE_RULE, ADMISSION_CHECK}
        task = asyncio.create_task(install_all(api.client(), clock, manufacturers=manufacturers()))
        await clock.advance(20)
        api.unserved = {ADMISSION_CHECK}
        await clock.advance(5)
        assert (api.names(NODE_FEATURE_RULE), api.names(ADMISSION_CHECK)) == (["gpustack-cpu-info"], [])
        await clock.advance(600)
        assert not task.done(), "an hour without Kueue is no reason to give up"
        api.unserved = set()
        await clock.advance(5)
        await settle()
        assert task.done()
        assert api.names(ADMISSION_CHECK) == ["gpustack-node-devices"]
        await task

    asyncio.run(scenario())
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 2, "each reason once"


def test_installing_again_writes_nothing() -> None:
    async def scenario() -> None:
        api, clock = FakeApi(), VirtualClock()
        await install_all(api.client(), clock, manufacturers=manufacturers())
        before = len(api.writes)
        await install_all(api.client(), clock, manufacturers=manufacturers())
        assert len(api.writes) == before

    asyncio.run(scenario())
