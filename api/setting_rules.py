"""How the text of a setting becomes a value.

For: `api.settings`, which declares which rule each setting has (spec 01 §12.1).
In: text as stored in the Secret. Out: a typed value, or `SettingInvalid` with the rule that it breaks.
Promises: exact (no floats); ASCII digits only; a refused text is never part of the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import urlsplit

from nodefeature.quantity import QuantityInvalid, parse_amount

Parse = Callable[[str], object]

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_DURATION = re.compile(r"(?:[0-9]{1,6}h)?(?:[0-9]{1,6}m)?(?:[0-9]{1,9}s)?")
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(?::[0-9]{1,5})?"
_PATH = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_REGISTRY = re.compile(rf"{_HOST}(?:/{_PATH})*")
_IMAGE = re.compile(
    rf"(?:{_HOST}/)?{_PATH}(?:/{_PATH})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@[a-z0-9]+:[a-f0-9]{{32,128}})?"
)
_TAINT_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class SettingInvalid(ValueError):
    """The text breaks the rule of its setting; the message is the rule."""


def is_blank(text: str) -> bool:
    """Say whether a text counts as unset."""
    return text.strip() in {"", "{}", "[]"}


def any_text(text: str) -> str:
    """Take any text; a blank one is the empty string."""
    return "" if is_blank(text) else text.strip()


def boolean(text: str) -> bool:
    """Take the spellings of Go's ParseBool."""
    if text not in _BOOLEANS:
        raise SettingInvalid("must be true or false")
    return _BOOLEANS[text]


def whole_number(low: int, high: int) -> Parse:
    """Take an integer within both bounds."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise SettingInvalid("must be an integer")
        value = int(text)
        if not low <= value <= high:
            raise SettingInvalid(f"value {value} is out of range [{low}, {high}]")
        return value

    return parse


def duration(low: timedelta, high: timedelta) -> Parse:
    """Take a duration written in hours, minutes and seconds (`24h`, `1h30m`) within both bounds."""

    def parse(text: str) -> timedelta:
        if not text or not _DURATION.fullmatch(text):
            raise SettingInvalid("must be a duration such as 24h, 90m or 1h30m")
        parts = {part[-1]: int(part[:-1]) for part in re.findall(r"[0-9]+[hms]", text)}
        value = timedelta(hours=parts.get("h", 0), minutes=parts.get("m", 0), seconds=parts.get("s", 0))
        if not low <= value <= high:
            raise SettingInvalid(f"is out of range [{hours(low)}, {hours(high)}]")
        return value

    return parse


def hours(value: timedelta) -> str:
    """Return a duration as text: whole hours, else minutes."""
    minutes = value // timedelta(minutes=1)
    return f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m"


def byte_rate(text: str) -> int:
    """Take a quantity of bytes a second; 0 means unlimited."""
    try:
        return parse_amount(text).ceil()
    except QuantityInvalid:
        raise SettingInvalid("must be a quantity of bytes such as 200Mi, or 0 for no limit") from None


def registry(text: str) -> str:
    """Take a registry: a host, its port and a path."""
    if not _REGISTRY.fullmatch(text):
        raise SettingInvalid("must be an image registry such as registry.example.com:5000")
    return text


def image(text: str) -> str:
    """Take an image reference."""
    if len(text) > 512 or not _IMAGE.fullmatch(text):
        raise SettingInvalid("must be an image reference such as registry.example.com/team/app:v1")
    return text


def http_url(text: str) -> str:
    """Take an http or https URL with a host and without credentials."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise SettingInvalid("must be an http or https URL with a port of at most 65535") from None
    if parts.scheme not in {"http", "https"}:
        raise SettingInvalid("invalid schema: must be http or https")
    if not parts.hostname or port == 0 or re.search(r"\s", text):
        raise SettingInvalid("must be an http or https URL with a host")
    if parts.username is not None or parts.password is not None:
        raise SettingInvalid("must not carry credentials")
    return text


def choice(*values: str) -> Parse:
    """Take one of the given words."""

    def parse(text: str) -> str:
        if text not in values:
            raise SettingInvalid(f"must be one of {', '.join(values)}")
        return text

    return parse


def taint_keys(text: str) -> tuple[str, ...]:
    """Take taint keys separated by commas; they come back sorted and once each."""
    keys = {part.strip() for part in text.split(",") if part.strip()}
    for key in sorted(keys):
        if not _TAINT_KEY.fullmatch(key):
            raise SettingInvalid("must be a comma-separated list of taint keys such as example.com/dedicated")
    return tuple(sorted(keys))


def or_blank(parse: Parse, empty: object = "") -> Parse:
    """Take a blank as `empty`, everything else by `parse`."""
    return lambda text: empty if is_blank(text) else parse(text)


def not_blank(parse: Parse) -> Parse:
    """Refuse a blank, take everything else by `parse`."""

    def checked(text: str) -> object:
        if is_blank(text):
            raise SettingInvalid("blank value")
        return parse(text)

    return checked
