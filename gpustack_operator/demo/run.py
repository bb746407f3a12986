"""The demo's supervisor: starts the processes, waits until the chain is settled, prints what came out, then asks for
Instances (`story.py`).

For: `gpustack-operator demo`. In: options. Out: an exit code, tables on standard output, progress on standard error.
Promises: nothing is left running or lying about; a child that dies ends the demo with its last lines; settled means
that for `QUIET_S` no object of the chain has changed and every machine is in its pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustack_operator.config import SYSTEM_NAMESPACE, DemoOptions
from gpustack_operator.demo import report
from gpustack_operator.demo.check import findings
from gpustack_operator.demo.children import Children
from gpustack_operator.demo.fleet import DemoFleet, prepare_fleet
from gpustack_operator.demo.progress import Progress
from gpustack_operator.demo.story import play
from gpustack_operator.demo.world import World, read_world
from kube.client import Client
from kube.connection import Connection
from kube.credentials import find_credentials
from kube.errors import AlreadyExists, OperatorError, Unreachable
from nodefeature.kinds import NAMESPACE

QUIET_S = 3.0
_LOOK_S = 0.5
_API_SERVER = (
    "--bind-address=127.0.0.1",
    "--secure-port=0",
    "--external-name=localhost",
    "--shutdown-delay-duration=0s",  # nobody's request is lost when everything ends together
)
_CHECKOUT = Path(__file__).resolve().parents[2]


class NotSettled(OperatorError):
    """The chain still moved, or was wrong, when the time was over."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one run keeps what."""

    folder: Path

    @property
    def kubeconfig(self) -> Path:
        """File that kubectl and the children are given."""
        return self.folder / "kubeconfig"

    @property
    def logs(self) -> Path:
        """Folder of the children's logs."""
        return self.folder / "logs"

    @property
    def machines(self) -> Path:
        """Folder of the machine files the agents replay."""
        return self.folder / "machines"

    @property
    def kubelets(self) -> Path:
        """Folder of the kubelets' sockets; short, since a socket's path may have 107 characters."""
        return self.folder / "k"


async def demo(options: DemoOptions, environ: Mapping[str, str]) -> int:
    """Run the demo and return its exit code."""
    print(report.BANNER, flush=True)
    with contextlib.ExitStack() as stack:
        folder = options.state_dir or stack.enter_context(tempfile.TemporaryDirectory(prefix="gpustack-demo-"))
        place = Place(Path(folder))
        for needed in (place.folder, place.logs, place.machines):
            needed.mkdir(parents=True, exist_ok=True)
        own = {**environ, "PYTHONPATH": str(_CHECKOUT), "KUBECONFIG": str(place.kubeconfig)}
        children = Children(place.logs, own)
        try:
            code = await _until_interrupted(_act(options, place, children, own))
            # Who asked for a check has none; who only looked has seen enough.
            return int(options.exit_when_settled) if code is None else code
        finally:
            await children.stop()


async def _until_interrupted(work: Coroutine[Any, Any, int]) -> int | None:
    """Run `work`; None when Ctrl-C or SIGTERM ended it."""
    task = asyncio.create_task(work, name="demo")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        print("\nstopped", file=sys.stderr)
        return None


async def _act(options: DemoOptions, place: Place, children: Children, environ: Mapping[str, str]) -> int:
    fleet = prepare_fleet(_CHECKOUT / "hack" / "demo-fleet.yaml", place.machines)
    progress = Progress(sys.stderr)
    # One that an earlier run left in the folder leads to a port where nobody listens.
    place.kubeconfig.unlink(missing_ok=True)
    await children.start(
        "devcluster",
        _python("hack.devcluster", "--data-dir", str(place.folder / "store"), "--kubeconfig", str(place.kubeconfig)),
    )
    died = asyncio.create_task(children.first_death())
    settled = asyncio.create_task(_show(options, place, children, fleet, progress=progress, environ=environ))
    try:
        await asyncio.wait((died, settled), return_when=asyncio.FIRST_COMPLETED)
        if died.done():
            progress.end()
            await died
        wrong = await settled
        if options.exit_when_settled:
            return 1 if wrong else 0
        print("\nRunning on; Ctrl-C ends it.", flush=True)
        await died
    finally:
        for task in (died, settled):
            task.cancel()
    return 0


