"""Tell the values that no reference keeps alive: numbers, texts, and what the interpreter has for all code."""

from __future__ import annotations

import sys
from typing import Any, Final

from leaklab.objects import is_kind_of, type_name

_SHARED: Final = (int, float, complex, bool, str, type(...), type(NotImplemented))
_EMPTY: Final = (tuple, bytes, frozenset)
_HEAP_TYPE = 1 << 9
_flags_of = type.__dict__["__flags__"].__get__
_IMMORTAL_COUNT = 1 << 28  # from 3.12 on; no count that was counted comes near


def words_if_shared(thing: Any) -> str:
    """Return what *thing* is if it is a value that all code shares, empty for anything that can be freed."""
    kind = type(thing)
    if thing is None:
        return "None is one object for all code"
    if any(kind is shared for shared in _SHARED):
        return f"a value of type {type_name(kind)} may be shared by all code that uses the same value"
    if any(kind is empty for empty in _EMPTY) and not len(thing):
        return f"the empty {type_name(kind)} is one object for all code"
    if is_kind_of(thing, type) and not _flags_of(thing) & _HEAP_TYPE:
        return f"the type {type_name(thing)} is built into the interpreter"
    if sys.getrefcount(thing) > _IMMORTAL_COUNT:
        return f"this {type_name(kind)} was made immortal by the interpreter"
    return ""
