"""Builds the label and annotation maps of Nodes."""

from __future__ import annotations

from nodefeature import labels as names


def platform(os: str = "linux", arch: str = "amd64") -> dict[str, str]:
    """Return the labels the kubelet sets."""
    return {names.OS: os, names.ARCH: arch}


def cpu_labels(vendor: str = "", family: str = "", model: str = "") -> dict[str, str]:
    """Return what NFD says about a CPU; empty fields are absent."""
    pairs = {names.CPU_VENDOR: vendor, names.CPU_FAMILY: family, names.CPU_ID: model}
    return {label: value for label, value in pairs.items() if value}


def cpu_annotations(**attributes: str | None) -> dict[str, str]:
    """Return `feature.gpustack.ai/cpu-*` annotations; None is absent, `_` stands for `-`."""
    return {
        names.CPU_ANNOTATION_PREFIX + attribute.replace("_", "-"): value
        for attribute, value in attributes.items()
        if value is not None
    }


def cpu_pool_labels(key: str, count: str) -> dict[str, str]:
    """Return what the worker says about a CPU of a key."""
    own = names.GENERAL_PREFIX + key
    return {names.GENERAL_PREFIX + key.partition("-")[0]: names.TRUE, own: names.TRUE, f"{own}.count": count}


def card_labels(key: str, count: str, **details: str) -> dict[str, str]:
    """Return what the agent says about cards of a key; `details` are product, memory, cores, family."""
    own = names.DEVICE_PREFIX + key
    return {
        names.ACCELERATABLE: names.TRUE,
        names.DEVICE_PREFIX + key.partition("-")[0]: names.TRUE,
        own: names.TRUE,
        f"{own}.count": count,
    } | {f"{own}.{detail}": value for detail, value in details.items()}
