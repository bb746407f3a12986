"""Copies of published nodes."""

from __future__ import annotations

import json
from typing import Any

from hack.bench.chain_copies import bare, published
from hack.machines import address_of

NAME, UID = "nvidia-dgx-h100-00001", "11111111-2222-3333-4444-555555555555"
OTHER, OTHER_UID = "nvidia-dgx-h100-00625", "99999999-8888-7777-6666-555555555555"
CARD, NO_ID = "GPU-5f2a1c3e-0000-1111-2222-0123456789ab", "GPU-XX"


def of_server(name: str, **more: Any) -> dict[str, Any]:
    owner = [{"kind": "Node", "name": NAME, "uid": UID}]
    served = {"uid": UID, "resourceVersion": "7", "creationTimestamp": "2026-11-30T12:00:00Z", "managedFields": [{}]}
    return {"metadata": {"name": name, "ownerReferences": owner, **served}, **more}


NODE = of_server(NAME, status={"addresses": [{"address": address_of(NAME)}, {"address": NAME}]})
FEATURE = of_server(f"{NAME}-gpustack-device-manager", spec={"labels": {"a": "b"}})
DEVICES = of_server(
    NAME,
    spec={"groups": [{"accelerators": [{"id": CARD}, {"id": NO_ID}]}]},
    status={"groups": [{"accelerators": [{"id": CARD}, {"id": NO_ID}]}]},
)


def test_a_copy_keeps_nothing_of_the_original() -> None:
    original = published(NODE, [FEATURE], DEVICES)
    features, devices = original.others_of(OTHER, OTHER_UID)
    text = json.dumps([original.node_named(OTHER), features, devices])
    assert NAME not in text
    assert CARD not in text
    assert UID not in json.dumps([features, devices])
    assert features[0]["metadata"]["name"] == f"{OTHER}-gpustack-device-manager"
    assert features[0]["metadata"]["ownerReferences"][0]["uid"] == OTHER_UID
    assert original.node_named(OTHER)["status"] == {"addresses": [{"address": address_of(OTHER)}, {"address": OTHER}]}


def test_ledger_and_inventory_of_a_copy_name_the_same_cards() -> None:
    original = published(NODE, [FEATURE], DEVICES)
    _, devices = original.others_of(OTHER, OTHER_UID)
    inventory, ledger = (devices[part]["groups"][0]["accelerators"] for part in ("spec", "status"))
    assert [card["id"] for card in inventory] == [card["id"] for card in ledger]
    assert inventory[1]["id"] == NO_ID, "no identity stays none"
    _, another = original.others_of(OTHER.replace("625", "626"), OTHER_UID)
    assert another["spec"]["groups"][0]["accelerators"][0]["id"] != inventory[0]["id"]


def test_what_a_server_gives_is_left_out() -> None:
    assert bare(NODE)["metadata"].keys() == {"name", "ownerReferences"}
    assert "uid" in NODE["metadata"]
