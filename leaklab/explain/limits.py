"""Recognise a holder that limits itself: a deque with a maximal length, an lru_cache with a maximal size."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from leaklab.objects import mro_of, type_name

FAR = 4096
"""A limit beyond this many entries does not save anybody's memory, and is not called one."""
FAR_BYTES = 8 * 1024 * 1024
"""A cache that would hold more than this when it is full leaks until then."""


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


@dataclass(frozen=True, slots=True)
class Limit:
    """How much a holder will hold at most.

    Attributes:
        words: As Python writes it: ``collections.deque(maxlen=64)``.
        entries: The number.
        is_meant: Whether somebody chose that many of just these: a deque's length is, a cache's size often is not.
    """

    words: str
    entries: int
    is_meant: bool

    def is_far(self, bytes_per_entry: float) -> bool:
        """Return whether a cache will be large before it lets go of anything."""
        return not self.is_meant and self.entries * bytes_per_entry > FAR_BYTES


def known_limit(things: Iterable[object]) -> Limit | None:
    """Return the limit of the first of *things* that has one."""
    for thing in things:
        for kind, name, read in _LIMITS:
            if any(base is kind for base in mro_of(type(thing))):
                limit = read(thing)
                if limit is not None and limit <= FAR:
                    shown = "functools.lru_cache" if kind is _LRU_CACHE else type_name(type(thing))
                    return Limit(f"{shown}({name}={limit})", limit, kind is not _LRU_CACHE)
    return None
