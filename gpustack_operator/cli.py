"""The command `gpustack-operator`.

For: people and Pods. In: a command line and the environment. Out: an exit code: 0 done, 1 failed, 2 wrongly asked.
Promises: every mistake of a command line is reported at once, before anything starts; a command's modules are imported
only when it runs; a failure is one readable message, never a traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

from gpustack_operator import config
from gpustack_operator.options import ConfigMistakes, add_flags, load, unknown_variables
from kube.errors import OperatorError

PROGRAM = "gpustack-operator"


@dataclass(frozen=True, slots=True)
class Argument:
    """One word that a command needs beside its flags; it reaches `run` as the keyword `name`."""

    name: str
    shown: str
    about: str


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand: its words, what it is for, its options, and the module whose `run` does it."""

    words: tuple[str, ...]
    about: str
    module: str
    groups: tuple[type[Any], ...] = ()
    argument: Argument | None = None


COMMANDS = (
    Command(
        ("apiserver",),
        "serve instances and their kinds as an aggregated API",
        "gpustack_operator.commands.apiserver",
        (config.KubeOptions, config.ServiceOptions, config.ApiServerOptions, config.LogOptions),
    ),
    Command(
        ("controllers",),
        "run the reconcilers of the scheduling chain",
        "gpustack_operator.commands.controllers",
        (
            config.KubeOptions,
            config.ElectionOptions,
            config.ManufacturerOptions,
            config.HealthOptions,
            config.LogOptions,
        ),
    ),
    Command(
        ("worker",),
        "run apiserver and controllers in one process, outside a cluster",
        "gpustack_operator.commands.worker",
        (
            config.KubeOptions,
            config.ServiceOptions,
            config.ApiServerOptions,
            config.ElectionOptions,
            config.ManufacturerOptions,
            config.HealthOptions,
            config.LogOptions,
        ),
    ),
    Command(
        ("uninstall",),
        "take the APIServices out of the cluster, before or after the server has gone",
        "gpustack_operator.commands.uninstall",
        (config.KubeOptions, config.ServiceOptions, config.LogOptions),
    ),
    Command(
        ("explain",),
        "say why an Instance or a Pod waits, gate by gate",
        "gpustack_operator.commands.explain",
        (config.KubeOptions, config.OutputOptions, config.LogOptions),
        Argument("target", "[pod/]NAMESPACE/NAME", "the Instance, or the Pod, in question"),
    ),
    Command(
        ("device-manager", "serve"),
        "find this node's cards, publish them and keep them published",
        "gpustack_operator.commands.serve",
        (
            config.KubeOptions,
            config.ManufacturerOptions,
            config.DetectorOptions,
            config.AgentOptions,
            config.PluginOptions,
            config.InjectionOptions,
            config.SecureOptions,
            config.HealthOptions,
            config.LogOptions,
        ),
    ),
    Command(
        ("device-manager", "detect"),
        "print this node's cards once, as YAML, in the shape of Devices spec.groups",
        "gpustack_operator.commands.detect",
        (config.ManufacturerOptions, config.DetectorOptions, config.LogOptions),
    ),
    Command(
        ("device-manager", "monitor"),
        "show how busy this node's cards are",
        "gpustack_operator.commands.monitor",
        (
            config.ManufacturerOptions,
            config.DetectorOptions,
            config.OutputOptions,
            config.WatchOptions,
            config.LogOptions,
        ),
    ),
    Command(
        ("device-manager", "preflight"),
        "check whether this node's cards can be found, sliced and watched over",
        "gpustack_operator.commands.preflight",
        (
            config.ManufacturerOptions,
            config.DetectorOptions,
            config.InjectionOptions,
            config.PreflightOptions,
            config.OutputOptions,
            config.LogOptions,
        ),
    ),
    Command(("crds",), "print the CustomResourceDefinitions as YAML", "gpustack_operator.commands.crds"),
    Command(
        ("rbac",),
        "print the ServiceAccounts, roles and bindings the processes need, as YAML",
        "gpustack_operator.commands.rbac",
        (config.RbacOptions,),
    ),
    Command(
        ("demo",),
        "run the whole chain on this machine, without a cluster",
        "gpustack_operator.commands.demo",
        (config.DemoOptions,),
    ),
)
ALIASES = {"device-manager": ("dm",)}


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; every value is still text."""
    root = argparse.ArgumentParser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="Turns raw accelerator hardware into a Kueue scheduling chain on Kubernetes.",
        epilog="Runtime settings live in Secret gpustack-settings; see docs/reference/settings.md.",
    )
    root.add_argument("--version", action="version", version=f"{PROGRAM} {version(PROGRAM)}")
    levels: dict[tuple[str, ...], argparse._SubParsersAction[argparse.ArgumentParser]]
    levels = {(): root.add_subparsers(title="commands", metavar="COMMAND", required=True)}
    for command in COMMANDS:
        for depth in range(1, len(command.words)):
            group = command.words[:depth]
            if group not in levels:
                made = levels[group[:-1]].add_parser(
                    group[-1], aliases=ALIASES.get(group[-1], ()), help="commands of the node agent", allow_abbrev=False
                )
                levels[group] = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
        leaf = levels[command.words[:-1]].add_parser(
            command.words[-1],
            help=command.about,
            description=f"{command.about[0].upper()}{command.about[1:]}.",
            allow_abbrev=False,
        )
        if command.argument is not None:
            leaf.add_argument(command.argument.name, metavar=command.argument.shown, help=command.argument.about)
        add_flags(leaf, command.groups)
        leaf.set_defaults(command=command)
    return root


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run one command and return its exit code."""
    arguments, unknown = parser().parse_known_args(argv)
    command: Command = arguments.command
    mistakes = [f"{word}: no such flag or argument; see {PROGRAM} {' '.join(command.words)} --help" for word in unknown]
    mistakes += unknown_variables(environ, [group for each in COMMANDS for group in each.groups])
    options: list[Any] = []
    try:
        options = load(command.groups, vars(arguments), environ)
    except ConfigMistakes as wrong:
        mistakes += wrong.mistakes
    if mistakes:
        print("\n".join(f"{PROGRAM}: {mistake}" for mistake in mistakes), file=sys.stderr)
        return 2
    try:
        named = {command.argument.name: vars(arguments)[command.argument.name]} if command.argument else {}
        return int(import_module(command.module).run(*options, environ=environ, **named) or 0)
    except OperatorError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
