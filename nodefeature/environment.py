"""Environment variables the product reads (spec 01 §13).

For: the processes' start, the reference page, `explain`.
In: a mapping handed over by the roof. Out: declarations, and typed readings of them.
Promises:
  - nothing here looks at the process environment;
  - every variable has one declaration with its default, its processes and its effect; an empty value is an unset one;
  - a value that cannot be read is named in `environment_problems`, and the default stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from nodefeature.labels import PCI_CLASS_PREFIXES, SYSTEM_NAMESPACE
from nodefeature.manufacturers import INJECTION_STRATEGIES, MANUFACTURER_NAMES


class Process(StrEnum):
    """Who reads a variable."""

    WORKER = "worker"
    DEVICE_MANAGER = "device-manager"


_ALL = (Process.WORKER, Process.DEVICE_MANAGER)
_WORKER = (Process.WORKER,)
_AGENT = (Process.DEVICE_MANAGER,)
_CLASS = re.compile(r"[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Variable:
    """One declared variable."""

    name: str
    default: str
    processes: tuple[Process, ...]
    effect: str

    def read(self, env: Mapping[str, str]) -> str:
        """Return the value in `env`, the default when it is unset or empty."""
        return env.get(self.name, "") or self.default


DATA_DIR = Variable("GPUSTACK_DATA_DIR", "/var/lib/gpustack", _ALL, "Root of the data the process keeps on disk.")
CONF_DIR = Variable("GPUSTACK_CONF_DIR", "/etc/gpustack", _ALL, "Root of configuration files and bundled charts.")
PCI_CLASSES = Variable(
    "GPUSTACK_PCI_CLASS_PREFIXES",
    ",".join(PCI_CLASS_PREFIXES),
    _AGENT,
    "Comma-separated PCI class prefixes the local scan looks under.",
)
GROUP_ID_WITH_MEMORY = Variable(
    "GPUSTACK_DEVICES_GROUP_ID_WITH_MEMORY",
    "false",
    _AGENT,
    "Exactly `true` adds the memory to a device group's id, telling equal names with unequal memory apart.",
)
SLICED_ALLOCATE_GATE = Variable(
    "GPUSTACK_DEVICE_PLUGIN_SLICED_ALLOCATE_GATE",
    "true",
    _AGENT,
    "Refuse to allocate a slice that the accelerator cannot hold; `false` lets the ledger stop at zero.",
)
IDENTIFY_BY_KUBELET = Variable(
    "GPUSTACK_DEVICE_PLUGIN_IDENTIFY_BY_KUBELET",
    "true",
    _AGENT,
    "Ask the kubelet which container an allocation is for; `false` judges by the Pods that wait.",
)
RELEASE_TERMINATED_PODS = Variable(
    "GPUSTACK_LEDGER_RELEASE_TERMINATED_PODS",
    "true",
    _ALL,
    "Stop charging Succeeded and Failed Pods; worker and device manager must agree.",
)
CONTAINERD_CONFIG_DIR = Variable(
    "GPUSTACK_CONTAINERD_CONFIG_DIR",
    "/etc/containerd",
    _AGENT,
    "Directory of the `config.toml` that the `auto` injection strategy reads.",
)
NODE_NAME = Variable("KUBERNETES_NODE_NAME", "", _AGENT, "Name of the node; required.")
POD_NAME = Variable("KUBERNETES_POD_NAME", "", _ALL, "Name of the own Pod.")
POD_NAMESPACE = Variable("KUBERNETES_POD_NAMESPACE", SYSTEM_NAMESPACE, _ALL, "Namespace the product runs in.")
POD_IP = Variable("KUBERNETES_POD_IP", "", _ALL, "Own address; replaces the detection of the host's.")
SERVICE_NAME = Variable("KUBERNETES_SERVICE_NAME", "gpustack-operator-worker", _WORKER, "Name of the own Service.")
SERVICE_HOST = Variable("KUBERNETES_SERVICE_HOST", "", _ALL, "Set inside a cluster.")
INSIDE_CONTAINER = Variable("_RUNNING_INSIDE_CONTAINER_", "false", _ALL, "Whether the process runs in a container.")

_PLAIN = (
    DATA_DIR,
    CONF_DIR,
    PCI_CLASSES,
    GROUP_ID_WITH_MEMORY,
    SLICED_ALLOCATE_GATE,
    IDENTIFY_BY_KUBELET,
    RELEASE_TERMINATED_PODS,
    CONTAINERD_CONFIG_DIR,
    NODE_NAME,
    POD_NAME,
    POD_NAMESPACE,
    POD_IP,
    SERVICE_NAME,
    SERVICE_HOST,
    INSIDE_CONTAINER,
    Variable("ROCM_HOME", "", _AGENT, "AMD toolkit root, before ROCM_PATH."),
    Variable("ROCM_PATH", "/opt/rocm", _AGENT, "AMD toolkit root."),
    Variable("ROCM_SMI_LIB_PATH", "", _AGENT, "Further directory of the AMD SMI library."),
    Variable("AMD_SMI_LIB_PATH", "", _AGENT, "Further directory of the AMD SMI library."),
    Variable("CANN_HOME", "/usr/local/Ascend", _AGENT, "Ascend root."),
    Variable("ASCEND_TOOLKIT_HOME", "/usr/local/Ascend/cann", _AGENT, "Ascend toolkit root."),
    Variable("NEUWARE_HOME", "/usr/local/neuware", _AGENT, "Cambricon toolkit root."),
    Variable("PPU_HOME", "/usr/local/PPU_SDK", _AGENT, "T-Head toolkit root."),
    Variable("COREX_HOME", "/usr/local/corex", _AGENT, "Iluvatar toolkit root."),
    Variable("MACA_HOME", "/opt/maca", _AGENT, "MetaX toolkit root."),
    Variable("LD_LIBRARY_PATH", "", _AGENT, "Directories that vendor libraries are looked for in."),
    Variable("ALL_PROXY", "", _ALL, "Proxy for all requests."),
    Variable("HTTP_PROXY", "", _ALL, "Proxy for http requests."),
    Variable("HTTPS_PROXY", "", _ALL, "Proxy for https requests."),
    Variable("NO_PROXY", "", _ALL, "Hosts, addresses and networks asked directly."),
)
_OF_A_MANUFACTURER = (
    ("PCI_VENDOR_ID", "", "PCI vendor instead of the built-in one, `vendor` or `class_vendor`."),
    ("ACCELERATABLE_RESOURCE_NAME", "", "Base resource name instead of the built-in one."),
    ("ACCELERATABLE_RUNTIME_NAME", "", "RuntimeClass instead of the built-in one."),
    ("PARTITION_KIND", "", "Word for hardware partitions; no effect where the manufacturer has none."),
    (
        "DEVICE_INJECTION_STRATEGY",
        INJECTION_STRATEGIES[0],
        "How cards reach a container: " + ", ".join(f"`{word}`" for word in INJECTION_STRATEGIES) + ".",
    ),
)


def declared_variables() -> tuple[Variable, ...]:
    """Return every declaration; settings' first values (`GPUSTACK_<SETTING>`) are declared with the settings."""
    per_manufacturer = (
        Variable(f"GPUSTACK_{name.upper()}_{suffix}", default, _ALL, effect)
        for name in MANUFACTURER_NAMES
        for suffix, default, effect in _OF_A_MANUFACTURER
    )
    return (*_PLAIN, *per_manufacturer)


