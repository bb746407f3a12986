"""Replacing the root `apiVersion` of a body, and nothing else (design §6).

For: `view`. In: a body as the client sent it, its media type. Out: the same bytes with the version of the store.
Promises:
- numbers, order, comments, duplicate and unknown keys reach kube-apiserver as they were sent: it validates them;
- only values of the key at the root are replaced, every one of them when the key is repeated, also when it is spelled
  with escapes; an `apiVersion` deeper down is somebody else's;
- a root that names another version is refused with 400, as kube-apiserver does;
- a body that nests deeper than those of mapped kinds may is refused with 400: kube-apiserver takes some and answers
  500 to others;
- a body this scanner cannot follow is passed on untouched: what is no JSON and no YAML is kube-apiserver's to refuse;
- a long body is scanned in a thread, in which other requests go on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson
import yaml

from apiserver.rest import negotiation, status

IN_THREAD_BYTES = 32 * 1024
"""Above this, scanning could hold the event loop for more than a few milliseconds."""
_TOKEN = re.compile(rb'"(?:[^"\\]*+(?:\\.[^"\\]*+)*+)"|[{}\[\],:]', re.DOTALL)
_SPACE = b" \t\r\n"
_KEY = "apiVersion"


@dataclass(frozen=True, slots=True)
class Splice:
    """The version a body must name, and the one it gets."""

    wanted: str
    stored: str

    async def json(self, body: bytes) -> bytes:
        """Return a JSON body under the stored version; raises Refusal 400."""
        return await off_loop(self.json_now, body)

    async def yaml(self, body: bytes) -> bytes:
        """Return a YAML (or JSON) body under the stored version; raises Refusal 400."""
        return await off_loop(self.yaml_now, body)

    def json_now(self, body: bytes) -> bytes:
        """Do what `json` does, here and now."""
        spans = [(start, end, _text(body[start:end])) for start, end in _root_values(body)]
        pieces, at = [], 0
        for start, end, text in spans:
            if text is None:
                continue
            self._check(text)
            pieces += [body[at:start], b'"%b"' % self.stored.encode()]
            at = end
        return b"".join([*pieces, body[at:]]) if pieces else body

    def yaml_now(self, body: bytes) -> bytes:
        """Do what `yaml` does, here and now."""
        if body.lstrip(_SPACE).startswith(b"{") and _is_json(body):
            return self.json_now(body)
        try:
            text = body.decode().removeprefix("\ufeff")  # the parser's marks do not count it
            marks = list(_root_scalars(text))
        except (UnicodeDecodeError, yaml.YAMLError):
            return body
        pieces, at = [], 0
        for start, end, value in marks:
            self._check(value.removesuffix("\n"))
            line_end = "\n" if text[end - 1] == "\n" else ""  # a block scalar ends where the next line begins
            pieces += [text[at:start], f'"{self.stored}"{line_end}']
            at = end
        return "".join([*pieces, text[at:]]).encode() if pieces else body

    def _check(self, found: str) -> None:
        if found != self.wanted:
            what = f"the API version in the data ({found[:128]}) does not match"
            raise status.bad_request(f"{what} the expected API version ({self.wanted})")


async def off_loop(act: Callable[[bytes], bytes], body: bytes) -> bytes:
    """Return what `act` makes of a body; a long one is worked on in a thread."""
    return act(body) if len(body) <= IN_THREAD_BYTES else await asyncio.to_thread(act, body)


def _root_values(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the string values of the root key `apiVersion` stand in a JSON object."""
    if not body.lstrip(_SPACE).startswith(b"{"):
        return
    depth, is_key, named = 0, False, False
    for found in _TOKEN.finditer(body):
        token = found[0]
        match token[0]:
            case 0x7B:  # {
                depth = _deeper(depth)
                is_key, named = depth == 1, False
            case 0x5B:  # [
                depth = _deeper(depth)
                named = False
            case 0x7D | 0x5D:  # } ]
                depth -= 1
                if depth == 0:
                    return
            case 0x2C if depth == 1:  # ,
                is_key, named = True, False
            case 0x22 if depth == 1:  # "
                if is_key:
                    is_key, named = False, _text(token) == _KEY
                elif named:
                    named = False
                    yield found.span()
            case _:
                continue


def _deeper(depth: int) -> int:
    if depth == negotiation.MOST_DEEP:
        raise status.bad_request(f"the body nests deeper than {negotiation.MOST_DEEP}")
    return depth + 1


def _text(token: bytes) -> str | None:
    """Return the text of a JSON string; None when it is none."""
    try:
        value = orjson.loads(token)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, str) else None


def _is_json(body: bytes) -> bool:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return True


def _root_scalars(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where the scalar values of the root key `apiVersion` stand in the first YAML document."""
    depth, is_key, named = 0, False, False
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth = _deeper(depth)
            if depth == 1:
                is_key, named = isinstance(event, yaml.MappingStartEvent), False
                if not is_key:
                    return
            elif depth == 2:
                named = False
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            if depth == 0:
                return
            is_key = not is_key if depth == 1 else is_key
        elif depth == 1 and isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
            scalar = event if isinstance(event, yaml.ScalarEvent) else None
            if is_key:
                named = scalar is not None and scalar.value == _KEY
            elif named and scalar is not None and scalar.start_mark and scalar.end_mark:
                yield scalar.start_mark.index, scalar.end_mark.index, scalar.value
            is_key = not is_key
