"""Read how much memory this process may use, and how much of that is taken: the container's limit, or the machine's.

The pages of files that were read count as memory of a container, and the kernel takes them back before it kills
anything: they are left out. A job that reads its data from files stands at its limit all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

_UNLIMITED = 1 << 60  # what version 1 says for no limit is a little below 2^63
_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNTS = Path("/sys/fs/cgroup")
_TAKEN_BACK = ("inactive_file", "active_file", "slab_reclaimable")
_TAKEN_BACK_1 = ("total_inactive_file", "total_active_file")


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A limit of memory that the kernel enforces by killing.

    Attributes:
        n_bytes: The limit.
        words: Whose it is.
        usage: The file that says how much is taken.
        statistics: The file that says what of it can be taken back.
        taken_back: Its entries that can.
    """

    n_bytes: int
    words: str
    usage: Path
    statistics: Path
    taken_back: tuple[str, ...]

    def used_bytes(self) -> int | None:
        """Return what is taken and cannot be taken back: two small files are read. None if they are gone."""
        try:
            used = int(self.usage.read_bytes())
            lines = (line.split() for line in self.statistics.read_text().splitlines())
            return max(used - sum(int(size) for name, size in lines if name in self.taken_back), 0)
        except (OSError, ValueError):
            return None


def memory_limit(membership: Path = _MEMBERSHIP, mounts: Path = _MOUNTS) -> MemoryLimit | None:
    """Return the tightest limit of the control groups that this process is in, version 2 or 1; None without one.

    Args:
        membership: Says which groups these are.
        mounts: Where groups are mounted.
    """
    limits: list[MemoryLimit] = []
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            _number, controllers, path = line.split(":", 2)
            if not controllers:
                limits += _limits(mounts, path, "memory.max", "memory.current", _TAKEN_BACK)
            elif "memory" in controllers.split(","):
                names = "memory.limit_in_bytes", "memory.usage_in_bytes"
                limits += _limits(mounts / "memory", path, *names, _TAKEN_BACK_1)
    return min(limits, key=lambda limit: limit.n_bytes, default=None)


def free_host_bytes() -> int:
    """Return what this process can still take of the host's memory: what the machine has, or its container if less."""
    free, limit = int(psutil.virtual_memory().available), _limit()
    used = None if limit is None else limit.used_bytes()
    return free if limit is None or used is None else max(min(free, limit.n_bytes - used), 0)


@cache
def _limit() -> MemoryLimit | None:
    """Return the limit, which is looked for once: a dozen files, at every reading of a level, would be too dear."""
    return memory_limit()


def _limits(mount: Path, path: str, name: str, usage: str, taken_back: tuple[str, ...]) -> Iterator[MemoryLimit]:
    """Yield the limits of a group and of those around it.

    Inside of a container the path may be that of the host, which is not there: the mount itself is the container's.
    """
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(mount):
            return
        with suppress(OSError, ValueError):
            n_bytes = int((folder / name).read_text())  # "max" is a ValueError
            if n_bytes < _UNLIMITED:
                yield MemoryLimit(n_bytes, "limit of the container", folder / usage, folder / "memory.stat", taken_back)
