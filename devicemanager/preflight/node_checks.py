"""What every node needs, whatever its cards: kubelet sockets, folders, the container engine (spec 06 §15).

In: the host's files. Out: checks. Promises: reads only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import yaml

from devicemanager.injection.host import Host
from devicemanager.preflight.report import NODE, Check, Depth, State
from nodefeature.fields import as_map, as_str

KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
POD_RESOURCES_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
RUNTIMES = ("docker", "nerdctl", "ctr")
_KUBELET_CONFIGS = ("/var/lib/kubelet/config.yaml",)
_DROP_INS = "/var/lib/kubelet/kubelet.conf.d"
_FLAGS_FILE = "/var/lib/kubelet/kubeadm-flags.env"
_ENDPOINT_FLAG = re.compile(r"--container-runtime-endpoint[= ]\"?([^\s\"]+)")
_BINARIES = ("/usr/bin", "/usr/local/bin", "/bin")


def node_checks(host: Host, *, node_name: str, kubelet_socket: str = KUBELET_SOCKET) -> list[Check]:
    """Return the checks of the node itself."""
    return [
        _node_name(node_name),
        _socket(host, "kubelet-registration", kubelet_socket, "start the kubelet, or name its socket by --kube-socket"),
        _socket(
            host,
            "kubelet-pod-resources",
            POD_RESOURCES_SOCKET,
            "mount /var/lib/kubelet/pod-resources into the agent; without it Pods are told apart by guessing",
        ),
        _engine(host),
    ]


def container_engine(host: Host) -> str:
    """Return the endpoint the kubelet uses: its flags, then its configuration and drop-ins; empty when none says."""
    flag = _ENDPOINT_FLAG.search(_running_flags(host)) or _ENDPOINT_FLAG.search(host.read_or_none(_FLAGS_FILE) or "")
    if flag:
        return flag[1]
    endpoint = ""
    drop_ins = [f"{_DROP_INS}/{name}" for name in host.names(_DROP_INS) if name.endswith(".conf")]
    for path in (*_KUBELET_CONFIGS, *drop_ins):
        endpoint = _endpoint_in(host.read_or_none(path) or "") or endpoint
    return endpoint


def runtime_of(host: Host, asked: str = "") -> str:
    """Return the tool that drives the node's containers; empty when there is none."""
    if asked:
        return asked
    endpoint = container_engine(host)
    wanted = RUNTIMES if "docker" in endpoint or not endpoint else RUNTIMES[1:]
    return next((tool for tool in wanted if any(host.exists(f"{place}/{tool}") for place in _BINARIES)), "")


def _node_name(name: str) -> Check:
    if name:
        return Check(about=NODE, name="node-name", state=State.OK, said=name)
    return Check(
        about=NODE,
        name="node-name",
        state=State.UNAVAILABLE,
        said="environment variable KUBERNETES_NODE_NAME is not set",
        remedy="set it from spec.nodeName of the agent's Pod",
    )


def _socket(host: Host, name: str, path: str, remedy: str) -> Check:
    if host.exists(path):
        return Check(about=NODE, name=name, state=State.OK, said=path)
    return Check(about=NODE, name=name, state=State.UNAVAILABLE, said=f"{path} is not there", remedy=remedy)


def _engine(host: Host) -> Check:
    endpoint = container_engine(host)
    if endpoint:
        return Check(about=NODE, name="container-engine", state=State.OK, said=endpoint)
    tool = runtime_of(host)
    if tool:
        return Check(about=NODE, name="container-engine", state=State.OK, said=f"{tool}, found by its binary")
    return Check(
        about=NODE,
        name="container-engine",
        state=State.NOT_DECLARED,
        said="the kubelet names no endpoint and no tool is there",
        remedy="name the tool by --runtime to have containers probed",
    )


def _running_flags(host: Host) -> str:
    for process in _processes(host):
        if host.read_or_none(f"/proc/{process}/comm") in ("kubelet\n", "kubelet"):
            return (host.read_or_none(f"/proc/{process}/cmdline") or "").replace("\0", " ")
    return ""


def _processes(host: Host) -> Iterable[str]:
    return (name for name in host.names("/proc") if name.isdecimal())


def _endpoint_in(text: str) -> str:
    try:
        return as_str(as_map(yaml.safe_load(text)).get("containerRuntimeEndpoint"))
    except yaml.YAMLError:
        return ""


def depth_of(*, is_recorded: bool) -> Depth:
    """Return how far a reading of cards goes: a replayed machine is only played through."""
    return Depth.SIMULATED if is_recorded else Depth.MEASURED
