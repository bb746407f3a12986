"""A bench with the product's own reconcilers on an API in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import nodefeature
from api.secret_data import encoded
from api.settings import SECRET_NAME
from controllers import RECONCILERS, build_reconcilers
from controllers.selections import SELECTIONS
from kube.client import Client
from kube.reconciler import Caches, Object, Reconciler
from nodefeature.kinds import SECRET
from nodefeature.labels import SYSTEM_NAMESPACE
from nodefeature.manufacturers import Manufacturers, build_manufacturers
from nodefeature.presets import Presets, load_presets
from tests.builders.fake_api import Bench, FakeApi, FakeCaches, Write
from tests.builders.node_features import NfdMaster
from tests.builders.virtual_clock import VirtualClock

OUR_NODE_CONTROLLERS = ("settings", "node_feature", "node_capacity", "node_devices", "node_flavor")


@cache
def manufacturers() -> Manufacturers:
    """Return the registry without overrides."""
    return build_manufacturers({})


@cache
def presets() -> Presets:
    """Return the packaged presets."""
    return load_presets((Path(nodefeature.__file__).parent / "presets.yaml").read_text("utf-8"))


def settings_secret(**values: str) -> Object:
    """Return the settings Secret; `instance_type_mixed_on_node="false"`."""
    data = {name.replace("_", "-"): encoded(text) for name, text in values.items()}
    return {"metadata": {"name": SECRET_NAME, "namespace": SYSTEM_NAMESPACE}, "data": data}


def bench(
    api: FakeApi,
    names: Sequence[str] = OUR_NODE_CONTROLLERS,
    *,
    clock: VirtualClock | None = None,
    seeds: Mapping[str, str] | None = None,
    namespace: str = SYSTEM_NAMESPACE,
    others: Sequence[Callable[[Client, Caches], Reconciler]] = (),
) -> Bench:
    """Return a bench with the named reconcilers of ours, and others (such as `NfdMaster`)."""
    clock = clock or VirtualClock()
    caches = FakeCaches(api, SELECTIONS, [*RECONCILERS, NfdMaster])
    client = api.client()
    ours = build_reconcilers(
        client,
        caches,
        clock=clock,
        manufacturers=manufacturers(),
        presets=presets(),
        namespace=namespace,
        seeds=seeds,
    )
    chosen = [reconciler for reconciler in ours if reconciler.NAME in names]
    return Bench(api, [*chosen, *(build(client, caches) for build in others)], caches, clock)


def ours(writes: Sequence[Write]) -> list[Write]:
    """Return the writes of the product, without the stand-ins'."""
    return [write for write in writes if write.manager.startswith("gpustack-")]


def set_settings(api: FakeApi, **values: str) -> None:
    """Replace the settings Secret."""
    api.add(SECRET, settings_secret(**values))
