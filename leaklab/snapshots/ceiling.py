"""Hold the memory that this process may take below a ceiling, for the length of a ``with`` block."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

resource: Any
try:
    import resource
except ImportError:  # Windows
    resource = None

_STATUS = Path("/proc/self/status")


@contextmanager
def memory_ceiling(extra_bytes: int) -> Iterator[None]:
    """Let allocations fail with `MemoryError` once the process holds *extra_bytes* more than now.

    The limit is on private writable memory (``RLIMIT_DATA``): address space that CUDA only reserves does not count. It
    holds for all threads of the process, so *extra_bytes* should be far above what others may ask for meanwhile. Where
    the system does not tell what the process holds (anything but Linux), nothing is limited.
    """
    held = _held_bytes()
    if resource is None or held is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = held + extra_bytes
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *limits]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _held_bytes() -> int | None:
    try:
        found = re.search(r"VmData:\s+(\d+) kB", _STATUS.read_text(encoding="ascii"))
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
