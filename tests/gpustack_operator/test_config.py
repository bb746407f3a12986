"""What the declared options accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpustack_operator.cli import COMMANDS
from gpustack_operator.config import (
    AgentOptions,
    ApiServerOptions,
    DetectorOptions,
    ElectionOptions,
    HealthOptions,
    KubeOptions,
    LogOptions,
    ManufacturerOptions,
    RbacOptions,
)
from gpustack_operator.options import ConfigMistakes, declared, load, variable_of
from nodefeature.manufacturers import MANUFACTURER_NAMES

GROUPS = {group.__name__: group for command in COMMANDS for group in command.groups}
REFUSED: dict[str, tuple[type[Any], dict[str, str], str]] = {
    "log format": (LogOptions, {"log_format": "xml"}, "--log-format: should be text or json"),
    "log level": (LogOptions, {"log_level": "INFO"}, "--log-level: should be debug, info, warning or error"),
    "kubeconfig": (KubeOptions, {"kubeconfig": "/nowhere"}, "--kubeconfig: should name an existing file"),
    "kubeconfigs": (KubeOptions, {"kubeconfig": "/nowhere:/neither"}, "--kubeconfig: should name an existing file"),
    "time-out": (KubeOptions, {"kube_conn_timeout": "9s"}, "--kube-conn-timeout: should be at least 10s"),
    "address": (HealthOptions, {"health_address": "localhost"}, "--health-address: should be an IP address"),
    "port": (HealthOptions, {"health_port": "65536"}, "--health-port: out of range"),
    "negative port": (HealthOptions, {"health_port": "-1"}, "--health-port: out of range"),
    "lease": (ElectionOptions, {"leader_election_lease": "4s"}, "--leader-election-lease: should be at least 5s"),
    "renewal longer than the lease": (
        ElectionOptions,
        {"leader_election_renew": "15s"},
        "--leader-election-renew: should be shorter than --leader-election-lease",
    ),
    "manufacturer": (ManufacturerOptions, {"manufacturer": "nvidia,intel"}, "--manufacturer: should be a comma"),
    "no manufacturer": (ManufacturerOptions, {"manufacturer": ","}, "--manufacturer: should be a comma"),
    "period": (DetectorOptions, {"monitor_period": "1s"}, "--monitor-period: should be greater than 1s"),
    "recording": (DetectorOptions, {"recorded": "/nowhere"}, "--recorded: should name an existing file"),
    "fleet": (AgentOptions, {"fleet": "/nowhere"}, "--fleet: should name an existing file"),
    "process": (RbacOptions, {"process": "worker"}, "--process: should be a comma separated list of: controllers"),
    "bind address": (ApiServerOptions, {"bind_address": "all"}, "--bind-address: should be an IP address"),
    "secure port": (ApiServerOptions, {"secure_port": "65536"}, "--secure-port: out of range"),
    "certificates nowhere": (ApiServerOptions, {"cert_dir": "/nowhere"}, "--cert-dir: no found directory"),
    "certificates missing": (ApiServerOptions, {"cert_dir": "/"}, "--cert-dir: no found tls.crt, tls.key"),
    "short token cache": (
        ApiServerOptions,
        {"authentication_token_webhook_cache_ttl": "9s"},
        "--authentication-token-webhook-cache-ttl: should be at least 10s",
    ),
    "short access cache": (
        ApiServerOptions,
        {"authorization_webhook_cache_authorized_ttl": "0s"},
        "--authorization-webhook-cache-authorized-ttl: should be at least 10s",
    ),
    "short refusal cache": (
        ApiServerOptions,
        {"authorization_webhook_cache_unauthorized_ttl": "1s"},
        "--authorization-webhook-cache-unauthorized-ttl: should be at least 10s",
    ),
    "no process": (RbacOptions, {"process": ""}, "--process: should be a comma separated list of: controllers"),
}


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED.keys())
def test_refused(row: tuple[type[Any], dict[str, str], str]) -> None:
    group, flags, want = row
    with pytest.raises(ConfigMistakes) as wrong:
        load([group], flags, {})
    assert [mistake.startswith(want) for mistake in wrong.value.mistakes] == [True]


ACCEPTED: dict[str, tuple[type[Any], dict[str, str], str, object]] = {
    "manufacturers": (ManufacturerOptions, {"manufacturer": " amd,nvidia "}, "manufacturer", ("amd", "nvidia")),
    "period just over a second": (DetectorOptions, {"monitor_period": "1s1ms"}, "monitor_period", 1.001),
    "IPv6": (HealthOptions, {"health_address": "::"}, "health_address", "::"),
    "no port": (HealthOptions, {"health_port": "0"}, "health_port", 0),
    "a single replica": (ElectionOptions, {"leader_elect": "false"}, "leader_elect", False),
    "a short lease": (
        ElectionOptions,
        {"leader_election_lease": "5s", "leader_election_renew": "3s"},
        "leader_election_lease",
        5.0,
    ),
    "one process": (RbacOptions, {"process": "device-manager"}, "process", ("device-manager",)),
}


@pytest.mark.parametrize("row", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepted(row: tuple[type[Any], dict[str, str], str, object]) -> None:
    group, flags, name, want = row
    assert getattr(load([group], flags, {})[0], name) == want


def test_one_of_several_kubeconfigs_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("")
    named = f"/nowhere:{file}"
    assert load([KubeOptions], {}, {"KUBECONFIG": named})[0].kubeconfig == named


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS.keys())
def test_defaults_pass_their_own_checks(group: type[Any]) -> None:
    filled = group()
    for name, meta in declared(group):
        assert meta.check is None or meta.check(getattr(filled, name)) == "", name
    assert load([group], {}, {}) == [filled]


def test_no_two_options_of_a_command_share_a_flag_or_a_variable() -> None:
    for command in COMMANDS:
        options = [(name, variable_of(name, meta)) for group in command.groups for name, meta in declared(group)]
        assert len({name for name, _ in options}) == len({variable for _, variable in options}) == len(options)


def test_all_manufacturers_by_default() -> None:
    assert set(ManufacturerOptions().manufacturer) == set(MANUFACTURER_NAMES)
