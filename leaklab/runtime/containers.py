"""Read what a container of the heap holds, whatever state it is in.

C code that makes a list or a tuple leaves NULL in the places that it has not filled yet, and the collector lists such
an object like any other: an open ``XMLPullParser`` has one for as long as it parses. Python trusts every place: to
index, iterate, slice, copy, compare, hash or print such a list ends the process. So nobody but this module does that
with an object that was found in the heap. Here a place is asked for by C functions that return NULL as they find it,
and that check the bounds while no other thread runs.

Dicts, sets and deques have no such places, but they may change while they are read: another thread runs, or a
collection runs a finalizer. They are read again then.

For somebody who asks about one object its values are put into words; nothing that its class could have written runs.
"""

from __future__ import annotations

import collections
import contextvars
import ctypes
import itertools
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leaklab.runtime.objects import (
    has_base,
    is_exactly,
    is_kind_of,
    is_tensor,
    loaded_type,
    no_torch_functions,
    safe_len,
    summary,
    type_name,
)
from leaklab.runtime.referents import get_referents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_T = TypeVar("_T")


class _Empty:
    """The type of `EMPTY`."""

    __slots__ = ()


EMPTY: Final = _Empty()
"""Stands for what is in a place of a list or a tuple that has not been filled yet."""

# By address: to hand an object over, ctypes asks for its `__class__`.
_ask: Final = ctypes.PYFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_ssize_t)
# Both return the address of the item, 0 for NULL, and raise IndexError behind the end.
_ADDRESS_IN: Final[dict[type, Callable[[Any, int], int]]] = {
    list: _ask(("PyList_GetItem", ctypes.pythonapi)),
    tuple: _ask(("PyTuple_GetItem", ctypes.pythonapi)),
}
_GET: Final[dict[type, Callable[[Any, int], Any]]] = {list: list.__getitem__, tuple: tuple.__getitem__}
_WALKS: Final[tuple[tuple[type, Callable[[Any], Iterable[Any]]], ...]] = (
    (collections.deque, collections.deque.__iter__),
    (set, set.__iter__),
    (frozenset, frozenset.__iter__),
)
_WALKS_BACK: Final = ((collections.deque, collections.deque.__reversed__), *_WALKS[1:])
_TRIES = 5
_PROBE: Final = [[1], [2]]
_IS_BACKWARDS: Final = [*map(id, get_referents(_PROBE))] == [*map(id, reversed(_PROBE))]
"""Whether the collector is told of the items of a list from the last to the first, as CPython does."""


def items_in(things: object) -> list[Any]:
    """Return what a list, a tuple, a deque or a set holds, in its order; nothing of anything else.

    `EMPTY` stands where a list or a tuple has nothing yet, so that positions are right.
    """
    base = _sequence(things)
    if base is None:
        return _walked(things, _WALKS, None)
    length = _length(base, things)
    if _IS_BACKWARDS and type(things) is base:
        found = get_referents(things)
        if len(found) == length:  # an empty place is not told
            found.reverse()
            return found
    return [item_at(things, place) for place in range(length)]


def first_items(things: object, n_first: int) -> list[Any]:
    """Return the first *n_first* of what `items_in` returns, at no cost for what lies behind them."""
    base = _sequence(things)
    if base is None:
        return _walked(things, _WALKS, n_first)
    return [item_at(things, place) for place in range(min(_length(base, things), n_first))]


def newest_items(things: object, n_new: int) -> list[Any]:
    """Return the last *n_new* items of a list, a tuple or a deque, the last first; as many of a set.

    What has not been filled yet is left out. Costs nothing for what lies before them.
    """
    n_new = max(n_new, 0)
    base = _sequence(things)
    if base is None:
        return _walked(things, _WALKS_BACK, n_new)
    length = _length(base, things)
    found = (item_at(things, place) for place in range(length - 1, max(length - n_new, 0) - 1, -1))
    return [thing for thing in found if thing is not EMPTY]


def item_at(things: Any, place: int) -> Any:
    """Return what stands at *place* of a list or a tuple, counted from the front; `EMPTY` if nothing does."""
    base = _sequence(things)
    if base is None:
        return EMPTY
    try:
        return _GET[base](things, place) if _ADDRESS_IN[base](id(things), place) else EMPTY
    except IndexError:
        return EMPTY


def ends_of(things: Any) -> tuple[int, int]:
    """Return the addresses of the first and the last item of a list, a tuple or a deque, 0 where there is none."""
    base = _sequence(things)
    if base is None:  # not by a place counted from the end: that asks the class for the length
        firsts, lasts = first_items(things, 1), newest_items(things, 1)
        return (id(firsts[0]), id(lasts[0])) if firsts and lasts else (0, 0)
    try:
        return _ADDRESS_IN[base](id(things), 0), _ADDRESS_IN[base](id(things), _length(base, things) - 1)
    except IndexError:
        return 0, 0


def ends_of_dict(mapping: dict[Any, Any]) -> tuple[int, int]:
    """Return the addresses of the first and the last key of a dict, that of `EMPTY` where there is none."""
    return id(next(dict.__iter__(mapping), EMPTY)), id(next(dict.__reversed__(mapping), EMPTY))


def entries_in(mapping: Any, n_first: int | None = None) -> list[tuple[Any, Any]]:
    """Return keys and values of a dict, all or the first, in its order, whatever its class says."""
    return _settled(lambda: islice(dict.items(mapping), n_first))


def newest_pairs(mapping: Any, n_new: int) -> list[tuple[Any, Any]]:
    """Return the last *n_new* keys and values of a dict, the last first, at no cost for what lies before them."""
    return _settled(lambda: islice(reversed(dict.items(mapping)), max(n_new, 0)))