async def _show(
    options: DemoOptions,
    place: Place,
    children: Children,
    fleet: DemoFleet,
    *,
    progress: Progress,
    environ: Mapping[str, str],
) -> list[str]:
    """Play both acts and print them; return everything that is wrong."""
    world = await _settle(options, place, children, fleet, progress)
    progress.end()
    wrong = findings(fleet.machines, world)
    _print_pools(world)
    client = await _api_client(place)
    try:
        wrong += await play(client, environ, fleet.this_machine)
    finally:
        await client.connection.close()
    _print_result(place, world, wrong, ends=options.exit_when_settled)
    return wrong


async def _settle(
    options: DemoOptions, place: Place, children: Children, fleet: DemoFleet, progress: Progress
) -> World:
    """Start everything after the API server, then look until nothing moves."""
    client = await _api_client(place)
    try:
        async with asyncio.timeout(options.timeout):
            # An installation makes it; here nobody installs. In a folder that was kept it stands already.
            with contextlib.suppress(AlreadyExists):
                await client.create(NAMESPACE, {"metadata": {"name": SYSTEM_NAMESPACE}})
            standins = (*fleet.standin_flags(), "--kubelet-root", str(place.kubelets))
            await children.start("standins", _python("hack.devcluster.standins", *standins))
            await children.start("apiserver", _operator("apiserver", *_API_SERVER))
            await children.start("controllers", _operator("controllers", "--leader-elect=false"))
            for node, flags in fleet.agents(place.kubelets).items():
                await children.start(f"agent-{node}", _operator("device-manager", "serve", "--node-name", node, *flags))
                await asyncio.sleep(0)
            return await _watch_until_quiet(client, fleet, progress)
    except TimeoutError as late:
        world = await read_world(client)
        wrong = "\n  ".join(findings(fleet.machines, world) or ["objects were still changing"])
        raise NotSettled(f"nothing settled within {options.timeout:.0f} s:\n  {wrong}") from late
    finally:
        await client.connection.close()


async def _api_client(place: Place) -> Client:
    """Wait for the devcluster's kubeconfig, then for its first answer."""
    while not place.kubeconfig.exists():  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(_LOOK_S / 5)
    client = Client(Connection(find_credentials(kubeconfig=str(place.kubeconfig))))
    while True:
        try:
            await read_world(client)
            return client
        except Unreachable:
            await asyncio.sleep(_LOOK_S / 5)


async def _watch_until_quiet(client: Client, fleet: DemoFleet, progress: Progress) -> World:
    loop = asyncio.get_running_loop()
    last, since = None, loop.time()
    while True:
        world = await read_world(client)
        progress.show(world, fleet)
        if world.version() != last:
            last, since = world.version(), loop.time()
        elif loop.time() - since >= QUIET_S and not findings(fleet.machines, world):
            return world
        await asyncio.sleep(_LOOK_S)


def _print_pools(world: World) -> None:
    print(f"{report.pools(world)}\n\n{report.LEGEND}\n{report.flavors(world)}\n\n{report.queues(world)}\n", flush=True)


def _print_result(place: Place, world: World, wrong: list[str], *, ends: bool) -> None:
    """Print the verdict when the demo `ends` here, else how to look further."""
    if not ends:
        ours = _CHECKOUT / ".venv" / "bin"  # `make demo` looks there last, a shell of its user does not
        found = [Path(command).parent for command in map(shutil.which, ("gpustack-operator", "kubectl")) if command]
        print(report.further(place.kubeconfig, place.logs, ours if ours in found else None))
    if wrong:
        print("\nNot as it should be:\n  " + "\n  ".join(wrong))
    elif ends:
        print(report.verdict(world))
    sys.stdout.flush()


def _python(module: str, *flags: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *flags)


def _operator(*words: str) -> tuple[str, ...]:
    return _python("gpustack_operator", *words, "--log-format=text")
