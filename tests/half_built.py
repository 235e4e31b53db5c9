"""Lists and tuples whose places are not all filled, as C code leaves them while it makes one."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

EMPTY_PLACE = object()
"""Stands for a place to be left as it is."""


def half_built(kind: type, things: Sequence[object]) -> Any:
    """Return a list or a tuple of *things*, in which nothing stands where they have `EMPTY_PLACE`."""
    word = {list: "List", tuple: "Tuple"}[kind]
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_ssize_t)((f"Py{word}_New", ctypes.pythonapi))
    takes_over = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.py_object)
    put = takes_over((f"Py{word}_SetItem", ctypes.pythonapi))
    made = new(len(things))
    for place, thing in enumerate(things):
        if thing is not EMPTY_PLACE:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
            put(id(made), place, thing)
    return made
