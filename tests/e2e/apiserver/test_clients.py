"""Other people's clients, unchanged, against two replicas behind a real aggregator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hack.controlplane.replicas import Replicas
from nodefeature.kinds import INSTANCE
from tests.e2e.apiserver.conformance import row
from tests.e2e.apiserver.following import Lines
from tests.e2e.apiserver.objects import instance

pytestmark = pytest.mark.timeout(240)
PROGRAMS = Path(__file__).parent / "programs"


@row("client: official Python dynamic client")
def test_official_dynamic_client(pair: Replicas, namespace: str) -> None:
    _run("official.py", pair, namespace)


@row("client: kr8s")
def test_kr8s(pair: Replicas, namespace: str) -> None:
    _run("with_kr8s.py", pair, namespace)


@row("client: lightkube")
def test_lightkube(pair: Replicas, namespace: str) -> None:
    _run("with_lightkube.py", pair, namespace)


@row("client: client-go informer", "streaming list, full objects and metadata only")
@pytest.mark.parametrize("form", ["objects", "metadata"])
def test_client_go_informer(pair: Replicas, namespace: str, form: str) -> None:
    pair.admin.create(instance("before", version="v1alpha1", namespace=namespace))
    with _informer(pair, "instances", *(["-metadata"] if form == "metadata" else [])) as lines:
        assert _next(lines, "before")["event"] == "add"
        pair.admin.patch(INSTANCE, "before", {"metadata": {"labels": {"a": "b"}}}, namespace)
        event = _next(lines, "before")
        assert event["event"] == "update"
        assert event.get("apiVersion", "worker.gpustack.ai/v1") == "worker.gpustack.ai/v1"
        pair.admin.delete(INSTANCE, "before", namespace)
        assert _next(lines, "before")["event"] == "delete"


@row("client: client-go informer across a restart", "it resumes; nothing is told twice or missed")
def test_client_go_informer_across_a_restart(pair: Replicas, namespace: str) -> None:
    pair.admin.create(instance("x", version="v1alpha1", namespace=namespace))
    with _informer(pair, "instances") as lines:
        assert _next(lines, "x")["event"] == "add"
        for turn, name in enumerate(("a", "b")):
            pair.restart(name, kill=True)
            pair.admin.patch(INSTANCE, "x", {"metadata": {"labels": {"turn": str(turn)}}}, namespace)
            assert _next(lines, "x")["event"] == "update"


@row("client: informer on every kind", "the streaming list of mapped kinds ends too (B004)")
@pytest.mark.parametrize(
    "plural",
    [
        "devices",
        "instancetypes",
        "instancetypeflavors",
        "instancesshpublickeys",
        "instanceimagepullsecrets",
        "instancepersistentvolumes",
        "instancepersistentvolumetypes",
    ],
)
def test_b004_every_kind_syncs(pair: Replicas, plural: str) -> None:
    with _informer(pair, plural) as lines:
        while not lines.next().startswith('{"synced":'):
            pass


def _informer(pair: Replicas, plural: str, *flags: str) -> Lines:
    binary = str(pair.control_plane.tools.binary("informer"))
    target = ("-group", "worker.gpustack.ai", "-version", "v1", "-resource", plural)
    return Lines([binary, "-kubeconfig", str(pair.control_plane.kubeconfig), *target, *flags])


def _next(lines: Lines, name: str) -> dict[str, str]:
    """Return what an informer tells next of one object; others come and go beside it."""
    while True:
        line = lines.next()
        told: dict[str, str] = json.loads(line) if line.startswith("{") else {}  # client-go logs there too
        if told.get("name") == name:
            return told


def _run(program: str, pair: Replicas, namespace: str) -> None:
    """Run a client in a process of its own: its warnings and threads are not ours."""
    command = [sys.executable, str(PROGRAMS / program), str(pair.control_plane.kubeconfig), namespace]
    body = json.dumps(instance("made", namespace=namespace))
    done = subprocess.run(command, input=body, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
