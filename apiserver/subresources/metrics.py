"""`metrics`: one current sample of an Instance (spec 05 §12).

For: the `instances` resource. In: a call. Out: InstanceMetrics.
Promises: answered within `BUDGET_S`; a node's kubelet is asked at most once in `SUMMARY_S`, whoever asks; an Instance
none of whose containers ever started has a sample of zeros; without kubelet and metrics API it is 503 that names both;
accelerators are best effort and only ever left out; agents are asked through kube-apiserver, so that no connection of
ours goes unverified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from api.ledger.transport import transport_of
from api.models.answers import InstanceMetrics
from api.schema import structural
from apiserver.context import Context
from apiserver.mapping.refusals import translated
from apiserver.rest import status
from apiserver.rest.responses import Send
from apiserver.rest.storage import Call, Subresource
from apiserver.subresources import samples
from apiserver.subresources.answering import send_document
from apiserver.subresources.pods import Object, instance_and_pod
from apiserver.subresources.samples import Usage
from kube.client import Client
from kube.clock import Clock, second_time
from kube.errors import OperatorError
from kube.reconciler import Rule
from kube.requests import Request, check_segment
from nodefeature.fields import as_maps, as_str, at, is_deleting, name_of, namespace_of, uid_of
from nodefeature.kinds import INSTANCE, POD
from nodefeature.labels import SYSTEM_NAMESPACE

BUDGET_S = 10.0
SOURCE_S = 3.0
SUMMARY_S = 15.0
MAX_SUMMARIES = 1024
MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_SNAPSHOT_BYTES = 4 * 1024 * 1024
DEFAULT_PORT = 32443
AGENTS = "app.kubernetes.io/component=device-manager"
RBAC = (
    Rule(INSTANCE.group, "instances", ("get",)),
    Rule("", "pods", ("get",)),
    Rule("", "nodes/proxy", ("get",)),
    Rule("metrics.k8s.io", "pods", ("get",)),
    Rule("", "pods", ("list",), namespace=SYSTEM_NAMESPACE),
    Rule("", "pods/proxy", ("get",), namespace=SYSTEM_NAMESPACE),
)


class SourceFailed(OperatorError):
    """A source of measurements gave no usable answer."""


class Summaries:
    """The kubelets' summaries, each kept for a short while and read once for all who wait."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._kept: dict[str, tuple[float, asyncio.Task[Object]]] = {}

    async def of(self, node: str) -> Object:
        """Return a node's summary; raises SourceFailed."""
        now = self._clock.now()
        kept = self._kept.get(node)
        if kept is None or now - kept[0] > SUMMARY_S or _failed(kept[1]):
            for name in [name for name, (read_at, _) in self._kept.items() if now - read_at > SUMMARY_S]:
                self._kept.pop(name)
            if len(self._kept) >= MAX_SUMMARIES:
                self._kept.clear()
            path = f"/api/v1/nodes/{check_segment(node, 'node')}/proxy/stats/summary"
            kept = (now, asyncio.create_task(read(self._client, path, MAX_BODY_BYTES), name=f"summary of {node}"))
            self._kept[node] = kept
        return await asyncio.shield(kept[1])