def is_group_id_with_memory(env: Mapping[str, str]) -> bool:
    """Say whether group ids carry the memory: only the exact value `true` does."""
    return GROUP_ID_WITH_MEMORY.read(env) == "true"


def is_on(variable: Variable, env: Mapping[str, str]) -> bool:
    """Say whether a switch that is on by default is on: only the exact value `false` turns it off."""
    return variable.read(env) != "false"


def pci_class_prefixes(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the PCI class prefixes of the local scan, in order, without those that are no two hex digits."""
    given = (part.strip().lower() for part in PCI_CLASSES.read(env).split(","))
    legal = tuple(dict.fromkeys(part for part in given if _CLASS.fullmatch(part)))
    return legal or PCI_CLASS_PREFIXES


def environment_problems(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each variable whose value is not what its declaration says."""
    problems = [
        f"{PCI_CLASSES.name}: {part.strip()!r} must be two hex digits; it is left out"
        for part in PCI_CLASSES.read(env).split(",")
        if _CLASS.fullmatch(part.strip().lower()) is None
    ]
    switches = (GROUP_ID_WITH_MEMORY, SLICED_ALLOCATE_GATE, IDENTIFY_BY_KUBELET, RELEASE_TERMINATED_PODS)
    problems += [
        f"{switch.name}={switch.read(env)!r} must be true or false; {switch.default} stays"
        for switch in switches
        if switch.read(env) not in {"true", "false"}
    ]
    return tuple(problems)


def environment_page() -> str:
    """Return the reference page of all variables."""
    rows = "\n".join(_row(variable) for variable in declared_variables())
    return f"""# Environment variables

Generated by `make generate` from `nodefeature/environment.py`. Do not edit.

Each process reads its variables once, at start; an empty value counts as unset. A value that cannot be used is named
in the log, and the default stays. Settings have first values of their own, see [settings](settings.md).

| Variable | Default | Process | Effect |
|---|---|---|---|
{rows}
"""


def _row(variable: Variable) -> str:
    default = f"`{variable.default}`" if variable.default else "unset"
    return f"| `{variable.name}` | {default} | {', '.join(variable.processes)} | {variable.effect} |"
