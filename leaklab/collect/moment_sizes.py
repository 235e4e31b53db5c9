"""Add up what the objects of each type take, and find the arrays that the collector does not know."""

from __future__ import annotations

import array
import collections
import gc
import sys
import types
import weakref
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from leaklab.addresses import kinds_of, types_at
from leaklab.collect.buffers import MIN_BYTES
from leaklab.collect.moment_kinds import KindTable
from leaklab.objects import array_words, has_base, loaded_type, mro_of, type_name
from leaklab.sizes import shallow_bytes

_BATCH = 50_000
_VARIABLE = (list, dict, tuple, set, frozenset, collections.deque)
_PLAIN = frozenset(map(id, _VARIABLE))
_BUFFERS = (bytes, bytearray, array.array)
# Their references are code, names and other classes: no array is looked for there.
_NO_HOLDERS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.ModuleType, types.MethodType, type, weakref.ref,
    property, staticmethod, classmethod,
)  # fmt: skip


def bytes_of_kinds(objects: list[object], table: KindTable) -> npt.NDArray[np.int64]:
    """Return the bytes of all objects of each type, without what they refer to, shape ``(n_types,)``.

    Objects of a fixed size are counted, only containers are measured one by one.

    Args:
        objects: Live objects.
        table: Their types.
    """
    places, n_types = table.rows, len(table.types)
    counts = np.bincount(places, minlength=n_types)
    totals = np.zeros(n_types, np.int64)
    arrays = loaded_type("numpy", "ndarray")
    for place, of in enumerate(table.types):
        is_sized = any(has_base(of, base) for base in _VARIABLE) or (arrays is not None and has_base(of, arrays))
        if not is_sized:
            totals[place] = counts[place] * (int(type.__dict__["__basicsize__"].__get__(of)) + 16)
    exact = table.mask(lambda of: id(of) in _PLAIN)
    # sys.getsizeof of exactly these types runs C code only, at 60 ns an object.
    sizes = np.fromiter(map(sys.getsizeof, compress(objects, exact.tobytes())), np.int64, int(exact.sum()))
    totals += np.bincount(places[exact], weights=sizes, minlength=n_types).astype(np.int64)
    rest = (totals == 0)[places]
    for place, thing in zip(places[rest].tolist(), compress(objects, rest.tobytes()), strict=True):
        totals[place] += shallow_bytes(thing)
    return totals


def find_arrays(objects: list[object], table: KindTable) -> dict[int, tuple[str, int]]:
    """Return the arrays and buffers that *objects* refer to, as words and bytes by address.

    Only those of a kilobyte or more, and none that the collector lists by itself.
    """
    picked = list(compress(objects, table.mask(_may_hold).tobytes()))
    found: dict[int, tuple[str, int]] = {}
    is_array: dict[int, bool] = {}
    for start in range(0, len(picked), _BATCH):
        targets = gc.get_referents(*picked[start : start + _BATCH])
        kinds = kinds_of(targets)
        wanted = [kind for kind, of in types_at(kinds).items() if _is_array(kind, of, is_array)]
        if not wanted:
            continue
        for thing in compress(targets, np.isin(kinds, wanted).tobytes()):
            if id(thing) not in found and (n_bytes := shallow_bytes(thing)) >= MIN_BYTES and not gc.is_tracked(thing):
                found[id(thing)] = (words_of_array(thing), n_bytes)
    return found


def words_of_array(thing: Any) -> str:
    """Return type, shape and dtype of an array, the type alone of a buffer."""
    name = type_name(type(thing))
    arrays = loaded_type("numpy", "ndarray")
    return f"{name} {array_words(thing)}" if arrays is not None and has_base(type(thing), arrays) else name


def _may_hold(of: type) -> bool:
    return not any(base is ancestor for ancestor in mro_of(of) for base in _NO_HOLDERS)


def _is_array(kind: int, of: type, known: dict[int, bool]) -> bool:
    if kind not in known:
        arrays = loaded_type("numpy", "ndarray")
        known[kind] = any(of is buffer for buffer in _BUFFERS) or (arrays is not None and has_base(of, arrays))
    return known[kind]
