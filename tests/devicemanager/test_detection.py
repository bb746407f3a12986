"""Error, unknown, empty and found: what each does to what is believed (spec 06 §2.4, §16 rows 1-2)."""

from __future__ import annotations

import asyncio

import pytest

from devicemanager.answers import Answer, Empty, Failed, Found, Unknown
from devicemanager.detection import NOTHING_YET, DetectionOptions, look, next_detection, unready_reason
from tests.builders.cards import NVIDIA_ONLY, ScriptedDetector, cards
from tests.builders.rows import case_json

TWO = DetectionOptions(manufacturers=("amd", "nvidia"))
FOUR = Found(cards(4))


def after(*answers: Answer) -> list[int]:
    """Return how many cards are believed after each pass."""
    detector = ScriptedDetector(*answers)
    believed, counts = NOTHING_YET, []
    for _ in answers:
        believed = next_detection(believed, asyncio.run(look(detector, ("nvidia",))), NVIDIA_ONLY)
        counts.append(sum(len(group["accelerators"]) for group in believed.all_groups()))
    return counts


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        ((FOUR, Failed("x")), [4, 4]),
        ((FOUR, Unknown("x")), [4, 4]),
        ((FOUR, Empty("x")), [4, 0]),
        ((FOUR, Found(())), [4, 0]),
        ((Failed("x"), FOUR), [0, 4]),
        ((FOUR, Empty("x"), Failed("y")), [4, 0, 0]),
        ((FOUR, Failed("x"), Failed("x"), Found(cards(3))), [4, 4, 4, 3]),
    ],
)
def test_carrying_forward(answers: tuple[Answer, ...], want: list[int]) -> None:
    assert after(*answers) == want


def test_b015_detect_passes() -> None:
    passes = case_json("B015-detect-passes")["passes"]

    def answer(told: dict[str, object]) -> Answer:
        if told["result"] == "error":
            return Failed(str(told["message"]))
        if told["result"] == "empty":
            return Empty("no device")
        listed = cards(4) if told["count"] == 4 else tuple(c for c in cards(4) if c.uuid != told["lost"])
        return Found(listed)

    assert after(*map(answer, passes)) == [0, 4, 4, 3, 0, 4]


def test_b015_nothing_is_ready_until_somebody_answers() -> None:
    detector = ScriptedDetector(Failed("driver/library version mismatch"))
    believed = next_detection(NOTHING_YET, asyncio.run(look(detector, ("nvidia",))), NVIDIA_ONLY)
    assert unready_reason(believed) == "nvidia could not be measured: driver/library version mismatch"
    assert unready_reason(NOTHING_YET) == "no detection pass has ended"


def test_one_manufacturers_trouble_is_its_own() -> None:
    detector = ScriptedDetector({"nvidia": FOUR, "amd": Failed("SIGSEGV")})
    believed = next_detection(NOTHING_YET, asyncio.run(look(detector, TWO.manufacturers)), TWO)
    assert believed.answered == {"nvidia"}
    assert believed.troubles == {"amd": "amd could not be measured: SIGSEGV"}
    assert unready_reason(believed) == ""


def test_kept_cards_are_said_to_be_kept() -> None:
    detector = ScriptedDetector(FOUR, Unknown("no driver"))
    believed = next_detection(NOTHING_YET, asyncio.run(look(detector, ("nvidia",))), NVIDIA_ONLY)
    believed = next_detection(believed, asyncio.run(look(detector, ("nvidia",))), NVIDIA_ONLY)
    assert believed.troubles["nvidia"] == ("nvidia could not be asked: no driver; its last known cards are kept")
    assert believed.answered == {"nvidia"}
