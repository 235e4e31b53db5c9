"""Counts of the process that import nothing large: malloc, Python's own memory, open descriptors, child processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

DESCRIPTOR_FOLDER = Path("/proc/self/fd")
_FOLDER_OF_BSD = Path("/dev/fd")
PROCESSES = "/proc"  # no Path: each would intern its parts, and the table of all names grows by megabytes at a time
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


def count_children() -> int:
    """Return how many child processes there are, those that have ended and were not waited for among them."""
    return sum(parent_of(number) == os.getpid() for number in process_ids()) if has_children() else 0


def has_children() -> bool:
    """Return whether this process has a child, alive or ended. Waits for none of them."""
    if sys.platform != "linux":
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def process_ids() -> list[int]:
    """Return the numbers of all processes that the system lists, ascending."""
    return sorted(int(name) for name in os.listdir(PROCESSES) if name.isdigit())  # noqa: PTH208 - as above


def parent_of(number: int) -> int:
    """Return the parent of a process, `UNKNOWN` if that is not known any more."""
    fields = status_of(number)
    return int(fields[1]) if fields else UNKNOWN


def status_of(number: int) -> list[bytes]:
    """Return the fields of a process behind its name, which may have spaces: its state, its parent, and more."""
    try:
        text = read_of_process(number, "stat")
    except OSError:
        return []
    return text.rpartition(b")")[2].split()


def read_of_process(number: int, name: str) -> bytes:
    """Return what the system says of a process in its file *name*; raises OSError where it has ended."""
    with open(f"{PROCESSES}/{number}/{name}", "rb") as file:  # noqa: PTH123 - see PROCESSES
        return file.read()
