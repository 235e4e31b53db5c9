"""Tell the values in an object that somebody asked about, and run nothing that its class could have written."""

from __future__ import annotations

import collections
import itertools
from typing import Any

from leaklab.runtime.containers import EMPTY, entries_in, first_items
from leaklab.runtime.objects import (
    is_exactly,
    is_kind_of,
    is_tensor,
    loaded_type,
    no_torch_functions,
    safe_len,
    summary,
    type_name,
)

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
        return [f"a {type_name(type(thing))}: to read its values would run code of that class"]
    if any(is_kind_of(thing, base) for base in _ORDERED):
        return _with_rest(list(map(_words, first_items(thing, MOST_VALUES))), safe_len(thing) or 0)
    if is_kind_of(thing, dict):
        pairs = entries_in(thing, MOST_VALUES)
        return _with_rest([f"{_words(key)}: {_words(value)}" for key, value in pairs], safe_len(thing) or 0)
    return [_words(thing)]


def _words(value: object) -> str:
    """Return one value in a line: itself where its type is built in, else its type."""
    if value is EMPTY:
        return "nothing yet: the code that makes it has not filled this place"
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
                return ["its values do not lie one after another: to see them, make it contiguous"]
            flat = base.reshape(base.detach(tensor), (-1,))
            values = base.tolist(base.cpu(base.narrow(flat, 0, 0, min(n_values, MOST_VALUES))))
        except _UNREADABLE as error:
            return [f"torch cannot tell its values ({type(error).__name__})"]
    return _with_rest([repr(value) for value in values], n_values)


def _array_lines(array: Any, kind: Any) -> list[str]:
    dtype = kind.dtype.__get__(array)
    if dtype.hasobject:
        return [f"an array of Python objects, {dtype}"]
    first = itertools.islice(kind.flat.__get__(array), MOST_VALUES)
    return _with_rest([repr(value.item()) for value in first], int(kind.size.__get__(array)))
