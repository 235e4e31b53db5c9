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
_DATA_CONTAINERS = frozenset(map(id, (tuple, dict)))
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


def owned_objects(things: Collection[object]) -> list[object]:
    """Return *things* and the data that they refer to, each once: what `owned_bytes` counts but storages.

    Tuples and dicts of nothing but data are data too: the collector does not list them, so nobody else tells of them.
    """
    found = {id(thing): thing for thing in things}
    level = list(found.values())
    while level:
        referents = gc.get_referents(*level)
        new = {
            id(thing): thing for thing in referents if id(thing) not in found and (is_leaf(thing) or _is_data(thing))
        }
        found |= new
        level = [thing for thing in new.values() if id(type(thing)) in _DATA_CONTAINERS]
    # Numbers and words that a module knows anyway are few and small: not worth the search for their other owners.
    return list(found.values())


def _is_data(thing: object) -> bool:
    return id(type(thing)) in _DATA_CONTAINERS and not gc.is_tracked(thing)


def owned_bytes(things: Collection[object], *, without_storages: Iterable[int] = ()) -> int:
    """Return the bytes that *things* own together, everything counted once.

    Counted are the objects themselves, what they refer to of strings, numbers, arrays, and tuples and dicts of such,
    and the storages of their tensors; not what else they refer to.

    Args:
        things: Live objects.
        without_storages: Keys of storages that belong to somebody else.
    """
    storages = storage_bytes(thing for thing in things if is_tensor(thing))
    for key in without_storages:
        storages.pop(key, None)
    return sum(map(shallow_bytes, owned_objects(things))) + sum(storages.values())
