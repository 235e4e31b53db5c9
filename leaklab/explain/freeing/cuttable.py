"""Tell which references somebody can cut: an entry can be deleted, the inside of a bound method cannot."""

from __future__ import annotations

import collections
import functools
import types
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from leaklab.addresses import types_at
from leaklab.explain.references import best_reference
from leaklab.graph_walk import is_node_type
from leaklab.objects import has_base, is_tensor_type, loaded_type

if TYPE_CHECKING:
    from leaklab.explain.heap.address_table import Ints
    from leaklab.explain.view import HeapView

NEVER = -1
"""The price of a reference that nobody can cut."""
_EASY, _AWKWARD, _UNKNOWN = 0, 1, 2

_HEAP_TYPE = 1 << 9
_flags_of = type.__dict__["__flags__"].__get__
# Python has no way to change what they refer to once they are made.
_FIXED: tuple[type, ...] = (
    tuple, frozenset, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType, types.FunctionType,
    types.CodeType, types.TracebackType, types.ModuleType, types.MappingProxyType, property, classmethod, staticmethod,
    slice, memoryview, functools.partial, weakref.ref, type({}.items()), type({}.keys()), type({}.values()),
)  # fmt: skip
_EASILY_CHANGED: tuple[type, ...] = (
    list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict, types.CellType, BaseException,
)  # fmt: skip
# They let go when they end, or are closed; their variables cannot be deleted from outside.
_ENDING: tuple[type, ...] = (types.FrameType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
# References of objects that can be changed, but not in this place.
_FIXED_REFERENCES = (".__dict__", "._base", ".__class__", ".__closure__", ".__self__", ".__func__", ".__wrapped__")
_FIXED_ROOTS = ("type ", "context variable")


def prices(view: HeapView, holders: Ints, held: Ints) -> Ints:
    """Return for each reference how little one would like to cut it: 0 for an entry or attribute, or `NEVER`."""
    of_kind = {address: _price_of_kind(kind) for address, kind in types_at(view.kinds[holders]).items()}
    kinds = view.kinds[holders]
    known = np.array(sorted(of_kind), np.int64)
    values = np.array([of_kind[address] for address in known.tolist()], np.int64)
    result: Ints = values[np.searchsorted(known, kinds)] if len(known) else np.zeros(0, np.int64)
    result[kinds == view.index.ids[held]] = NEVER  # its class
    return result


def _price_of_kind(kind: type) -> int:
    if any(kind is each for each in _FIXED) or has_base(kind, type) or is_node_type(kind):
        return NEVER
    if any(kind is each for each in _ENDING):
        return _AWKWARD
    if any(has_base(kind, each) for each in _EASILY_CHANGED) or is_tensor_type(kind):
        return _EASY
    if any(has_base(kind, each) for each in (tuple, frozenset, weakref.ref)):
        return NEVER
    return _EASY if _flags_of(kind) & _HEAP_TYPE else _UNKNOWN


def is_fixed(view: HeapView, holder: int, held: int) -> bool:
    """Return whether the reference from *holder* to *held*, whose kind allows it, is nevertheless none to be cut.

    It has to be named to know that, which takes some microseconds.
    """
    things: list[Any] = [view.objects[holder], view.objects[held]]
    array_type = loaded_type("numpy", "ndarray")
    if array_type is not None and has_base(type(things[0]), array_type):
        return best_reference(*things).text == ".base"
    if not (type(things[1]) is dict or is_tensor_type(type(things[1]))):
        return False
    return best_reference(*things).text in _FIXED_REFERENCES


def price_of_root(words: str, *, is_place: bool) -> int:
    """Return the same for what a root itself holds; a place, such as a module, holds itself and is never cut."""
    return NEVER if is_place or words.startswith(_FIXED_ROOTS) else _AWKWARD
