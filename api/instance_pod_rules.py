"""What of an Instance could never become a Pod that runs, or the Service of its ports.

For: `api.instance_rules`, the Instance webhook (spec 05 §7-§8, decision 0531).
In: the raw spec, the Instance's name. Out: problems, each with what to write instead.
Promises: pure; no more is refused than kube-apiserver, the kubelet or the kernel would refuse of the Pod or Service
that `controllers.instance_pod` and `controllers.instance_service` make; existence is never checked; what is absent or
of another type is the shape's to name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from api.problems import Fault, Problem, problem, require
from nodefeature.destinations import is_dns_label, is_object_name
from nodefeature.fields import as_list, as_maps, as_str, at

OBJECT_NAME_RULE = "must be a possible object name (lower-case letters, digits, '-' and '.')"
_REFERENCES = ("imagePullSecret", "sshPublicKey")
_MAX_IMAGE = 1024
_DOMAIN = (
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])"
)
_PATH = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_IMAGE = re.compile(rf"(?:{_DOMAIN}(?::[0-9]+)?/)?{_PATH}(?:/{_PATH})*(?::{_TAG})?(?:@{_DIGEST})?")
_VARIABLE = re.compile(r"[ -<>-~]+")
"""Printable ASCII without `=`: what kube-apiserver takes since 1.32."""


def pod_problems(spec: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> list[Problem]:
    """Return what no Pod could be made of; with `before` only in the fields that differ from it."""
    problems: list[Problem] = []
    for name, rule in _RULES.items():
        if before is None or before.get(name) != spec.get(name):
            problems += rule(spec)
    return problems


def service_problems(
    name: str, spec: Mapping[str, Any], *, path: str = "metadata.name", digit_first: bool = True
) -> list[Problem]:
    """Return why no Service could carry an Instance's name; nothing without ports, which need none.

    `digit_first`: the cluster takes Services whose name begins with a digit, as Kubernetes does since 1.36.
    """
    if not as_maps(spec.get("ports")) or (is_dns_label(name) and (digit_first or not begins_with_digit(name))):
        return []
    more = "" if digit_first else ", beginning with a letter"
    rule = (
        f"also names the Service of spec.ports, so it must be a DNS label: at most 63 of a-z, 0-9 and '-', no dot"
        f"{more}; create the Instance under another name, or without ports"
    )
    return [problem(path, name, rule if path == "metadata.name" else f"the Instance's name {rule}")]


def begins_with_digit(name: str) -> bool:
    """Say whether only newer clusters take a Service of this name."""
    return "0" <= name[:1] <= "9"


def _image_problems(spec: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with an image that no kubelet could pull; an absent one is the shape's."""
    image = spec.get("image")
    if not isinstance(image, str) or len(image) > _MAX_IMAGE:
        return []
    if not image.strip():
        return [problem("spec.image", None, "image must be specified", Fault.REQUIRED)]
    if image != image.strip():
        return [problem("spec.image", image, "must not begin or end with a blank")]
    rule = "must be an image reference such as registry.example/team/app:1.2, in lower case before the tag, no blanks"
    return require(_IMAGE.fullmatch(image) is not None, "spec.image", image, rule)


def _env_problems(spec: Mapping[str, Any]) -> list[Problem]:
    problems: list[Problem] = []
    for index, variable in enumerate(as_maps(spec.get("env"))):
        path, name, value = f"spec.env[{index}]", variable.get("name"), variable.get("value")
        if name == "":
            problems.append(problem(f"{path}.name", None, "name of the variable must be specified", Fault.REQUIRED))
        elif isinstance(name, str):
            rule = "must consist of printable ASCII characters other than '='"
            problems += require(_VARIABLE.fullmatch(name) is not None, f"{path}.name", name, rule)
        problems += _without_nul(f"{path}.value", value)
    return problems


def _command_problems(spec: Mapping[str, Any]) -> list[Problem]:
    words = enumerate(as_list(spec.get("command")))
    return [found for index, word in words for found in _without_nul(f"spec.command[{index}]", word)]


def _mount_problems(spec: Mapping[str, Any]) -> list[Problem]:
    return _path_problems("spec.volumeMount", spec.get("volumeMount"))


def _volume_problems(spec: Mapping[str, Any]) -> list[Problem]:
    problems: list[Problem] = []
    for index, volume in enumerate(as_maps(spec.get("additionalVolumes"))):
        path = f"spec.additionalVolumes[{index}]"
        problems += _path_problems(f"{path}.mountPath", volume.get("mountPath"))
        problems += _without_nul(f"{path}.subPath", volume.get("subPath"))
    return problems


def _path_problems(path: str, mount: object) -> list[Problem]:
    """Return why a container could have nothing mounted there: `:` divides the parts of a mount."""
    problems = require(":" not in as_str(mount), path, mount, "must not contain ':'")
    return problems + list(_without_nul(path, mount))


def _reference_problems(name: str, spec: Mapping[str, Any]) -> list[Problem]:
    named = as_str(at(spec, name, "name"))  # an empty one asks for none
    return require(not named or is_object_name(named), f"spec.{name}.name", named, OBJECT_NAME_RULE)


def _without_nul(path: str, text: object) -> Iterator[Problem]:
    if isinstance(text, str) and "\0" in text:
        # The value is not shown: it may be a secret.
        yield problem(path, None, "must not contain a NUL character, which no process can be given")


_RULES: Mapping[str, Callable[[Mapping[str, Any]], list[Problem]]] = {
    "image": _image_problems,
    "command": _command_problems,
    "env": _env_problems,
    "volumeMount": _mount_problems,
    "additionalVolumes": _volume_problems,
    **{name: partial(_reference_problems, name) for name in _REFERENCES},
}
