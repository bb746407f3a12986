"""The promises of kube.serving and kube.tasks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import httpx
import pytest
from prometheus_client import CollectorRegistry

from kube.certs.authority import issue_leaf, new_authority
from kube.errors import OperatorError
from kube.metrics import RuntimeMetrics
from kube.serving import HealthServer
from kube.tasks import Health, guard
from kube.tls import api_server_context, server_context


def test_health_and_metrics_over_http() -> None:
    async def scenario() -> None:
        health, registry, waiting = Health(), CollectorRegistry(), ["not synced: nodes"]
        RuntimeMetrics(registry).runs.labels("c", "done").inc()
        health.add_check("caches", lambda: "".join(waiting))
        async with HealthServer(health, registry) as server, httpx.AsyncClient(trust_env=False) as client:
            root = f"http://127.0.0.1:{server.port}"
            assert (await client.get(f"{root}/livez")).text == "ok"
            ready = await client.get(f"{root}/readyz")
            assert (ready.status_code, ready.text) == (503, "caches: not synced: nodes")
            waiting.clear()
            assert (await client.get(f"{root}/readyz")).status_code == 200
            assert (
                'gpustack_reconcile_total{controller="c",outcome="done"} 1.0'
                in (await client.get(f"{root}/metrics")).text
            )
            health.task_gone("informer nodes", "ended with KeyError")
            live = await client.get(f"{root}/livez")
            assert (live.status_code, live.text) == (503, "informer nodes: ended with KeyError")
            assert (await client.get(f"{root}/other")).status_code == 404
            with pytest.raises(OperatorError, match="choose another address"):
                await HealthServer(health, registry, port=server.port).__aenter__()

    asyncio.run(scenario())


def test_pages_of_the_process_over_tls() -> None:
    leaf = issue_leaf(new_authority("test", datetime.now(UTC)), ("127.0.0.1",), datetime.now(UTC))
    context = server_context(certificate_pem=leaf.certificate, key_pem=leaf.key)
    shown: list[dict[str, int]] = []

    async def scenario() -> None:
        pages = {"/monitor/snapshot": lambda: shown[0] if shown else None}
        server = HealthServer(Health(), CollectorRegistry(), pages=pages, tls=context)
        async with server, httpx.AsyncClient(trust_env=False, verify=api_server_context(verify=False)) as client:
            page = f"https://127.0.0.1:{server.port}/monitor/snapshot"
            assert (await client.get(page)).status_code == 503
            shown.append({"periodSeconds": 15})
            answer = await client.get(page)
            assert (answer.status_code, answer.json()) == (200, {"periodSeconds": 15})
            assert answer.headers["content-type"].startswith("application/json")

    asyncio.run(scenario())


def test_a_guarded_task_that_ends_is_named() -> None:
    async def scenario() -> None:
        health = Health()

        async def end() -> None:
            return

        async def fail() -> None:
            raise KeyError("x")

        await guard("quiet", end(), health, may_end=lambda: True)
        assert health.live_faults() == []
        await guard("silent", end(), health)
        await guard("broken", fail(), health)
        assert health.live_faults() == ["silent: ended", "broken: ended with KeyError"]

    asyncio.run(scenario())


def test_a_cancelled_task_is_no_fault() -> None:
    async def scenario() -> None:
        health = Health()
        task = asyncio.create_task(guard("forever", asyncio.sleep(3600), health))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert health.live_faults() == []

    asyncio.run(scenario())
