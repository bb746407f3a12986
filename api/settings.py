"""Reading the settings out of the one Secret that holds them.

For: reconcilers and webhooks, which read `Settings`; the Setting resource, which shows and validates; the settings
reconciler, which wakes what a change concerns; the reference page (spec 01 §12, design §8.9).
In: `data` of Secret `gpustack-settings`, and seeds from the environment. Out: a frozen, typed `Settings`.
Promises: a missing key has its default (the seed, else the built-in one); a value that does not parse keeps the last
good value and is named; unknown keys are ignored and named; values of sensitive settings are never part of a problem.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from api.problems import Problem, problem
from api.setting_declarations import BY_NAME, DECLARATIONS, Declaration
from api.setting_rules import SettingInvalid
from nodefeature.fields import as_map

__all__ = [
    "BY_NAME",
    "DECLARATIONS",
    "DEFAULTS",
    "SECRET_NAME",
    "Declaration",
    "Reading",
    "Settings",
    "changed",
    "decode",
    "parse",
    "refusal",
    "seeds_of",
    "settings_of",
    "watermark_problems",
    "woken",
]

SECRET_NAME = "gpustack-settings"  # noqa: S105  # the object's name, not a credential


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All values, typed. The attribute of `node-management-manual` is `node_management_manual`."""

    container_registry: str = ""
    container_namespace: str = ""
    image_pull_secrets: str = ""
    image_pull_policy: str = "IfNotPresent"
    instance_general_resources_overcommit: bool = True
    instance_ssh_server_image: str = "gpustack/ssh-server:v1.3.0"
    instance_access_static_address: str = ""
    instance_access_wildcard_dns: str = ""
    instance_privileged_allowed: bool = False
    instance_host_path_volume_allowed: bool = False
    instance_persistent_volume_placement: bool = True
    workload_fit_affinity: bool = True
    workload_tolerations: tuple[str, ...] = ()
    node_management_manual: bool = False
    instance_type_mixed_on_node: bool = True
    instance_type_derived_from_node: bool = True
    instance_type_drain_when_no_flavors: bool = True
    instance_type_aware_cpu_manufacturer: bool = False
    kv_cache_backend_image: str = "gpustack/mirrored-mooncake:0.3.13.post1-cpu"
    model_deployment_kv_cache_dtype_owned: bool = True
    model_deployment_router_image: str = "gpustack/llm-router:v0.1.0"
    model_deployment_router_proxy_image: str = "gpustack/mirrored-envoy:distroless-v1.33.2"
    model_deployment_routing_sidecar_image: str = "gpustack/mirrored-llm-d-router-disagg-sidecar:v0.10.0"
    model_deployment_tcp_tw_reuse: bool = False
    model_prefetch_warmup_image: str = "gpustack/mirrored-python:3.12-alpine"
    model_artifact_huggingface_endpoint: str = "https://huggingface.co"
    model_artifact_modelscope_endpoint: str = "https://www.modelscope.cn"
    model_artifact_https_proxy: str = ""
    model_artifact_no_proxy: str = ""
    model_artifact_ca_bundle: str = ""
    model_artifact_revalidate_interval: timedelta = timedelta(hours=24)
    model_artifact_delivery_mode: str = "Engine"
    model_store_high_watermark: int = 80
    model_store_low_watermark: int = 70
    model_store_download_concurrency: int = 8
    model_store_peer_sync: bool = True
    model_store_download_bandwidth: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """What a Secret said: the values in force, what was refused (paths are `data[<name>]`), keys nobody knows."""

    settings: Settings
    problems: tuple[Problem, ...] = ()
    unknown: tuple[str, ...] = ()


DEFAULTS = Settings()


def settings_of(
    secret: Mapping[str, Any] | None, *, seeds: Mapping[str, str] | None = None, last: Settings | None = None
) -> Reading:
    """Read the settings Secret; None (absent) means every default."""
    return parse(as_map(as_map(secret).get("data")), seeds=seeds, last=last)


def parse(data: Mapping[str, Any], *, seeds: Mapping[str, str] | None = None, last: Settings | None = None) -> Reading:
    """Read a Secret's `data` (base64 text). `seeds` are the defaults that the environment gave, by setting name."""
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for declaration in DECLARATIONS:
        default = (seeds or {}).get(declaration.name, declaration.default)
        try:
            text = default if declaration.name not in data else decode(data[declaration.name])
            values[declaration.field] = declaration.parse(text)
        except SettingInvalid as broken:
            problems.append(_refused(declaration, data.get(declaration.name), str(broken)))
            values[declaration.field] = _fallback(declaration, default, last)
    settings = replace(DEFAULTS, **values)  # a test pairs each declaration with its field
    crossed = watermark_problems(settings)
    if crossed:
        good = last or DEFAULTS
        settings = replace(
            settings,
            model_store_high_watermark=good.model_store_high_watermark,
            model_store_low_watermark=good.model_store_low_watermark,
        )
    unknown = tuple(sorted(str(key) for key in data if key not in BY_NAME))
    return Reading(settings, tuple(problems + crossed), unknown)


def seeds_of(environ: Mapping[str, str]) -> tuple[dict[str, str], list[Problem]]:
    """Return the seeds that the environment sets, by setting name, and the ones that do not parse (left out)."""
    seeds: dict[str, str] = {}
    problems: list[Problem] = []
    for declaration in DECLARATIONS:
        text = environ.get(declaration.variable)
        if text is None:
            continue
        rule = refusal(declaration, text)
        if rule:
            problems.append(problem(declaration.variable, None if declaration.sensitive else text, rule))
        else:
            seeds[declaration.name] = text
    return seeds, problems


def changed(old: Settings, new: Settings) -> frozenset[str]:
    """Return the names of the settings whose values differ."""
    return frozenset(
        field.name.replace("_", "-")
        for field in fields(Settings)
        if getattr(old, field.name) != getattr(new, field.name)
    )


def woken(names: frozenset[str]) -> frozenset[str]:
    """Return the reconcilers that a change of these settings concerns."""
    return frozenset().union(*(BY_NAME[name].wakes for name in names if name in BY_NAME))


def refusal(declaration: Declaration, text: str) -> str:
    """Return the rule that `text` breaks, or the empty string."""
    try:
        declaration.parse(text)
    except SettingInvalid as broken:
        return str(broken)
    return ""


def watermark_problems(settings: Settings) -> list[Problem]:
    """Return a problem for each watermark when the high one is not above the low one."""
    high, low = settings.model_store_high_watermark, settings.model_store_low_watermark
    if high > low:
        return []
    return [
        problem(
            "data[model-store-high-watermark]", high, f"the high watermark {high} must be above the low watermark {low}"
        ),
        problem(
            "data[model-store-low-watermark]", low, f"the low watermark {low} must be below the high watermark {high}"
        ),
    ]


def decode(value: object) -> str:
    """Return the text of a Secret's base64 value."""
    if not isinstance(value, str):
        raise SettingInvalid("must be base64 text")
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        raise SettingInvalid("must be base64 of UTF-8 text") from None


def _fallback(declaration: Declaration, default: str, last: Settings | None) -> object:
    if last is not None:
        return getattr(last, declaration.field)
    return declaration.parse(declaration.default if refusal(declaration, default) else default)


def _refused(declaration: Declaration, value: object, rule: str) -> Problem:
    if declaration.sensitive:
        return problem(f"data[{declaration.name}]", None, rule)
    try:
        value = decode(value)
    except SettingInvalid:
        value = None
    return problem(f"data[{declaration.name}]", value, rule)
