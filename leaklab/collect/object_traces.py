"""Switch tracemalloc on for a few runs, and off so that no other thread is hurt by it."""

from __future__ import annotations

import ctypes
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

N_FRAMES = 40
"""So deep are stacks recorded: from the line in a module's ``forward`` to the user's own there are ten to thirty."""
FEW_FRAMES = 10
"""With fewer, most lines of libraries could not be followed to the user's own."""

_RAW = 0  # the domain of memory that is allocated without the interpreter lock
_PAUSES, _PAUSE_SECONDS = 3, 0.002


@contextmanager
def python_traces() -> Iterator[int]:
    """Record where Python objects are made, inside; the value is how many frames of each stack.

    Where tracemalloc runs already, it keeps its own settings and its traces.
    """
    if tracemalloc.is_tracing():
        yield tracemalloc.get_traceback_limit()
        return
    limit, raw = tracemalloc.get_traceback_limit(), _raw_allocator()
    tracemalloc.start(N_FRAMES)
    try:
        yield N_FRAMES
    finally:
        # With another limit it is not ours any more: the code inside has stopped it, and started it for itself.
        if tracemalloc.get_traceback_limit() == N_FRAMES:
            try:
                _stop(raw)
            finally:
                tracemalloc.start(limit)  # nothing else sets the limit back
                _stop(raw)


def _stop(raw: _Allocator) -> None:
    """Stop tracemalloc when no thread is within it.

    Up to Python 3.13.1 a thread that allocates without the interpreter lock waits for the lock within tracemalloc, and
    then writes to what `tracemalloc.stop` has freed: the process crashes (python/cpython#128679). So the way in is
    closed first, and those who wait are let through.
    """
    if not tracemalloc.is_tracing():
        return
    try:
        ctypes.pythonapi.PyMem_SetAllocator(_RAW, ctypes.byref(raw))
        for _ in range(_PAUSES):
            time.sleep(_PAUSE_SECONDS)
    finally:
        tracemalloc.stop()


class _Allocator(ctypes.Structure):
    """``PyMemAllocatorEx``: a context and four functions."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free"))


def _raw_allocator() -> _Allocator:
    found = _Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(_RAW, ctypes.byref(found))
    return found
