"""Counts of the process that import nothing large: bytes of malloc, blocks of Python's own memory, open descriptors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

DESCRIPTOR_FOLDER = Path("/proc/self/fd")
_FOLDER_OF_BSD = Path("/dev/fd")
UNKNOWN = -1


def native_heap_bytes() -> int | None:
    """Return the bytes that malloc has handed out and not got back; None where the C library does not tell.

    Exact to the allocation on glibc, large blocks included. Python's own arenas for small objects are not in it.
    """
    try:
        info = psutil.heap_info()
    except (AttributeError, RuntimeError, OSError):  # musl, older macOS: psutil has no such call there
        return None
    return int(info.heap_used) + int(info.mmap_used)


_forget_attributes: Callable[[], object] = getattr(
    sys, "_clear_internal_caches", getattr(sys, "_clear_type_cache", lambda: None)
)


def python_blocks() -> int:
    """Return the blocks that Python's allocator has handed out; to tell, it walks all its pools.

    Without what the interpreter's cache of attributes keeps: names that C code has made, in up to 4,096 places that
    are chosen by the address of the name. A file that is opened leaves two, a step of an optimizer five, and under
    ``torch.set_default_device`` some twenty, fewer with every run. To forget them takes two microseconds.
    """
    _forget_attributes()
    return sys.getallocatedblocks()


def open_descriptors() -> list[int]:
    """Return the file descriptors that are open, ascending; none where the system does not list them."""
    folder = DESCRIPTOR_FOLDER if DESCRIPTOR_FOLDER.exists() else _FOLDER_OF_BSD
    try:
        listed = sorted(int(name) for name in os.listdir(folder))  # noqa: PTH208 - asked after every run: three times as fast
    except OSError:
        return []
    return [number for number in listed if _is_open(number)]  # the one that the list itself was read by is closed again


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def count_descriptors() -> int:
    """Return how many file descriptors are open; `UNKNOWN` where the system does not tell."""
    if sys.platform == "win32":
        return UNKNOWN
    try:
        size = os.stat(DESCRIPTOR_FOLDER).st_size  # noqa: PTH116 - as above; Linux tells the number here since 6.2, zero before
    except OSError:
        size = 0
    return size or len(open_descriptors()) or UNKNOWN
