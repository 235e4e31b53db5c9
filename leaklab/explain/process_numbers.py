"""Find the file descriptors and child processes that objects keep, by the numbers that the objects know them by.

Files and sockets are asked by the C code of their base. Whoever opens a descriptor or starts a process himself keeps
its number in an attribute that is named after it. Of C code of an extension (a database, a mapped file), and of shared
memory of torch, no number is known: of these it is told only that they may keep some.
"""

from __future__ import annotations

import io
import re
import select
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from leaklab.collect.process_counts import CHILDREN, DESCRIPTORS, Counted
from leaklab.explain.group_sizes import newest_entries
from leaklab.runtime.addresses import get_referents, is_own_dict
from leaklab.runtime.containers import entries_in
from leaklab.runtime.objects import (
    HEAP_TYPE,
    flags_of,
    has_base,
    inline_attributes,
    is_exactly,
    is_tensor_type,
    loaded_type,
    no_torch_functions,
)

_UNTRACKED = tuple(vars(select)[name] for name in ("epoll", "kqueue") if name in vars(select))
"""No collector lists these: they are asked for in the attributes of what does."""
_FILENO: dict[type, Callable[[Any], int]] = {
    base: vars(base)["fileno"] for base in (io.FileIO, socket.socket.__mro__[1], *_UNTRACKED)
}
_NAMES = {
    DESCRIPTORS.unit: re.compile(r"(^|_)(fd|fds|handle|fileno|sentinel)$"),
    CHILDREN.unit: re.compile(r"(^|_)pid$"),
}
_FEWEST = 4
"""Fewer numbers that agree may do so by chance."""
_SHARE = 0.9


def numbers_kept(things: Sequence[object], counted: Counted, wanted: Collection[int]) -> set[int]:
    """Return those of the numbers *wanted* that *things* keep."""
    return {number for thing in things for number in _numbers_of(thing, counted) if number in wanted}


def _numbers_of(thing: object, counted: Counted) -> Iterator[int]:
    kind = type(thing)
    if counted is DESCRIPTORS:
        ask = next((ask for base, ask in _FILENO.items() if has_base(kind, base)), None)
        if ask is not None:
            yield from _asked(ask, thing)
            return
    names = _NAMES[counted.unit]
    for name, value in _named(thing, kind):
        if type(value) is int and type(name) is str and names.search(name):
            yield value
        elif counted is DESCRIPTORS and is_exactly(value, _UNTRACKED):
            yield from _asked(_FILENO[type(value)], value)


def _named(thing: Any, kind: type) -> Iterable[tuple[Any, Any]]:
    if kind is dict:
        return entries_in(thing)
    if not flags_of(kind) & HEAP_TYPE:
        return ()
    own = next((child for child in get_referents(thing) if is_own_dict(thing, child)), None)
    return inline_attributes(thing) if own is None else entries_in(own)


def _asked(ask: Callable[[Any], int], thing: object) -> Iterator[int]:
    try:
        yield ask(thing)
    except (ValueError, OSError):  # closed, or never opened
        return


def are_entries(thing: object, numbers: Sequence[int]) -> bool:
    """Return whether *numbers*, the newest last, are the newest entries of a container, or the values of a dict.

    One after the other: a list of the numbers of steps has nearly the same entries as one of descriptors.
    """
    newest = newest_entries(thing, len(numbers))
    entries = newest[1::2] if has_base(type(thing), dict) else newest
    pairs = list(zip(entries, reversed(numbers), strict=False))
    n_same = sum(type(entry) is int and entry == number for entry, number in pairs)
    return len(pairs) >= _FEWEST and n_same >= _SHARE * len(pairs)


def shares_memory(thing: object) -> bool:
    """Return whether *thing* is a tensor of the host whose memory other processes can see."""
    if not is_tensor_type(type(thing)):
        return False
    base: Any = loaded_type("torch", "Tensor")
    with no_torch_functions():
        try:
            return not base.is_cuda.__get__(thing) and bool(base.is_shared(thing))
        except (RuntimeError, NotImplementedError):  # a tensor without a storage of its own
            return False