def keys_in(mapping: Any) -> list[Any]:
    """Return the keys of a dict, in its order, whatever its class says."""
    return _settled(partial(dict.__iter__, mapping))


def values_in(mapping: Any) -> list[Any]:
    """Return the values of a dict, in its order, whatever its class says."""
    return _settled(partial(dict.values, mapping))


def _sequence(things: object) -> type | None:
    kind = type(things)
    return list if has_base(kind, list) else tuple if has_base(kind, tuple) else None


def _length(base: type, things: object) -> int:
    length: int = base.__len__(things)  # type: ignore[attr-defined]  # a list or a tuple
    return length


def _walked(
    things: object, walks: Iterable[tuple[type, Callable[[Any], Iterable[Any]]]], n_wanted: int | None
) -> list[Any]:
    walk = next((walk for base, walk in walks if has_base(type(things), base)), None)
    return [] if walk is None else _settled(lambda: islice(walk(things), n_wanted))


def _settled(read: Callable[[], Iterable[_T]]) -> list[_T]:
    """Return what *read* yields, once nothing changes meanwhile; nothing if that never happens."""
    for _ in range(_TRIES):
        try:
            return list(read())
        except RuntimeError:  # noqa: PERF203 - it changed its size
            continue
    return []


MOST_VALUES = 40
_TEXT_LIMIT = 400
_MOST_COPIED = 100_000
"""So many values may be copied to see the first of them."""
_PLAIN = (bool, int, float, complex, type(None))
_TEXTS = (str, bytes, bytearray)
_ORDERED = (list, tuple, set, frozenset, collections.deque)
_UNREADABLE = (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError)


def value_lines(thing: object) -> list[str]:
    """Return the first values in *thing*, one line each; what cannot be told without code of its class is named.

    Of a tensor they are copied from its device; one that is sparse, quantized or without memory tells none.
    """
    plain_tensors = (loaded_type("torch", "Tensor"), loaded_type("torch.nn.parameter", "Parameter"))
    if is_exactly(thing, filter(None, plain_tensors)):
        return _tensor_lines(thing)
    array_type = loaded_type("numpy", "ndarray")
    if array_type is not None and is_exactly(thing, (array_type,)):
        return _array_lines(thing, array_type)
    if is_tensor(thing) or (array_type is not None and is_kind_of(thing, array_type)):
        return [f"a {type_name(type(thing))}: reading its values would run code of that class"]
    if any(is_kind_of(thing, base) for base in _ORDERED):
        return _with_rest(list(map(_words, first_items(thing, MOST_VALUES))), safe_len(thing) or 0)
    if is_kind_of(thing, dict):
        pairs = entries_in(thing, MOST_VALUES)
        return _with_rest([f"{_words(key)}: {_words(value)}" for key, value in pairs], safe_len(thing) or 0)
    return [_words(thing)]


def _words(value: object) -> str:
    """Return one value in a line: itself where its type is built in, else its type."""
    if value is EMPTY:
        return "not filled yet"
    if is_exactly(value, _PLAIN):
        try:
            return repr(value)
        except ValueError:  # a number of more than 4,300 digits
            return "a very large int"
    if is_exactly(value, _TEXTS):
        length = safe_len(value) or 0
        return f"{value[:_TEXT_LIMIT]!r}{f' and {length - _TEXT_LIMIT:,} more' if length > _TEXT_LIMIT else ''}"  # type: ignore[index]
    return " ".join(filter(None, (f"<{type_name(type(value))}>", summary(value))))


def _with_rest(lines: list[str], n_values: int) -> list[str]:
    return [*lines, f"and {n_values - len(lines):,} more"] if n_values > len(lines) else lines


def _tensor_lines(tensor: Any) -> list[str]:
    base: Any = loaded_type("torch", "Tensor")
    with no_torch_functions():
        try:
            n_values = int(base.numel(tensor))
            if n_values > _MOST_COPIED and not base.is_contiguous(tensor):
                return ["it is not contiguous: call .contiguous() to see its values"]
            flat = base.reshape(base.detach(tensor), (-1,))
            values = base.tolist(base.cpu(base.narrow(flat, 0, 0, min(n_values, MOST_VALUES))))
        except _UNREADABLE as error:
            return [f"torch cannot read its values ({type(error).__name__})"]
    return _with_rest([repr(value) for value in values], n_values)


def _array_lines(array: Any, kind: Any) -> list[str]:
    dtype = kind.dtype.__get__(array)
    if dtype.hasobject:
        return [f"an array of Python objects, {dtype}"]
    first = itertools.islice(kind.flat.__get__(array), MOST_VALUES)
    return _with_rest([repr(value.item()) for value in first], int(kind.size.__get__(array)))


def _node_types() -> tuple[type, ...]:
    """Return the types of which a context's mapping is built, by looking at one."""
    context = contextvars.Context()
    variables = [contextvars.ContextVar[int](str(number)) for number in range(_MANY_VARIABLES)]
    for variable in variables:
        context.run(variable.set, 0)
    found: set[type] = set()
    pending = [context]
    while pending:
        inner = [each for each in get_referents(pending.pop()) if type(each).__name__.startswith("hamt")]
        found.update(map(type, inner))
        pending.extend(inner)
    return tuple(found)


_MANY_VARIABLES = 64  # more than 16 entries make the top node an array node, its children are bitmap nodes
CONTEXT_HERE = "contextvars.copy_context()"
"""How Python writes the context that the code runs in: with a variable in brackets, its value."""
CONTEXT_NODES: Final = _node_types()
"""The types of which the mapping of a context is built: each change makes the nodes anew that lead to the value."""
