"""Find by tracemalloc the line of the user's code that made a Python object."""

from __future__ import annotations

import ctypes
import gc
import sys
import tracemalloc
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from leaklab.addresses import addresses_of
from leaklab.collect.copy_sites import innermost_and_asking
from leaklab.collect.line_watch import Line, Whose
from leaklab.collect.measure import Measurement
from leaklab.collect.tensor_sites import StorageLines
from leaklab.objects import flags_of, is_exactly, is_tensor

N_FRAMES = 40
"""So deep are stacks recorded: from the line in a module's ``forward`` to the user's own there are ten to thirty."""
FEW_FRAMES = 10
"""With fewer, most lines of libraries could not be followed to the user's own."""
_DEPTH = 4
"""From a function over its closure and a cell of it to a tensor's tuple."""
_MAX_LOOKED_AT = 200
_CONTAINERS = (list, tuple, dict, types.CellType, types.MethodType)
_MAX_SURVIVORS = 20_000
"""So many survivors of the traced runs are asked for their line: 1 s."""


@contextmanager
def python_traces() -> Iterator[int]:
    """Record where Python objects are made, inside; the value is how many frames of each stack.

    Where tracemalloc runs already, it keeps its own settings and its traces.
    """
    if tracemalloc.is_tracing():
        yield tracemalloc.get_traceback_limit()
        return
    tracemalloc.start(N_FRAMES)
    try:
        yield N_FRAMES
    finally:
        tracemalloc.stop()


def line_that_made(thing: object, whose: Whose) -> Line | None:
    """Return the line of the user's code that made *thing*, or had it copied; None if that was not recorded."""
    innermost, asking = _lines_of(thing, whose)
    return asking or innermost


def _lines_of(thing: object, whose: Whose) -> tuple[Line | None, Line | None]:
    stack = ((filename, (filename, number, "")) for filename, number in _stack_of(thing))
    return innermost_and_asking(stack, whose)


def _stack_of(thing: object) -> list[tuple[str, int]]:
    """Return the stack that made *thing*, innermost line first; empty if it was not recorded."""
    if _LOSES_INSTANCES and flags_of(type(thing)) & _MANAGED_DICT:
        return list(_lost_stack(id(thing) - _BEFORE_INSTANCE) or ())
    return [(frame.filename, frame.lineno) for frame in reversed(tracemalloc.get_object_traceback(thing) or ())]


_LOSES_INSTANCES = (3, 11) <= sys.version_info < (3, 12)
"""In 3.11 `tracemalloc` looks for an instance behind the place where its memory begins, and finds nothing."""
_MANAGED_DICT = 1 << 4
_BEFORE_INSTANCE = 4 * ctypes.sizeof(ctypes.c_void_p)  # the collector's header, the values, the dict


def _lost_stack(address: int) -> tuple[tuple[str, int], ...] | None:
    """Ask tracemalloc for the block of memory at *address*."""
    find = getattr(ctypes.pythonapi, "_PyTraceMalloc_GetTraceback", None)
    if find is None:
        return None
    find.restype, find.argtypes = ctypes.py_object, (ctypes.c_uint, ctypes.c_size_t)
    found: tuple[tuple[str, int], ...] | None = find(0, address)
    return found


class Made(NamedTuple):
    """Where an object was made.

    Attributes:
        line: The line that made it, or had it copied.
        born_at: File and line of the innermost line of the user's that ran then.
    """

    line: Line
    born_at: tuple[str, int]


class Makers:
    """Finds the lines that made objects: tensors by their storage, everything else by tracemalloc.

    Args:
        whose: Tells whose code a file is.
        storages: What was noted of storages.
    """

    def __init__(self, whose: Whose, storages: StorageLines) -> None:
        self._whose = whose
        self.storages = storages

    def lines_of(self, entries: list[object]) -> list[Line]:
        """Return the lines that made the tensors in *entries*, or *entries* themselves where there are none."""
        tensors = list(_tensors_in(entries))
        return [line for thing in tensors or entries if (line := self._line(thing)) is not None]

    def made_by_survivor(self, measurement: Measurement, n_before: int) -> dict[int, Made]:
        """Return where each object was made that a run after the first *n_before* left; a phase is open.

        Objects are known by their addresses; one whose line was not recorded is left out.
        """
        addresses, _kinds, runs = measurement.cohorts.members()
        with measurement.young() as objects:
            new = np.flatnonzero(np.isin(addresses_of(objects), addresses[runs >= n_before]))
            found = ((id(thing), self._made(thing)) for thing in (objects[place] for place in new[:_MAX_SURVIVORS]))
            return {address: made for address, made in found if made is not None}

    def _made(self, thing: object) -> Made | None:
        innermost, asking = _lines_of(thing, self._whose)
        line = (self.storages.line_of(thing) if is_tensor(thing) else None) or asking or innermost
        return None if line is None else Made(line, (innermost or line)[:2])

    def _line(self, thing: object) -> Line | None:
        made = self._made(thing)
        return None if made is None else made.line


def _tensors_in(entries: list[object]) -> Iterator[object]:
    """Yield tensors that *entries* are or refer to, over a few steps."""
    seen: set[int] = set()
    level = entries
    for _ in range(_DEPTH + 1):
        new = [thing for thing in level if id(thing) not in seen]
        seen.update(map(id, new))
        yield from filter(is_tensor, new)
        level = [inner for thing in new if not is_tensor(thing) for inner in _content_of(thing)][:_MAX_LOOKED_AT]


def _content_of(thing: object) -> list[object]:
    """Return what *thing*, made a moment ago, is made of: not what it shares with the rest of the program."""
    kind = type(thing)
    if kind is types.FunctionType:  # nor its global variables
        parts = (thing.__closure__, thing.__defaults__)  # type: ignore[attr-defined]  # a function
        return [part for part in parts if part is not None]
    # Short containers are made in memory of old ones, of which tracemalloc says nothing.
    if is_exactly(thing, _CONTAINERS) or _stack_of(thing):
        return gc.get_referents(thing)[:_MAX_LOOKED_AT]
    return []
