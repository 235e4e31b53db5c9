"""Switch tracemalloc on for a few runs, and off so that no other thread is hurt by it."""

from __future__ import annotations

import ctypes
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

N_FRAMES = 40
"""So deep are stacks recorded: from the line in a module's ``forward`` to the user's own there are ten to thirty."""
FEW_FRAMES = 10
"""With fewer, most lines of libraries could not be followed to the user's own."""

_RAW = 0  # the domain of memory that is allocated without the interpreter lock
_IS_MENDED = sys.version_info >= (3, 13, 2) or (3, 12, 9) <= sys.version_info < (3, 13)
"""Whether `tracemalloc.stop` waits for threads that are within it (python/cpython#128679)."""
_TURNS, _MOST_SECONDS, _PAUSE_SECONDS = 2, 0.25, 0.002


@contextmanager
def python_traces() -> Iterator[int]:
    """Record where Python objects are made, inside; the value is how many frames of each stack.

    Where tracemalloc runs already, it keeps its own settings and its traces.
    """
    if tracemalloc.is_tracing():
        yield tracemalloc.get_traceback_limit()
        return
    limit = tracemalloc.get_traceback_limit()
    _start(N_FRAMES)
    try:
        yield N_FRAMES
    finally:
        # With another limit it is not ours any more: the code inside has stopped it, and started it for itself.
        if tracemalloc.get_traceback_limit() == N_FRAMES:
            try:
                _stop()
            finally:
                _start(limit)  # nothing else sets the limit back
                _stop()


def _start(n_frames: int) -> None:
    """Trace objects, and nothing that is allocated without the interpreter lock.

    A thread that allocates without the lock waits for it within tracemalloc. If tracemalloc is stopped meanwhile, the
    thread writes to what has been freed, and the process crashes. So the way in is closed at once: a thread that came
    through in these microseconds has all the time of the traced runs to get the lock.
    """
    raw = _Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(_RAW, ctypes.byref(raw))
    tracemalloc.start(n_frames)
    if not _IS_MENDED:
        ctypes.pythonapi.PyMem_SetAllocator(_RAW, ctypes.byref(raw))


def _stop() -> None:
    """Stop tracemalloc, once each thread that may wait for the interpreter lock within it has had its turns."""
    if not tracemalloc.is_tracing():
        return
    try:
        if not _IS_MENDED:
            seconds = _TURNS * psutil.Process().num_threads() * sys.getswitchinterval()
            end = time.monotonic() + min(seconds, _MOST_SECONDS)
            while time.monotonic() < end:
                time.sleep(_PAUSE_SECONDS)
    finally:
        tracemalloc.stop()


class _Allocator(ctypes.Structure):
    """``PyMemAllocatorEx``: a context and four functions."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free"))
