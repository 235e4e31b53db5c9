"""Recognise a holder that limits itself: a deque with a maximal length, an lru_cache with a maximal size."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable
from typing import Any

from leaklab.objects import mro_of, type_name

FAR = 4096
"""A limit beyond this many entries does not save anybody's memory, and is not called one."""


def _deque_limit(thing: Any) -> int | None:
    limit: int | None = collections.deque.maxlen.__get__(thing)
    return limit


def _cache_limit(thing: Any) -> int | None:
    limit: int | None = type(thing).cache_info(thing).maxsize
    return limit


_LRU_CACHE = type(functools.lru_cache(lambda: None))
_LIMITS: tuple[tuple[type, str, Callable[[Any], int | None]], ...] = (
    (collections.deque, "maxlen", _deque_limit),
    (_LRU_CACHE, "maxsize", _cache_limit),
)


def known_limit(things: Iterable[object]) -> str | None:
    """Return the limit of the first of *things* that has one, in words: ``collections.deque(maxlen=64)``."""
    for thing in things:
        for kind, name, read in _LIMITS:
            if any(base is kind for base in mro_of(type(thing))):
                limit = read(thing)
                if limit is not None and limit <= FAR:
                    shown = "functools.lru_cache" if kind is _LRU_CACHE else type_name(type(thing))
                    return f"{shown}({name}={limit})"
    return None
