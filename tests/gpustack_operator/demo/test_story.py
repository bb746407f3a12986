"""The second act: what is asked for, what must have become of it, and what is shown."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gpustack_operator.demo import asking, story
from gpustack_operator.demo.asking import CPU, EXCLUSIVE, FITTING, NAMES, PARTITIONED, SLICED, WAITING, Pools, choose
from gpustack_operator.demo.story import Act, Failed, Shell, play
from gpustack_operator.demo.world import SERVED_TYPE
from kube.client import Client
from nodefeature.fields import name_of
from nodefeature.kinds import DEVICES

POOLS = Pools("h100", 8, "a100", "3g.40gb", "cpu")


def view(remaining: int, once: int = 0) -> dict[str, str]:
    return {"remaining": str(remaining), "onceMaxRequest": str(once), "capacity": str(remaining)}


def pool(
    name: str, *, cards: int = 0, once: int = 0, slices: int = 0, profiles: Sequence[str] = (), cpu: int = 0
) -> Any:
    status = {
        "accelerator": view(cards, once),
        "acceleratorShared": view(cards * 10),
        "acceleratorSliced": view(cards * 100),
        "acceleratorPartitioned": {
            **view(len(profiles)),
            "remainingProfiles": [{"name": profile, "count": 1} for profile in profiles],
        },
        "cpu": view(cpu),
        "detail": {"slicedDetail": {"logical": {"count": slices}}},
    }
    group = f"nvidia-{name}" if not cpu else ""
    return {
        "metadata": {"name": name},
        "spec": {"acceleratable": not cpu, "acceleratorGroup": group},
        "status": status,
    }


FLEET = [
    pool("h100", cards=16, once=8, slices=128),
    pool("mi308x", cards=32, once=8),
    pool("rtx", cards=8, once=8, slices=128),
    pool("a100", profiles=("1g.10gb", "3g.40gb", "7g.80gb")),
    pool("cpu", cpu=400),
    pool("cpu-small", cpu=4),
]


def test_pools_are_chosen_by_what_they_can_give() -> None:
    assert choose(FLEET, None) == POOLS


def test_this_machines_own_cards_are_not_asked_for() -> None:
    here = {"spec": {"groups": [{"id": "h100", "manufacturer": "nvidia"}]}}
    assert choose(FLEET, here) is None
    assert choose([*FLEET, pool("b200", cards=16, once=8, slices=128)], here) == Pools(
        "b200", 8, "a100", "3g.40gb", "cpu"
    )


@pytest.mark.parametrize("missing", ["h100", "a100"])
def test_a_fleet_that_lacks_a_pool_is_not_asked(missing: str) -> None:
    assert choose([each for each in FLEET if name_of(each) != missing], None) is None


def test_one_of_each_family_is_asked_for_and_one_too_many() -> None:
    asked = {name_of(each): each["spec"] for each in (*asking.instances(POOLS), asking.one_too_many(POOLS))}
    assert tuple(asked) == NAMES
    assert asked[EXCLUSIVE]["resources"] == asked[WAITING]["resources"] == {"accelerator": "8"}
    assert asked[SLICED]["resources"] == {"accelerator": "1", "acceleratorSlicedMemoryPercentage": 50}
    assert asked[PARTITIONED]["resources"]["acceleratorPartitionedProfile"] == "3g.40gb"
    assert asked[CPU]["type"] == "cpu"
    assert all(spec["sshPublicKey"] == {"name": asking.KEY} for spec in asked.values())


def ready(name: str, ports: str = "22:30001/TCP,8080:30002/TCP") -> Any:
    status = {"phase": "Ready", "summary": {"ports": ports}, "accessAddresses": ["10.0.0.1"]}
    return {"metadata": {"name": name}, "status": status}


LACKING: dict[str, tuple[list[Any], str]] = {
    "all is well": ([ready("a")], ""),
    "not there": ([], "Instance a is not there: no message"),
    "not ready": (
        [{"metadata": {"name": "a"}, "status": {"phase": "Pending", "phaseMessage": "why"}}],
        "is Pending: why",
    ),
    "without ports": ([ready("a", "22:0/TCP")], "without ports or an address"),
    "status null": ([{"metadata": {"name": "a"}, "status": None}], "is not there"),
}


@pytest.mark.parametrize("row", LACKING.values(), ids=LACKING)
def test_what_is_missing_of_an_instance(row: tuple[list[Any], str]) -> None:
    found, wanted = row
    wrong = asking.lacking(found, ["a"])
    assert (len(wrong) == 1 and wanted in wrong[0]) if wanted else not wrong


def test_views_must_lose_exactly_what_is_taken() -> None:
    after = [
        pool("h100", cards=7, once=7, slices=128),
        pool("a100", profiles=("1g.10gb",)),
        pool("cpu", cpu=398),
    ]
    after[0]["status"]["acceleratorSliced"]["remaining"] = "750"
    assert asking.not_moved(FLEET, after, POOLS) == []
    after[2]["status"]["cpu"]["remaining"] = "400"
    assert asking.not_moved(FLEET, after, POOLS) == ["type cpu: cpu lost 0, 2 are taken"]
    assert len(asking.not_moved(FLEET, FLEET, POOLS)) == 5


class FakeClient:
    """Answers from lists; an Instance is Ready as soon as it was created, but the one too many, until there is room."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.types: list[Any] = list(FLEET)
        self.here: list[Any] = []

    async def list(self, kind: Any, namespace: str = "") -> Any:
        if kind is DEVICES:
            return self.here
        if kind is SERVED_TYPE:
            return self.types
        room = EXCLUSIVE not in self.names
        return [ready(name) for name in self.names if name != WAITING or room]

    async def get(self, kind: Any, name: str, namespace: str, *, subresource: str) -> Any:
        assert (name, subresource) == (WAITING, "explain")
        return {"waitingAt": "Quota", "gates": [{"name": "Quota", "numbers": {"asked": 8, "free": 7}}]}


