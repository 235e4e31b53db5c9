"""Look at the newest entries of a container: what they are, and how many bytes each is."""

from __future__ import annotations

import collections
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any

from leaklab.objects import STREAM_TYPES, has_base, safe_len, type_name
from leaklab.sizes import owned_bytes

_MAX_SAMPLED = 1000
_POINTER_BYTES = 8


def _newest_items(mapping: dict[Any, Any]) -> Iterable[object]:
    return chain.from_iterable((value, key) for key, value in reversed(list(dict.items(mapping))))


# Every reader is C code of the built-in type: a subclass may do anything in methods of its own.
_READERS: tuple[tuple[type, Callable[[Any], Iterable[object]], int], ...] = (
    (dict, _newest_items, 2),
    (list, list.__reversed__, 1),
    (collections.deque, collections.deque.__reversed__, 1),
    (set, set.__iter__, 1),
    (tuple, lambda things: reversed(tuple.__getitem__(things, slice(None))), 1),
)


def content_of(thing: object, n_new: int) -> tuple[str, float]:
    """Return what the *n_new* newest entries of a container are, and the bytes of one.

    Returns:
        Name of the commonest type among them, of the values where there are keys; empty where the container holds
        plain data. The bytes are those of the entry with what it alone refers to, and of its place in the container.
    """
    if any(type(thing) is stream for stream in STREAM_TYPES):
        return "", 1.0
    found = next(((read, width) for kind, read, width in _READERS if has_base(type(thing), kind)), None)
    if found is None:
        return "", float(owned_bytes([thing])) / max(safe_len(thing) or 1, 1)
    read, width = found
    sample = list(islice(read(thing), width * min(n_new, _MAX_SAMPLED)))
    if not sample:
        return "", 0.0
    ((name, _count),) = Counter(type_name(type(entry)) for entry in sample[::width]).most_common(1)
    distinct = {id(entry): entry for entry in sample}
    return name, owned_bytes(list(distinct.values())) * width / len(sample) + width * _POINTER_BYTES
