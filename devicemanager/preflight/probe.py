"""Probing a slice in a real container (spec 06 §15).

In: a plan of half a card, an image, a container tool. Out: command lines, and checks made of running them.
Promises: a container is unprivileged, labelled, removed, and swept before the next probe; `ctr` is never driven: what
it would do is written out.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from devicemanager.injection.request import Plan
from devicemanager.preflight.report import Check, Depth, State

LABEL = "gpustack.ai/preflight=true"
NAMESPACE = "gpustack-preflight"
_PRELOADED = {
    "nvidia": "libvgpu.so",
    "ascend": "libvruntime.so",
    "amd": "libvrocm.so",
    "thead": "hggc_quota.so",
}
_HYGON_FILE = "/etc/vdev/docker/vdev0.conf"


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    code: int
    output: str


class Runner(Protocol):
    """Runs commands on the host."""

    def run(self, command: Sequence[str]) -> Ran:
        """Return how a command ended; a command that is not there ends with 127."""


def can_probe(maker: str) -> bool:
    """Say whether a container can show that a manufacturer's slice is limited."""
    return maker in _PRELOADED or maker == "hygon"


def probe_command(maker: str, plan: Plan, image: str, tool: str, runtime: str = "") -> list[str]:
    """Return the command that runs half a card in a container and looks for what limits it."""
    command = [tool]
    if tool == "nerdctl":
        command += ["--namespace", NAMESPACE]
    command += ["run", "--rm", "--label", LABEL, "--network", "none"]
    if runtime:
        command += ["--runtime", runtime]
    for name, value in plan.env.items():
        command += ["--env", f"{name}={value}"]
    for node in plan.devices:
        command += ["--device", f"{node.path}:{node.path}:{node.permissions}"]
    for mount in plan.mounts:
        command += ["--volume", f"{mount.host_path}:{mount.container_path}" + (":ro" if mount.read_only else "")]
    looks_for = _PRELOADED.get(maker)
    question = f"grep -q {looks_for} /proc/self/maps" if looks_for else f"test -r {_HYGON_FILE}"
    return [*command, image, "sh", "-c", question]


def sweep_commands(tool: str) -> tuple[list[str], list[str]]:
    """Return the commands that list, and begin the removal of, what an earlier probe left."""
    base = [tool, "--namespace", NAMESPACE] if tool == "nerdctl" else [tool]
    return [*base, "ps", "--all", "--quiet", "--filter", f"label={LABEL}"], [*base, "rm", "--force"]


def probe(maker: str, plan: Plan, *, image: str, tool: str, runner: Runner, runtime: str = "") -> Check:
    """Run the probe."""
    listing, removal = sweep_commands(tool)
    left = runner.run(listing)
    if left.code == 0 and left.output.split():
        runner.run([*removal, *left.output.split()])
    ran = runner.run(probe_command(maker, plan, image, tool, runtime))
    name = "sliced-container"
    if ran.code == 0:
        return Check(about=maker, name=name, state=State.OK, depth=Depth.MEASURED, said=f"{tool} ran {image}")
    return Check(
        about=maker,
        name=name,
        state=State.UNAVAILABLE,
        depth=Depth.MEASURED,
        said=f"{tool} ended with {ran.code}: {ran.output.strip()[-200:]}",
        remedy="run the command by hand (--dry-run prints it)",
    )


def written_out(command: Sequence[str]) -> str:
    """Return a command as a person would type it."""
    return shlex.join(command)
