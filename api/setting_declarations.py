"""Every setting of the product: its name, default, form, effect, and what a change of it wakes.

For: `api.settings`, which reads them; the Setting resource; the reference page (spec 01 §12.2).
In: nothing. Out: constants.
Promises: one declaration a setting; each has an attribute of its own in `api.settings.Settings` (a test pairs them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from api.setting_rules import (
    Parse,
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
        "Taint keys that flavors tolerate beside the vendors' and our own, and that workloads therefore get. "
        "Changing it makes the flavors anew, which drains the queues in use.",
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
        "Accelerated nodes contribute to CPU pools too. Changing it makes the CPU flavors anew, which drains the CPU "
        "queues in use.",
        "node_feature",
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
