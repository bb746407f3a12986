"""`gpustack-operator explain`: why does it wait?

An Instance is explained by the API server, whose answer is printed. A Pod has no such sub-resource: its objects are
read here, with the rights of whoever asks, and judged by the same code; what they may not read is a gate in state
Unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import uvloop
import yaml

from api.explain.document import COLUMNS, KIND_OF_POD, document, rows
from api.explain.verdicts import explain
from apiserver.subresources.explain_reading import ExplainReader
from gpustack_operator.config import KubeOptions, LogOptions, OutputOptions
from gpustack_operator.processes import connect, environment_of, start_logging
from gpustack_operator.tables import table
from kube.client import Client
from kube.clock import SystemClock
from kube.errors import ApiError, OperatorError
from nodefeature.fields import as_str
from nodefeature.kinds import INSTANCE, POD
from nodefeature.manufacturers import Manufacturers

SERVED = replace(INSTANCE, version="v1")
"""Instances as people see them: through the aggregated API."""
_KINDS = {"instance": SERVED, "instances": SERVED, "pod": POD, "pods": POD}


def run(kube: KubeOptions, output: OutputOptions, logs: LogOptions, *, environ: Mapping[str, str], target: str) -> int:
    """Print the explanation; 1 when there is none."""
    start_logging(logs)
    is_pod, namespace, name = parse_target(target)
    registry = environment_of(environ)

    async def answer() -> Mapping[str, Any]:
        client = connect(kube, environ)
        try:
            if is_pod:
                return await explained_pod(client, registry, namespace, name)
            return await client.get(SERVED, name, namespace, subresource="explain")
        finally:
            await client.connection.close()

    try:
        found = uvloop.run(answer())
    except ApiError as error:
        raise OperatorError(f"{target}: {error}") from error
    print(rendered(found, output.output), end="")
    return 0


def parse_target(text: str) -> tuple[bool, str, str]:
    """Return (whether it is a Pod, its namespace, its name); raises OperatorError for anything else."""
    words = text.split("/")
    kind = _KINDS.get(words[0].lower(), SERVED) if len(words) == 3 else SERVED
    known = len(words) == 2 or (len(words) == 3 and words[0].lower() in _KINDS)
    if not known or not all(words):
        raise OperatorError(f"{text!r} should be NAMESPACE/NAME of an Instance, or pod/NAMESPACE/NAME")
    return kind is POD, words[-2], words[-1]


async def explained_pod(client: Client, registry: Manufacturers, namespace: str, name: str) -> dict[str, Any]:
    """Read and judge a Pod."""
    evidence = await ExplainReader(client, registry, SystemClock()).of_pod(namespace, name)
    return document(explain(evidence), evidence.pod or {}, kind=KIND_OF_POD, api_version="worker.gpustack.ai/v1")


def rendered(found: Mapping[str, Any], output: str) -> str:
    """Return an explanation as text."""
    if output == "json":
        return json.dumps(found, indent=2) + "\n"
    if output == "yaml":
        text: str = yaml.safe_dump(dict(found), sort_keys=False, allow_unicode=True)
        return text
    header = [name.upper() for name, _ in COLUMNS]
    return f"{as_str(found.get('summary'))}\n\n{table(header, rows(found))}\n"
