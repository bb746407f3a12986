"""Every setting of the product, and reading them out of the one Secret that holds them.

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
from api.setting_rules import (
    Parse,
    SettingInvalid,
    any_text,
    boolean,
    byte_rate,
    choice,
    duration,
    http_url,
    image,
    not_blank,
    or_blank,
    registry,
    taint_keys,
    whole_number,
)
from nodefeature.fields import as_map

SECRET_NAME = "gpustack-settings"  # noqa: S105  # the object's name, not a credential
ENVIRONMENT_PREFIX = "GPUSTACK_"


@dataclass(frozen=True, slots=True)
class Declaration:
    """One setting. `wakes` names the reconcilers whose objects all run again when the value changes."""

    name: str
    default: str
    parse: Parse
    effect: str
    form: str
    wakes: frozenset[str] = frozenset()
    editable: bool = True
    sensitive: bool = False

    @property
    def field(self) -> str:
        """Return the attribute of `Settings` that holds the value."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """Return the environment variable that seeds the setting at the first deploy."""
        return ENVIRONMENT_PREFIX + self.field.upper()


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


def _wakes(*reconcilers: str) -> frozenset[str]:
    return frozenset(reconcilers)


def _flag(name: str, default: bool, effect: str, *wakes: str) -> Declaration:
    text = "true" if default else "false"
    return Declaration(name, text, boolean, effect, "true or false", _wakes(*wakes))


def _text(name: str, default: str, effect: str, *wakes: str) -> Declaration:
    return Declaration(name, default, any_text, effect, "any text", _wakes(*wakes))


def _image(name: str, default: str, effect: str, *, blank: bool = False) -> Declaration:
    form = "an image reference, or blank" if blank else "an image reference"
    return Declaration(name, default, or_blank(image) if blank else not_blank(image), effect, form)


def _number(name: str, default: int, low: int, high: int, effect: str) -> Declaration:
    return Declaration(name, str(default), whole_number(low, high), effect, f"an integer from {low} to {high}")


DECLARATIONS: tuple[Declaration, ...] = (
    Declaration(
        "container-registry",
        "",
        or_blank(registry),
        "Registry of the built-in applications' images.",
        "a registry, or blank",
    ),
    _text("container-namespace", "", "Image namespace of the built-in applications."),
    _text("image-pull-secrets", "", "Pull secret of the built-in applications; workloads of users do not get it."),
    _text("image-pull-policy", "IfNotPresent", "Pull policy of the built-in applications."),
    _flag(
        "instance-general-resources-overcommit",
        True,
        "Instances request less CPU, memory and storage than their limits: 800m CPU a core (100m on accelerated "
        "types), 128Mi a GiB.",
        "instance_type",
    ),
    _image("instance-ssh-server-image", "gpustack/ssh-server:v1.3.0", "Image of an Instance's SSH server."),
    _text("instance-access-static-address", "", "Address shown for every Instance.", "instance"),
    _text(
        "instance-access-wildcard-dns",
        "",
        "Domain appended to the host's IP in an Instance's address; a static address wins.",
        "instance",
    ),
    _flag(
        "instance-privileged-allowed",
        False,
        "Instances may take `spec.privileged`; those that have it keep it either way.",
    ),
    _flag(
        "instance-host-path-volume-allowed",
        False,
        "Instances may take hostPath mounts; mounts already held are kept either way.",
    ),
    _flag(
        "instance-persistent-volume-placement",
        True,
        "Instances are placed where their persistent claims can be reached; read when the Pod is created.",
    ),
    _flag(
        "workload-fit-affinity",
        True,
        "Workloads with a slice or a share are pinned to nodes with a card that fits; the labels are published either "
        "way.",
    ),
    Declaration(
        "workload-tolerations",
        "",
        or_blank(taint_keys, ()),
        "Taint keys that flavors tolerate beside the vendors' and our own, and that workloads therefore get.",
        "comma-separated taint keys, or blank",
        _wakes("node_flavor"),
    ),
    _flag(
        "node-management-manual",
        False,
        "Nodes are not taken under management by themselves; an administrator's label always wins.",
        "node_feature",
    ),
    _flag(
        "instance-type-mixed-on-node",
        True,
        "Accelerated nodes contribute to CPU pools too.",
        "node_flavor",
    ),
    _flag(
        "instance-type-derived-from-node",
        True,
        "InstanceTypes are authored from nodes, and queues carry the node-devices check; existing types stay.",
        "node_flavor",
        "node_queue",
    ),
    _flag(
        "instance-type-drain-when-no-flavors",
        True,
        "A queue that lost its flavors is drained at once; false waits until its reservations are gone.",
        "node_queue",
    ),
    _flag(
        "instance-type-aware-cpu-manufacturer",
        False,
        "Pools are split by CPU model and show its details. Changing it derives the device flavors anew, which drains "
        "the device queues in use.",
        "node_flavor",
        "instance_type",
        "node_queue",
    ),
    _image(
        "kv-cache-backend-image",
        "gpustack/mirrored-mooncake:0.3.13.post1-cpu",
        "Default image of KV cache backend roles; blank refuses backends that name none.",
        blank=True,
    ),
    _flag(
        "model-deployment-kv-cache-dtype-owned",
        True,
        "The operator owns `--kv-cache-dtype`; roles and Pods that name it are refused.",
    ),
    _image("model-deployment-router-image", "gpustack/llm-router:v0.1.0", "Image of the managed router."),
    _image(
        "model-deployment-router-proxy-image",
        "gpustack/mirrored-envoy:distroless-v1.33.2",
        "Image of the proxy before the endpoint picker.",
    ),
    _image(
        "model-deployment-routing-sidecar-image",
        "gpustack/mirrored-llm-d-router-disagg-sidecar:v0.10.0",
        "Image of the decoder's routing side container.",
    ),
    _flag(
        "model-deployment-tcp-tw-reuse",
        False,
        "Sysctl `net.ipv4.tcp_tw_reuse=1` on SGLang prefill Pods.",
    ),
    _image("model-prefetch-warmup-image", "gpustack/mirrored-python:3.12-alpine", "Image of ModelPrefetch's Pods."),
    Declaration(
        "model-artifact-huggingface-endpoint",
        "https://huggingface.co",
        not_blank(http_url),
        "Hugging Face hub; engines get it as `HF_ENDPOINT`.",
        "an http or https URL",
    ),
    Declaration(
        "model-artifact-modelscope-endpoint",
        "https://www.modelscope.cn",
        not_blank(http_url),
        "ModelScope hub; engines get its host as `MODELSCOPE_DOMAIN`.",
        "an http or https URL",
    ),
    Declaration(
        "model-artifact-https-proxy",
        "",
        or_blank(http_url),
        "Proxy; engines get it as `HTTPS_PROXY`.",
        "an http or https URL without credentials, or blank",
    ),
    _text("model-artifact-no-proxy", "", "Hosts reached without the proxy; engines get it as `NO_PROXY`."),
    _text("model-artifact-ca-bundle", "", "ConfigMap in our namespace whose key `ca.crt` is trusted for downloads."),
    Declaration(
        "model-artifact-revalidate-interval",
        "24h",
        not_blank(duration(timedelta(minutes=1), timedelta(hours=8760))),
        "How often an artifact's source is asked again.",
        "a duration from 1m to 8760h",
    ),
    Declaration(
        "model-artifact-delivery-mode",
        "Engine",
        choice("Engine", "Node"),
        "How weights reach engines; `Node` needs CSIDriver `model.csi.gpustack.ai`. Changing it rolls deployments.",
        "Engine or Node",
    ),
    _number("model-store-high-watermark", 80, 2, 95, "Percent of the disk at which cached models are removed."),
    _number("model-store-low-watermark", 70, 1, 94, "Percent of the disk at which removing stops."),
    _number("model-store-download-concurrency", 8, 1, 64, "Download requests of one node at a time."),
    _flag("model-store-peer-sync", True, "Nodes fetch models from each other first."),
    Declaration(
        "model-store-download-bandwidth",
        "0",
        not_blank(byte_rate),
        "Bytes a second that one node downloads.",
        "a quantity of bytes, 0 for no limit",
    ),
)
BY_NAME: Mapping[str, Declaration] = {declaration.name: declaration for declaration in DECLARATIONS}


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
