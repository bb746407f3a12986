"""Remembering what is worked out again and again from texts that clients send.

For: the readers of this package. In: a pure function of strings or bytes. Out: the same, faster for what comes often.
Promises: what strangers send cannot fill memory: a text longer than `LONGEST` is worked out each time it comes, so a
full cache holds some megabytes, whatever was asked. A plain `lru_cache` is bounded in entries alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LONGEST = 512
"""Characters; what well-meaning clients send again and again is shorter."""


def remembered(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keep the last `maxsize` answers to short arguments."""

    def wrap(work: Callable[P, T]) -> Callable[P, T]:
        kept = lru_cache(maxsize)(work)

        @wraps(work)
        def answer(*args: P.args, **named: P.kwargs) -> T:
            for text in args:
                if isinstance(text, str | bytes) and len(text) > LONGEST:
                    return work(*args, **named)
            return kept(*args, **named)  # type: ignore[arg-type]  # they are texts

        answer.cache_info = kept.cache_info  # type: ignore[attr-defined]  # as on what lru_cache returns
        return answer

    return wrap
