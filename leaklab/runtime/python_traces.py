"""Record where Python objects are made, by tracemalloc, and say which calls made one.

tracemalloc is on for a few runs only, and is switched off so that no other thread is hurt by it.
"""

from __future__ import annotations

import ctypes
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from leaklab.runtime.objects import MANAGED_DICT, flags_of

Places = tuple[tuple[str, int], ...]
"""Files and lines, the innermost call first."""

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


_recorded: Callable[[object], Places | None] = getattr(tracemalloc, "_get_object_traceback")  # noqa: B009
"""What `tracemalloc.get_object_traceback` makes an object of: 40 frames of each of thousands of objects."""


def stack_of(thing: object) -> Places:
    """Return the stack that made *thing*; empty if it was not recorded."""
    if _LOSES_INSTANCES and flags_of(type(thing)) & MANAGED_DICT:
        return _lost_stack(id(thing) - _BEFORE_INSTANCE) or ()
    return _recorded(thing) or ()


_LOSES_INSTANCES = (3, 11) <= sys.version_info < (3, 12)
"""In 3.11 `tracemalloc` looks for an instance behind the place where its memory begins, and finds nothing."""
_BEFORE_INSTANCE = 4 * ctypes.sizeof(ctypes.c_void_p)  # the collector's header, the values, the dict


def _lost_stack(address: int) -> Places | None:
    """Ask tracemalloc for the block of memory at *address*."""
    find = getattr(ctypes.pythonapi, "_PyTraceMalloc_GetTraceback", None)
    if find is None:
        return None
    find.restype, find.argtypes = ctypes.py_object, (ctypes.c_uint, ctypes.c_size_t)
    return find(0, address)  # type: ignore[no-any-return]
