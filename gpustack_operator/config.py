"""The options of every command, by topic; under each the unit, the default and its reason.

For: `cli.py`. In: text. Out: frozen values. The mechanism is `options.py`.
Promises: a flag that is not declared here does not exist.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from gpustack_operator.options import Check, option, parse_bool, parse_duration, parse_int, parse_list
from nodefeature.manufacturers import MANUFACTURER_NAMES

SYSTEM_NAMESPACE = "gpustack-system"
PROCESSES = ("controllers", "device-manager", "apiserver")
"""The processes that have an account of their own in the cluster."""


def _port(value: int) -> str:
    return "" if 0 <= value <= 65535 else "out of range: should be 0 to 65535, where 0 lets the system choose"


def _address(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return "should be an IP address"
    return ""


def _host_and_port(value: str) -> str:
    host, colon, port = value.partition(":")
    if not value or (host and not colon):
        return ""
    return "" if host and port.isdecimal() and 0 < int(port) <= 65535 else "should be host or host:port"


def _at_least(low: float, text: str) -> Check:
    def check(value: float) -> str:
        return "" if value >= low else f"should be at least {text}"

    return check


def _known_manufacturers(value: tuple[str, ...]) -> str:
    unknown = [name for name in value if name not in MANUFACTURER_NAMES]
    if unknown or not value:
        return "should be a comma separated list of valid manufacturers, valid manufacturers: " + ", ".join(
            sorted(MANUFACTURER_NAMES)
        )
    return ""


def _known_processes(value: tuple[str, ...]) -> str:
    known = bool(value) and set(value) <= set(PROCESSES)
    return "" if known else "should be a comma separated list of: " + ", ".join(PROCESSES)


def _over_a_second(value: float) -> str:
    return "" if value > 1 else "should be greater than 1s"


def _existing_file(value: str) -> str:
    return "" if not value or Path(value).is_file() else "should name an existing file"


def _kubeconfig(value: str) -> str:
    """As kubectl reads it: several files may be named, and those that do not exist are passed over."""
    found = not value or any(Path(part).is_file() for part in value.split(os.pathsep) if part)
    return "" if found else "should name an existing file"


def _certificate_folder(value: str) -> str:
    if not value:
        return ""
    if not Path(value).is_dir():
        return "no found directory"
    missing = [name for name in ("tls.crt", "tls.key") if not (Path(value) / name).is_file()]
    return f"no found {', '.join(missing)}" if missing else ""


def _existing_folder(value: str) -> str:
    return "" if Path(value).is_dir() else "should name an existing directory"


def _absolute_path(value: str) -> str:
    return "" if value.startswith("/") else "should be an absolute path"


def _output(value: str) -> str:
    return "" if value in ("table", "yaml", "json") else "should be table, yaml or json"


def _container_tool(value: str) -> str:
    return "" if value in ("", "docker", "nerdctl", "ctr") else "should be docker, nerdctl or ctr"


def _log_format(value: str) -> str:
    return "" if value in ("text", "json") else "should be text or json"


def _log_level(value: str) -> str:
    return "" if value in ("debug", "info", "warning", "error") else "should be debug, info, warning or error"


@dataclass(frozen=True, kw_only=True, slots=True)
class LogOptions:
    """Logging."""

    log_format: str = option("json", "text for people, json for machines", check=_log_format)
    log_level: str = option("info", "least level that is written", check=_log_level)


@dataclass(frozen=True, kw_only=True, slots=True)
class KubeOptions:
    """Kubernetes API."""

    # Inside a Pod nothing needs to be said; outside, kubectl's own variable is honoured.
    kubeconfig: str = option(
        "", "kubeconfig file; empty uses the Pod's service account", env="KUBECONFIG", check=_kubeconfig
    )
    namespace: str = option(SYSTEM_NAMESPACE, "namespace of the operator's own objects", env="KUBERNETES_POD_NAMESPACE")
    # The original's 5 minutes hide a dead load balancer for too long; a single call rarely needs more than seconds.
    kube_conn_timeout: float = option(
        60.0, "deadline of one call", parse=parse_duration, check=_at_least(10, "10s"), shown="60s"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthOptions:
    """Health and metrics listener."""

    # Loopback by default: the chart states 0.0.0.0 where a kubelet has to probe.
    health_address: str = option("127.0.0.1", "address that serves /livez, /readyz and /metrics", check=_address)
    health_port: int = option(0, "port of the listener; 0 lets the system choose", parse=parse_int, check=_port)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceOptions:
    """Service of the API server."""

    service_name: str = option("gpustack-operator-worker", "Service that leads to the API server, in the namespace")


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiServerOptions:
    """API server."""

    bind_address: str = option("0.0.0.0", "address the API is served on", check=_address)  # noqa: S104 - a Pod's own
    secure_port: int = option(
        31443, "port the API is served on; 0 lets the system choose", parse=parse_int, check=_port
    )
    cert_dir: str = option(
        "",
        "directory with tls.crt, tls.key and perhaps ca.crt; empty shares a certificate of our own by a Secret",
        check=_certificate_folder,
    )
    service_port: int = option(443, "port of that Service", parse=parse_int, check=_port)
    # A server beside its cluster: the way is the one used inside, through a Service.
    external_name: str = option(
        "",
        "host[:port] under which kube-apiserver reaches a server outside the cluster; makes the Service ExternalName",
        check=_host_and_port,
    )
    impersonate_users: bool = option(
        False,
        "send writes on as the user who asked, so that audit and policies see them; needs the right to impersonate",
        parse=parse_bool,
        shown="false",
    )
    authentication_token_request_timeout: float = option(
        10.0, "deadline of a token or access review", parse=parse_duration, check=_at_least(1, "1s"), shown="10s"
    )
    # Longer and a withdrawn right lives on; shorter and every request of a busy client asks twice.
    authentication_token_webhook_cache_ttl: float = option(
        10.0, "how long a token review is believed", parse=parse_duration, check=_at_least(10, "10s"), shown="10s"
    )
    authorization_webhook_cache_authorized_ttl: float = option(
        10.0,
        "how long a yes to an access review is believed",
        parse=parse_duration,
        check=_at_least(10, "10s"),
        shown="10s",
    )
    authorization_webhook_cache_unauthorized_ttl: float = option(
        10.0,
        "how long a no to an access review is believed",
        parse=parse_duration,
        check=_at_least(10, "10s"),
        shown="10s",
    )
    # Endpoints, kube-proxy and the aggregator must have heard of the leaving replica before its socket closes.
    shutdown_delay_duration: float = option(
        10.0,
        "time a leaving server still serves; half of it spreads the ends of watches",
        parse=parse_duration,
        shown="10s",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ElectionOptions:
    """Leader election."""

    leader_elect: bool = option(
        True, "reconcile only while holding the Lease; false for a single replica", parse=parse_bool, shown="true"
    )
    leader_election_id: str = option("worker.gpustack.ai", "name of the Lease")
    leader_election_lease: float = option(
        15.0, "a silent leader is replaced after this", parse=parse_duration, check=_at_least(5, "5s"), shown="15s"
    )
    leader_election_renew: float = option(
        10.0, "a leader that could not renew for this long gives up", parse=parse_duration, shown="10s"
    )

    def mistakes(self) -> list[str]:
        """A leader must give up before somebody else may take over."""
        if self.leader_election_renew < self.leader_election_lease:
            return []
        return ["--leader-election-renew: should be shorter than --leader-election-lease"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ManufacturerOptions:
    """Manufacturers."""

    manufacturer: tuple[str, ...] = option(
        tuple(sorted(MANUFACTURER_NAMES)),
        "comma-separated manufacturers to care for",
        parse=parse_list,
        check=_known_manufacturers,
        shown="all nine",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectorOptions:
    """Detection."""

    node_name: str = option("", "name of the Node this agent reports for", env="KUBERNETES_NODE_NAME")
    # Replays a machine file instead of reading hardware: demo, tests and support cases.
    recorded: str = option("", "recorded machine to replay instead of this machine's hardware", check=_existing_file)
    no_pci_check: bool = option(
        False,
        "ask every library, also when the PCI bus shows no card of its manufacturer (always so under WSL)",
        parse=parse_bool,
        shown="false",
    )
    no_fast_failed: bool = option(
        False,
        "with exactly one manufacturer: publish an empty result instead of waiting for its first card",
        parse=parse_bool,
        shown="false",
    )
    monitor_period: float = option(
        15.0, "time between two looks at the cards", parse=parse_duration, check=_over_a_second, shown="15s"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentOptions:
    """Node agent."""

    # Scale tests and benches: thousands of agents do not fit on one machine, their publishing does.
    fleet: str = option(
        "", "publish every machine of a recorded fleet file from this one process", check=_existing_file
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class SecureOptions:
    """HTTPS listener."""

    # Several agents share a machine in the demo, so a port is taken only where somebody names one: the chart does.
    bind_address: str = option("0.0.0.0", "address of the HTTPS listener", check=_address)  # noqa: S104 - a Pod's own
    secure_port: int = option(
        0, "port that serves /metrics and /monitor/snapshot over HTTPS; 0 serves none", parse=parse_int, check=_port
    )
    cert_dir: str = option(
        "", "directory with tls.crt and tls.key; empty signs a certificate of its own", check=_certificate_folder
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginOptions:
    """Device plugin."""

    # Plugins' own sockets stand beside it; the listing of who holds what is looked for in ../pod-resources.
    kube_socket: str = option(
        "",
        "socket on which the kubelet registers plugins; empty: the kubelet's default, and none on a recorded machine",
    )
    no_shared: bool = option(False, "do not offer shares of cards", parse=parse_bool, shown="false")
    no_sliced: bool = option(False, "do not offer software slices of cards", parse=parse_bool, shown="false")
    no_partitioned: bool = option(False, "do not offer hardware partitions", parse=parse_bool, shown="false")
    identify_by_kubelet: bool = option(
        True,
        "ask the kubelet which container waits, and check the ledger against its listing",
        parse=parse_bool,
        env="GPUSTACK_DEVICE_PLUGIN_IDENTIFY_BY_KUBELET",
        shown="true",
    )
    sliced_allocate_gate: bool = option(
        True,
        "refuse a slice that does not fit beside the others of its card",
        parse=parse_bool,
        env="GPUSTACK_DEVICE_PLUGIN_SLICED_ALLOCATE_GATE",
        shown="true",
    )
    release_terminated_pods: bool = option(
        True,
        "free whole cards, shares and slices of ended Pods before they are deleted",
        parse=parse_bool,
        env="GPUSTACK_LEDGER_RELEASE_TERMINATED_PODS",
        shown="true",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputOptions:
    """Output."""

    output: str = option("table", "table for people, yaml or json for machines", check=_output, letter="o")


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchOptions:
    """Watching."""

    watch: float = option(
        0.0, "measure again after this time until interrupted; 0s measures once", parse=parse_duration, shown="0s"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class InjectionOptions:
    """Injection."""

    # The slicing libraries are the vendors' own and are no part of this product: somebody has to place them.
    library_root: str = option(
        "/var/lib/gpustack/operator/lib", "where the slicing libraries are expected on the node", check=_absolute_path
    )
    containerd_config_dir: str = option(
        "/etc/containerd",
        "where the injection strategy `auto` finds containerd's config.toml",
        check=_absolute_path,
        env="GPUSTACK_CONTAINERD_CONFIG_DIR",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class PreflightOptions:
    """Preflight."""

    dry_run: bool = option(
        False, "write nothing, change no mode, print the commands instead", parse=parse_bool, shown="false"
    )
    # Without an image nothing is pulled and no container is started.
    probe_image: str = option("", "image with sh and grep in which a slice is tried; empty runs no container")
    # In the agent's Pod the node's tree is mounted, by the chart at /host; on the node itself it is the root.
    host_root: str = option("/", "where the node's file tree is", check=_existing_folder)
    runtime: str = option("", "docker, nerdctl or ctr; empty asks the node", check=_container_tool)


@dataclass(frozen=True, kw_only=True, slots=True)
class RbacOptions:
    """Permissions."""

    namespace: str = option(SYSTEM_NAMESPACE, "namespace of the operator's own objects", env="KUBERNETES_POD_NAMESPACE")
    process: tuple[str, ...] = option(
        PROCESSES, "comma-separated processes to print", parse=parse_list, check=_known_processes, shown="all"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoOptions:
    """Demo."""

    # Named without the prefix because people type them in front of `make demo`.
    exit_when_settled: bool = option(
        False,
        "check the result and exit 0 or 1 instead of running on",
        parse=parse_bool,
        env="DEMO_EXIT",
        shown="false",
    )
    state_dir: str = option("", "folder for the demo's state; empty makes one and removes it", env="DEMO_STATE_DIR")
    timeout: float = option(
        120.0,
        "give up when nothing has settled by then",
        parse=parse_duration,
        check=_at_least(1, "1s"),
        env="DEMO_TIMEOUT",
        shown="2m",
    )
