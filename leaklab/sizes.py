"""Add up the bytes that objects own: themselves, the data they refer to, the storages of their tensors."""

from __future__ import annotations

import array
import functools
import gc
import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any

from leaklab.objects import has_base, is_tensor, loaded_type, mro_of, type_name
from leaklab.tensors import storage_bytes

# Their __sizeof__ is C code and counts what they own.
_MEASURED = (
    str, bytes, bytearray, int, float, complex, bool, list, dict, tuple, set, frozenset, array.array, range, slice,
)  # fmt: skip
_MEASURED_IDS = frozenset(map(id, _MEASURED))
_LEAVES = frozenset(map(id, (str, bytes, bytearray, int, float, complex, array.array)))
GC_HEADER_BYTES = 16
_HEAP_TYPE = 1 << 9
_flags_of = type.__dict__["__flags__"].__get__
_basic_size_of = type.__dict__["__basicsize__"].__get__


def shallow_bytes(thing: object) -> int:
    """Return the bytes of *thing* alone; for an instance of a user's class what its base type declares.

    A ``__sizeof__`` that the user wrote is never called.
    """
    size = sizing_of(type(thing))
    return size if isinstance(size, int) else size(thing)


def sizing_of(kind: type) -> int | Callable[[Any], int]:
    """Return the bytes that every object of *kind* has, or the function that measures one."""
    if id(kind) in _MEASURED_IDS:
        return sys.getsizeof
    array_type = loaded_type("numpy", "ndarray")
    if array_type is not None and has_base(kind, array_type):
        return functools.partial(_array_bytes, array_type, int(_basic_size_of(kind)))
    # The first class of the mro that is written in C is asked; its size rule cannot be the user's.
    for base in mro_of(kind):
        if _flags_of(base) & _HEAP_TYPE:
            continue
        if base is object:
            break
        own = base.__dict__.get("__sizeof__")
        if own is not None:
            return lambda thing: int(own(thing)) + GC_HEADER_BYTES
    # object.__sizeof__ would multiply by a length that not every type with items keeps where it looks for it.
    return int(_basic_size_of(kind)) + GC_HEADER_BYTES


def _array_bytes(array_type: Any, header_bytes: int, array: object) -> int:
    owned = array_type.base.__get__(array) is None
    return header_bytes + (int(array_type.nbytes.__get__(array)) if owned else 0)


def is_leaf(thing: object) -> bool:
    """Return whether *thing* is data that the collector does not follow: a string, a number, an array."""
    return id(type(thing)) in _LEAVES or type_name(type(thing)) == "numpy.ndarray"


def owned_bytes(things: Collection[object], *, without_storages: Iterable[int] = ()) -> int:
    """Return the bytes that *things* own together, everything counted once.

    Counted are the objects themselves, strings, numbers and arrays that they refer to, and the storages of their
    tensors; not what else they refer to.

    Args:
        things: Live objects.
        without_storages: Keys of storages that belong to somebody else.
    """
    storages = storage_bytes(thing for thing in things if is_tensor(thing))
    for key in without_storages:
        storages.pop(key, None)
    leaves = {id(leaf): leaf for leaf in gc.get_referents(*things) if is_leaf(leaf)} if things else {}
    # Numbers and words that a module knows anyway are few and small: not worth the search for their other owners.
    return sum(map(shallow_bytes, things)) + sum(map(shallow_bytes, leaves.values())) + sum(storages.values())