def _failed(task: asyncio.Task[Object]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def read(client: Client, path: str, limit: int) -> Object:
    """Read a JSON object once, with a deadline and a bound; raises SourceFailed."""
    request = Request(method="GET", path=path, what=f"get {path}")
    body = bytearray()
    try:
        async with asyncio.timeout(SOURCE_S), client.connection.exchange(request, first_s=SOURCE_S) as answer:
            if not answer.is_success:
                raise SourceFailed(f"{path} answered {answer.code}")
            async for chunk in answer.chunks:
                body += chunk
                if len(body) > limit:
                    raise SourceFailed(f"{path} answered more than {limit} bytes")
        decoded = orjson.loads(bytes(body))
    except TimeoutError as error:
        raise SourceFailed(f"{path} did not answer in {SOURCE_S:.0f} s") from error
    except orjson.JSONDecodeError as error:
        raise SourceFailed(f"{path} answered no JSON") from error
    if not isinstance(decoded, dict):
        raise SourceFailed(f"{path} answered no object")
    return decoded


@dataclass(frozen=True, slots=True)
class Metrics:
    """The connector."""

    client: Client
    clock: Clock
    namespace: str
    summaries: Summaries

    async def __call__(self, call: Call, scope: Mapping[str, Any], receive: Any, send: Send) -> None:
        """Answer with one sample; raises Refusal 404, 503."""
        info = call.info
        try:
            async with asyncio.timeout(BUDGET_S):
                instance, pod = await instance_and_pod(self.client, info)
                with translated(info, POD):
                    sample = await self._sample(instance, pod)
        except TimeoutError as error:
            raise status.unavailable(f"no sample of {info.name!r} within {BUDGET_S:.0f} s") from error
        identity = {"namespace": namespace_of(instance), "name": name_of(instance), "uid": uid_of(instance)}
        document = {"kind": "InstanceMetrics", "apiVersion": info.api_version, "metadata": identity, "sample": sample}
        await send_document(scope, send, document)

    async def _sample(self, instance: Object, pod: Object | None) -> dict[str, Any]:
        limits = samples.totals(instance, pod)
        if pod is None or not at(pod, "spec", "nodeName") or not samples.has_started(pod):
            used = Usage(second_time(self.clock.time()), 0, 0, 0)
            return _shown(limits, used, second_time(self.clock.time()))
        used, cards = await asyncio.gather(self._usage(pod), self._accelerators(pod))
        sample = _shown(limits, used, second_time(self.clock.time()))
        return {**sample, "accelerators": cards} if cards else sample

    async def _usage(self, pod: Object) -> Usage:
        """Return the Pod's use from its kubelet, else from the metrics API; raises Refusal 503."""
        failures = []
        node, path = as_str(at(pod, "spec", "nodeName")), _metrics_path(pod)
        try:
            found = samples.from_summary(await self.summaries.of(node), pod)
            if found is not None:
                return found
            failures.append(f"the kubelet of node {node!r} does not know the Pod")
        except OperatorError as error:
            failures.append(f"kubelet: {error}")
        try:
            found = samples.from_metrics_api(await read(self.client, path, MAX_SNAPSHOT_BYTES), pod)
            if found is not None:
                return found
            failures.append("metrics.k8s.io has no current figures of the Pod")
        except OperatorError as error:
            gone = str(error).endswith("answered 404")
            failures.append("metrics.k8s.io API is not served" if gone else f"metrics.k8s.io: {error}")
        raise status.unavailable("; ".join(failures))

    async def _accelerators(self, pod: Object) -> list[dict[str, Any]]:
        """Return what the node's agents measured of the Pod's cards; nothing when that fails."""
        records = transport_of(pod).records
        if not records:
            return []
        try:
            selector = f"spec.nodeName={as_str(at(pod, 'spec', 'nodeName'))}"
            agents = await self.client.list(POD, self.namespace, label_selector=AGENTS, field_selector=selector)
            paths = [_snapshot_path(agent) for agent in agents if _is_ready(agent)]
            snapshots = await asyncio.gather(*map(self._snapshot, paths))
        except OperatorError:
            return []
        return samples.accelerators(records, [each for each in snapshots if each is not None])

    async def _snapshot(self, path: str) -> Object | None:
        try:
            snapshot = await read(self.client, path, MAX_SNAPSHOT_BYTES)
        except OperatorError:
            return None
        return snapshot if samples.is_fresh(snapshot, self.clock.time()) else None


def _shown(limits: Mapping[str, int], used: Usage, now: str) -> dict[str, Any]:
    figures = {
        "cpuUsedMilliCores": used.cpu_milli,
        "memoryUsedMiB": used.memory_mib,
        "storageUsedMiB": used.storage_mib,
    }
    measured = {key: value for key, value in figures.items() if value is not None}
    return {"timestamp": used.timestamp or now, **limits, **measured}


def _metrics_path(pod: Object) -> str:
    namespace, name = check_segment(namespace_of(pod), "namespace"), check_segment(name_of(pod), "name of a Pod")
    return f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/{name}"


def _is_ready(agent: Object) -> bool:
    conditions = as_maps(at(agent, "status", "conditions"))
    ready = any((c.get("type"), c.get("status")) == ("Ready", "True") for c in conditions)
    return ready and not is_deleting(agent)


def _snapshot_path(agent: Object) -> str:
    ports = [
        port.get("containerPort")
        for container in as_maps(at(agent, "spec", "containers"))
        for port in as_maps(container.get("ports"))
        if port.get("name") == "https"
    ]
    port = ports[0] if ports and isinstance(ports[0], int) else DEFAULT_PORT
    namespace, name = check_segment(namespace_of(agent), "namespace"), check_segment(name_of(agent), "name of a Pod")
    return f"/api/v1/namespaces/{namespace}/pods/https:{name}:{port}/proxy/monitor/snapshot"


def metrics_of_pod(context: Context) -> Subresource:
    """Return `instances/metrics`."""
    summaries = Summaries(context.client, context.clock)
    connector = Metrics(context.client, context.clock, context.system_namespace, summaries)
    return Subresource("metrics", "InstanceMetrics", ("get",), connector=connector, schema=structural(InstanceMetrics))
