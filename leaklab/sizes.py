"""Add up the bytes that objects own: themselves, the data they refer to, the storages of their tensors."""

from __future__ import annotations

import array
import gc
import sys
from collections.abc import Collection, Iterable
from typing import Any

from leaklab.objects import has_base, is_tensor, loaded_type, type_name
from leaklab.tensors import storage_bytes

# Their __sizeof__ is C code and counts what they own.
_MEASURED = (
    str, bytes, bytearray, int, float, complex, bool, list, dict, tuple, set, frozenset, array.array, range, slice,
)  # fmt: skip
_MEASURED_IDS = frozenset(map(id, _MEASURED))
_LEAVES = frozenset(map(id, (str, bytes, bytearray, int, float, complex, array.array)))
_GC_HEADER = 16


def shallow_bytes(thing: object) -> int:
    """Return the bytes of *thing* alone; for an instance of a user's class what its base type declares.

    A ``__sizeof__`` that the user wrote is never called.
    """
    kind = type(thing)
    if id(kind) in _MEASURED_IDS:
        return sys.getsizeof(thing)
    array_type: Any = loaded_type("numpy", "ndarray")
    if array_type is not None and has_base(kind, array_type):
        owned = array_type.base.__get__(thing) is None
        return int(kind.__basicsize__) + (int(array_type.nbytes.__get__(thing)) if owned else 0)
    for base in _MEASURED:
        if has_base(kind, base) and base is not bool:
            return int(base.__sizeof__(thing)) + _GC_HEADER
    try:
        return int(object.__sizeof__(thing)) + _GC_HEADER
    except TypeError:  # a class: its size is its metaclass's business
        return int(type.__dict__["__sizeof__"](thing)) if has_base(kind, type) else 0


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
