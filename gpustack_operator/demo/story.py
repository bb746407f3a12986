"""The demo's second act: people ask for Instances, one of them waits, and its turn comes.

For: `run.py`, once the pools have settled. In: the demo's kubeconfig. Out: what a person types and sees, findings.
Promises: everything is asked with kubectl and the product's own command, through the aggregated API; what the act
expects is looked at through the API too, within `PATIENCE_S` for each step; a step that fails is a finding, and ends
the act.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpustack_operator.commands.explain import SERVED
from gpustack_operator.demo import asking
from gpustack_operator.demo.asking import EXCLUSIVE, FITTING, NAMESPACE, WAITING, Pools
from gpustack_operator.demo.world import SERVED_TYPE
from kube.client import Client
from kube.errors import ApiError, Unreachable
from nodefeature.fields import as_maps, as_str, at, name_of
from nodefeature.kinds import DEVICES

PATIENCE_S = 120.0
SETTLE_S = 5.0
"""How long views and queues take to show that what an earlier run left has gone."""
_LOOK_S = 0.3


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs what a person would type, and shows it."""

    environ: Mapping[str, str]

    async def show(self, *words: str, given: str = "") -> int:
        """Print a command line and what it prints; return its exit code."""
        shown = ("gpustack-operator", *words[3:]) if words[0] == sys.executable else words
        print(f"$ {' '.join(shown)}", flush=True)
        code, text = await self.run(*words, given=given)
        print(f"{text.rstrip()}\n", flush=True)
        return code

    async def run(self, *words: str, given: str = "") -> tuple[int, str]:
        """Run a command; return its exit code and everything it printed."""
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(self.environ),
            start_new_session=True,
        )
        try:
            text, _ = await asyncio.wait_for(process.communicate(given.encode()), PATIENCE_S)
            return process.returncode or 0, text.decode(errors="replace")
        except TimeoutError:
            return 124, f"no end within {PATIENCE_S:.0f} s"
        finally:
            if process.returncode is None:
                # With all it has started: who still holds its output would keep it from ending.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.communicate()


class Failed(Exception):
    """A step of the act did not come out; carries the findings."""

    def __init__(self, wrong: Sequence[str]) -> None:
        super().__init__("; ".join(wrong))
        self.wrong = list(wrong)


async def play(client: Client, environ: Mapping[str, str], here: str) -> list[str]:
    """Play the act; return everything that is not as it should be. `here` is the node that the demo runs on."""
    if shutil.which("kubectl", path=environ.get("PATH")) is None:
        return ["kubectl is not on the PATH: nobody could ask for an Instance"]
    shell = Shell(environ)
    try:
        await clear(shell)
        own = next((each for each in await client.list(DEVICES) if name_of(each) == here), None)
        before = await client.list(SERVED_TYPE)
        pools = asking.choose(before, own)
        if pools is None:
            return ["the fleet has no two free nodes of sliceable cards, no free partition or no CPU pool to ask in"]
        await Act(client, shell, pools).play(before)
    except Failed as failed:
        return failed.wrong
    return []


async def clear(shell: Shell) -> None:
    """Take away what an earlier run left in a folder that was kept."""
    left = (*(f"instance/{name}" for name in asking.NAMES), f"instancesshpublickey/{asking.KEY}")
    code, text = await shell.run("kubectl", "delete", "--ignore-not-found", *left)
    if code:
        raise Failed([f"kubectl could not take away what an earlier run left: {text.strip()}"])
    if text.strip():
        await asyncio.sleep(SETTLE_S)


@dataclass(frozen=True, slots=True)
class Act:
    """The steps."""

    client: Client
    shell: Shell
    pools: Pools

    async def play(self, before: Sequence[Mapping[str, Any]]) -> None:
        """Ask, look, explain, delete, look again."""
        await self._ask(asking.key(), *asking.instances(self.pools))
        await self._until(self._lacking(FITTING))
        await self._until(lambda: self._not_moved(before))
        await self._ask(asking.one_too_many(self.pools))
        await self._until(self._not_explained)
        await self.shell.show("kubectl", "get", "instances")
        print("The four views have moved: whole cards, shares, slices and partitions that are left.")
        await self.shell.show("kubectl", "get", "instancetypes", *self.pools.names)
        await self.shell.show(*_explain(), f"{NAMESPACE}/{WAITING}")
        print("One goes, and the one that waits has its cards:")
        if await self.shell.show("kubectl", "delete", "instance", EXCLUSIVE):
            raise Failed([f"kubectl could not delete Instance {EXCLUSIVE}"])
        await self._until(self._lacking([*FITTING[1:], WAITING]))
        await self.shell.show("kubectl", "get", "instances")

    async def _ask(self, *objects: Mapping[str, Any]) -> None:
        # Documents, not a List: kubectl looks up what the server checks kind by kind, and finds no List.
        given = "\n---\n".join(json.dumps(each) for each in objects)
        if await self.shell.show("kubectl", "create", "-f", "-", given=given):
            raise Failed(["kubectl could not create what the demo asks for"])

    async def _until(self, wrong: Callable[[], Awaitable[list[str]]]) -> None:
        """Look until nothing is wrong; Failed with what still is when patience ends."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_S
        while True:
            try:
                found = await wrong()
            except (ApiError, Unreachable) as error:
                found = [str(error)]
            if not found:
                return
            if loop.time() > end:
                raise Failed(found)
            await asyncio.sleep(_LOOK_S)

    def _lacking(self, names: Sequence[str]) -> Callable[[], Awaitable[list[str]]]:
        async def look() -> list[str]:
            return asking.lacking(await self.client.list(SERVED, NAMESPACE), names)

        return look

    async def _not_moved(self, before: Sequence[Mapping[str, Any]]) -> list[str]:
        return asking.not_moved(before, await self.client.list(SERVED_TYPE), self.pools)

    async def _not_explained(self) -> list[str]:
        """Look whether the one that waits is told to wait for quota, with figures."""
        found = await self.client.get(SERVED, WAITING, NAMESPACE, subresource="explain")
        quota = next((gate for gate in as_maps(found.get("gates")) if gate.get("name") == "Quota"), {})
        asked, free = (at(quota, "numbers", name) for name in ("asked", "free"))
        if found.get("waitingAt") == "Quota" and isinstance(asked, int) and isinstance(free, int) and free < asked:
            return []
        return [f"Instance {WAITING} does not wait for quota: {as_str(found.get('summary'))}"]


def _explain() -> tuple[str, ...]:
    return (sys.executable, "-m", "gpustack_operator", "explain")
