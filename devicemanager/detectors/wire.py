"""How a helper process writes an answer on one line, and how it is read back.

In/Out: answers and JSON text. Promises: reading never raises for what a library put into a field: a field of the wrong
type is read as "did not answer"; text that is no UTF-8 travels as lone surrogates.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from devicemanager.answers import Answer, Empty, Failed, Found, RawCard, RawProfile, Roce, Unknown
from nodefeature.fields import as_int, as_list, as_map, as_maps, as_str

_PLAIN: dict[str, type[Empty | Unknown | Failed]] = {"empty": Empty, "unknown": Unknown, "failed": Failed}


def dump_answer(answer: Answer) -> str:
    """Return an answer as one line."""
    if isinstance(answer, Found):
        return json.dumps({"found": [dataclasses.asdict(card) for card in answer.cards]})
    word = next(name for name, kind in _PLAIN.items() if isinstance(answer, kind))
    return json.dumps({word: answer.reason})


def load_answer(line: str | bytes, manufacturer: str) -> Answer:
    """Return the answer on a line; Failed when it is none."""
    try:
        said = as_map(json.loads(line))
    except ValueError:
        return Failed("the helper process wrote a line that is no JSON")
    if "found" in said:
        return Found(tuple(_card(raw, manufacturer) for raw in as_maps(said["found"])))
    for word, kind in _PLAIN.items():
        if word in said:
            return kind(as_str(said[word]))
    return Failed("the helper process wrote a line that is no answer")


def _card(raw: Mapping[str, Any], manufacturer: str) -> RawCard:
    ecc = raw.get("ecc_enabled")
    return RawCard(
        manufacturer=manufacturer,
        index=as_int(raw.get("index")),
        product=text_or_none(raw.get("product")),
        uuid=text_or_none(raw.get("uuid")),
        memory_mib=integer_or_none(raw.get("memory_mib")),
        cores=integer_or_none(raw.get("cores")),
        compute_capability=text_or_none(raw.get("compute_capability")),
        architecture=text_or_none(raw.get("architecture")),
        soc=text_or_none(raw.get("soc")),
        driver_version=text_or_none(raw.get("driver_version")),
        runtime_version=text_or_none(raw.get("runtime_version")),
        memory_bus_bits=integer_or_none(raw.get("memory_bus_bits")),
        ecc_enabled=ecc if isinstance(ecc, bool | str) else None,
        ecc_uncorrected=integer_or_none(raw.get("ecc_uncorrected")),
        ecc_corrected=integer_or_none(raw.get("ecc_corrected")),
        health=as_str(raw.get("health")),
        detail=as_str(raw.get("detail")),
        bus_id=as_str(raw.get("bus_id")),
        pci_address=as_str(raw.get("pci_address")),
        numa=integer_or_none(raw.get("numa")),
        physical_indexes=tuple(as_int(number) for number in as_list(raw.get("physical_indexes"))),
        partition_mode=text_or_none(raw.get("partition_mode")),
        profiles=tuple(_profile(profile) for profile in as_maps(raw.get("profiles"))),
        roce=_roce(as_map(raw.get("roce"))),
        virtual=raw.get("virtual") is True,
    )


def _profile(raw: Mapping[str, Any]) -> RawProfile:
    return RawProfile(
        name=as_str(raw.get("name")),
        count=as_int(raw.get("count")),
        memory_mib=integer_or_none(raw.get("memory_mib")),
        compute_slices=as_int(raw.get("compute_slices")),
        memory_slices=as_int(raw.get("memory_slices")),
        starts=tuple(as_int(start) for start in as_list(raw.get("starts"))),
        cores=integer_or_none(raw.get("cores")),
    )


def _roce(raw: Mapping[str, Any]) -> Roce | None:
    if not raw:
        return None
    return Roce(as_str(raw.get("ip")), as_str(raw.get("subnet_mask")), as_str(raw.get("gateway")))


def text_or_none(value: object) -> str | None:
    """Return text, None for anything else."""
    return value if isinstance(value, str) else None


def integer_or_none(value: object) -> int | None:
    """Return an integer, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