@dataclass(frozen=True, slots=True)
class FakeShell(Shell):
    """Notes what is typed, and does it to the client's lists."""

    client: FakeClient
    typed: list[str] = field(default_factory=list)

    async def run(self, *words: str, given: str = "") -> tuple[int, str]:
        self.typed.append(" ".join(words[words.index("explain") :] if "explain" in words else words))
        client = self.client
        if given:
            asked = [json.loads(each) for each in given.split("\n---\n")]
            client.names += [name_of(each) for each in asked if each["kind"] == "Instance"]
            after = [pool("h100", cards=7, slices=128), pool("a100"), pool("cpu", cpu=398)]
            after[0]["status"]["acceleratorSliced"]["remaining"] = "750"
            client.types = after
        if words[1] == "delete" and words[2] == "instance":
            client.names.remove(words[3])
        return 0, "shown"


def act(client: FakeClient) -> tuple[Act, FakeShell]:
    shell = FakeShell({}, client)
    return Act(cast(Client, client), shell, POOLS), shell


def test_the_act_is_what_a_person_would_type(capsys: pytest.CaptureFixture[str]) -> None:
    client = FakeClient()
    played, shell = act(client)
    asyncio.run(played.play(FLEET))
    assert shell.typed == [
        "kubectl create -f -",
        "kubectl create -f -",
        "kubectl get instances",
        "kubectl get instancetypes h100 a100 cpu",
        "explain default/one-too-many",
        "kubectl delete instance exclusive",
        "kubectl get instances",
    ]
    printed = capsys.readouterr().out
    assert "$ gpustack-operator explain default/one-too-many\nshown" in printed
    assert client.names == [*FITTING[1:], WAITING]


def test_a_step_that_does_not_come_out_ends_the_act(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "PATIENCE_S", 0.0)
    monkeypatch.setattr(story, "_LOOK_S", 0.0)
    client = FakeClient()
    played, _ = act(client)
    monkeypatch.setattr(asking, "not_moved", lambda *_: ["type cpu: nothing moved"])
    with pytest.raises(Failed, match="type cpu: nothing moved"):
        asyncio.run(played.play(FLEET))


def test_without_kubectl_nobody_asks() -> None:
    found = asyncio.run(play(cast(Client, FakeClient()), {"PATH": "/nowhere"}, "here"))
    assert found == ["kubectl is not on the PATH: nobody could ask for an Instance"]


SHELLS: dict[str, tuple[tuple[str, ...], tuple[int, str]]] = {
    "prints": (("sh", "-c", "cat; echo err >&2"), (0, "given\nerr\n")),
    "fails": (("sh", "-c", "exit 3"), (3, "")),
    "never ends": (("sh", "-c", "sleep 60; true"), (124, "no end within 0 s")),
}


@pytest.mark.component
@pytest.mark.parametrize("row", SHELLS.values(), ids=SHELLS)
def test_a_shell_tells_code_and_text(
    row: tuple[tuple[str, ...], tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    words, wanted = row
    monkeypatch.setattr(story, "PATIENCE_S", 0.2 if "sleep" in words[-1] else 30.0)
    environ: Mapping[str, str] = dict(os.environ)
    assert asyncio.run(Shell(environ).run(*words, given="given\n")) == wanted
