"""Find the dicts that are the ``__dict__`` of an instance.

An instance keeps its attributes without a dict until somebody reads ``__dict__``; from then on they lie one object
further away. Which dict is an instance's own is read from the very place where CPython keeps the pointer to it: a dict
that is an attribute, ``self.cache``, is referred to by the instance just the same, and is none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Final

from leaklab.runtime.objects import HEAP_TYPE, MANAGED_DICT, flags_of, has_base

_WORD: Final = ctypes.sizeof(ctypes.c_void_p)
# Python 3.11 to 3.14, with the interpreter lock and without it.
_MANAGED_OFFSETS: Final = (-3 * _WORD, -_WORD)
_dict_offset_of = type.__dict__["__dictoffset__"].__get__


class _Probe:
    """Instances of this show where the pointer lies."""

    def __init__(self) -> None:
        self.attribute: dict[str, int] = {}


def word_at(address: int) -> int:
    """Return the machine word at *address*, 0 for a null pointer."""
    return ctypes.c_void_p.from_address(address).value or 0


def _managed_offset() -> int:
    """Return where the pointer to a dict that the interpreter manages lies, from the instance; 0 if unknown."""
    opened, closed = _Probe(), _Probe()
    own = id(vars(opened))
    for offset in _MANAGED_OFFSETS if flags_of(_Probe) & MANAGED_DICT else ():
        if word_at(id(opened) + offset) == own and word_at(id(closed) + offset) != id(closed.attribute):
            return offset
    return 0


_MANAGED_OFFSET: Final = _managed_offset()


def is_own_dict(thing: object, child: object) -> bool:
    """Return whether *child* is the ``__dict__`` of *thing*, an instance as `own_dicts` has them."""
    if type(child) is not dict:
        return False
    offset = _offset_in(type(thing))
    return offset != 0 and word_at(id(thing) + offset) == id(child)


def dict_pointers(types: dict[int, type]) -> Iterator[tuple[int, int]]:
    """Yield the address of each type whose instances have a dict at a known place, and that place."""
    for address, kind in types.items():
        if offset := _offset_in(kind):
            yield address, offset


def _offset_in(kind: type) -> int:
    """Return where instances of *kind* have the pointer to their dict; 0 where that is not known, or not the same."""
    flags = flags_of(kind)
    if not flags & HEAP_TYPE or has_base(kind, type):  # a class's dict is always there
        return 0
    return _MANAGED_OFFSET if flags & MANAGED_DICT else max(_dict_offset_of(kind), 0)
