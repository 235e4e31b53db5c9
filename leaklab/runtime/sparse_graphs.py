"""What leaklab uses of scipy's sparse graphs, loaded only where there is room for it.

scipy brings a linear algebra library, OpenBLAS, that takes a buffer for each processor when it is loaded. Where the
system refuses one of these, it asks for ever: at the limit of memory (``RLIMIT_AS``, no overcommit) an import of scipy
never comes back, and no signal ends it. So the room is asked for first.
"""

from __future__ import annotations

import mmap
import os
import sys

from leaklab.errors import NotEnoughMemoryError
from leaklab.text import format_bytes

_BYTES_OF_LIBRARIES = 72 << 20  # of address space; scipy 1.17 on Linux takes 56 MiB
_BYTES_PER_PROCESSOR = 40 << 20  # a buffer of 32 MiB, and the stack of a thread
_MOST_PROCESSORS = 64
"""The wheels of OpenBLAS start no more threads than that."""


def has_room(n_bytes: int) -> bool:
    """Return whether the system would give the process *n_bytes* of address space, in one piece."""
    try:
        private_memory(n_bytes).close()
    except (OSError, MemoryError):
        return False
    return True


def private_memory(n_bytes: int) -> mmap.mmap:
    """Return so much address space of this process alone; no memory stands behind it until it is written to.

    Raises:
        OSError: if the system does not give it.
    """
    if sys.platform == "win32":
        return mmap.mmap(-1, n_bytes)
    return mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _refuse_without_room() -> None:
    needed = _BYTES_OF_LIBRARIES + _BYTES_PER_PROCESSOR * min(os.cpu_count() or 1, _MOST_PROCESSORS)
    if not has_room(needed):
        msg = (
            f"there is not enough memory to load scipy, which needs {format_bytes(needed)} of address space: let go of "
            "something large and ask again, or import scipy.sparse where the program begins"
        )
        raise NotEnoughMemoryError(msg)


if "scipy.sparse.csgraph" not in sys.modules:
    _refuse_without_room()

from scipy.sparse import csr_array  # noqa: E402 - there is room
from scipy.sparse.csgraph import breadth_first_order, connected_components, maximum_flow  # noqa: E402

__all__ = ["breadth_first_order", "connected_components", "csr_array", "has_room", "maximum_flow", "private_memory"]
