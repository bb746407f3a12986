"""How the scenarios let time pass."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from tests.e2e.chain.cluster import Cluster
from tests.e2e.chain.product import Product


class Hasty:
    """A server that ends every watch before its time."""

    def __init__(self) -> None:
        self.watches = 0

    def page(self, *_kind: object, **_options: object) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": "7"}}

    def watch(self, *_kind: object, timeout_s: float, since: str) -> Iterator[tuple[str, Any]]:
        self.watches += 1
        time.sleep(min(0.1, timeout_s))
        yield "MODIFIED", {}


def test_a_watch_that_ends_early_makes_no_minute_shorter() -> None:
    admin = Hasty()
    cluster = Cluster(cast(Any, SimpleNamespace(admin=admin)), cast(Product, None))
    began = time.monotonic()
    cluster.hold(1)
    assert 0.85 < time.monotonic() - began < 1.5
    assert admin.watches > 1
