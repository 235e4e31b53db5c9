"""Count what the kernel keeps for this process and no object needs to hold: open file descriptors, child processes.

Both are known by a number, and a number that is free again is given out again. So of every number it is noted after
which run it first showed; what shows after a later run and was not noted in between belongs to the newest run.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from leaklab.measure.cheap_counts import (
    DESCRIPTOR_FOLDER,
    UNKNOWN,
    count_descriptors,
    has_children,
    open_descriptors,
    parent_of,
    process_ids,
    read_of_process,
    status_of,
)
from leaklab.model import check
from leaklab.text import unit_words

BASELINE = 0
"""The run of what was there before the first one."""
_CAPACITY = 8192
"""So many numbers are followed; how many there are is counted beyond that too."""
_DESCRIPTORS = str(DESCRIPTOR_FOLDER)
_DEAD = b"ZX"
_PAGE_BYTES = mmap.PAGESIZE
ENDED, RUNNING = "ended", "running"
_FOLLOWED_CHILDREN = 64
"""So many more children than at the start are enough to judge, and more would fill the machine."""
_SHARE_OF_DESCRIPTORS = 0.25
"""Of the descriptors that were free at the start: the runs that look for lines and changes need some too."""


def descriptor_kind(number: int) -> tuple[str, str]:
    """Return what a descriptor stands for, and the path of a file: ``("file", "/etc/hostname")``, ``("pipe", "")``."""
    try:
        target = os.readlink(f"{_DESCRIPTORS}/{number}")  # noqa: PTH115 - as it is written, be it a path or not
    except OSError:
        return "", ""
    if target.startswith(("/torch_", "/dev/shm/torch_")):  # noqa: S108 - a name that torch gives
        return SHARED_MEMORY, ""
    if target.startswith("/memfd:"):
        return "memfd", ""
    if target.startswith("/"):
        return "file", target
    kind, _colon, rest = target.partition(":")
    return (rest.strip("[]") if kind == "anon_inode" else kind), ""


SHARED_MEMORY = "shared memory of torch"


def descriptor_limit() -> int | None:
    """Return how many descriptors this process may open; None where there is no such limit."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else int(soft)


class Children:
    """Finds the child processes of this one, those that have ended and were not waited for among them.

    The system is asked only where there is any child. Whose a process is does not change as long as it lives, so only
    new ones are asked. On other systems than Linux nothing is counted.
    """

    def __init__(self) -> None:
        self._others = np.empty(0, np.int64)  # no set: it would be one more container that grows

    def numbers(self) -> list[int]:
        """Return their process ids, ascending."""
        if not has_children():
            return []
        listed = process_ids()
        foreign = set(self._others.tolist()).intersection(listed)
        own = []
        for number in listed:
            if number in foreign:
                continue
            if parent_of(number) == os.getpid():
                own.append(number)
            else:
                foreign.add(number)
        self._others = np.array(sorted(foreign), np.int64)
        return own


def child_kind(number: int) -> tuple[str, str]:
    """Return ``("ended", "")`` for a child that nobody has waited for, else ``("running", "sleep")`` with its name."""
    fields = status_of(number)
    if not fields or fields[0] in _DEAD:
        return ENDED, ""
    try:
        return RUNNING, read_of_process(number, "comm").decode("utf-8", "replace").strip()
    except OSError:
        return ENDED, ""


def resident_bytes(number: int) -> int:
    """Return what a process has in memory, 0 for one that has ended."""
    try:
        fields = read_of_process(number, "statm").split()
    except OSError:
        return 0
    return int(fields[1]) * _PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Counted:
    """One thing that the kernel counts for a process.

    Attributes:
        unit: What is counted.
        kind_of: Returns what a number stands for, in a word, and more of it in words.
    """

    unit: str
    kind_of: Callable[[int], tuple[str, str]]


DESCRIPTORS = Counted(check.DESCRIPTORS, descriptor_kind)
CHILDREN = Counted(check.CHILDREN, child_kind)


class Arrivals:
    """The numbers that are there, each with the run after which it first showed.

    Kept in arrays that exist before the first run: as objects they would be what grows.
    """

    def __init__(self) -> None:
        self._numbers = np.zeros(_CAPACITY, np.int64)
        self._runs = np.zeros(_CAPACITY, np.int32)
        self._n = 0

    def note(self, numbers: Iterable[int], run: int) -> None:
        """Take in all *numbers* that are there after *run*."""
        known = dict(self.items())
        now = [(number, known.get(number, run)) for number in islice(numbers, _CAPACITY)]
        self._n = len(now)
        for place, (number, since) in enumerate(now):
            self._numbers[place], self._runs[place] = number, since

    def items(self) -> Iterator[tuple[int, int]]:
        """Yield each number with its run."""
        return zip(self._numbers[: self._n].tolist(), self._runs[: self._n].tolist(), strict=True)

    def since_start(self, numbers: Iterable[int], newest: int) -> dict[int, int]:
        """Return those of *numbers* that were not there before the first run, with their runs, oldest first."""
        known = dict(self.items())
        found = {number: known.get(number, newest) for number in numbers}
        return dict(
            sorted((item for item in found.items() if item[1] != BASELINE), key=lambda item: (item[1], item[0]))
        )


class ProcessCounts:
    """How many descriptors and children there are after every run, and which."""

    def __init__(self, max_runs: int) -> None:
        self._levels = np.full((max_runs + 1, 2), UNKNOWN, np.int64)
        self._arrivals = (Arrivals(), Arrivals())
        self._child_bytes = np.zeros(max_runs + 1, np.int64)
        self._children = Children()
        self._limit = descriptor_limit()

    def read(self, row: int) -> None:
        """Count; *row* is 0 before the first run and k after run k."""
        n_descriptors, before = count_descriptors(), self._levels[max(row - 1, 0), 0]
        if n_descriptors != before or not row:
            self._arrivals[0].note(open_descriptors(), row)
        children = self._children.numbers()
        if children or self._levels[max(row - 1, 0), 1] > 0:
            self._arrivals[1].note(children, row)
        self._levels[row] = n_descriptors, len(children)
        self._child_bytes[row] = sum(map(resident_bytes, children))

    def levels(self, counted: Counted, n_runs: int) -> tuple[int, ...] | None:
        """Return how many there were before the first run and after each; None where the system does not tell."""
        levels = self._levels[: n_runs + 1, 0 if counted is DESCRIPTORS else 1]
        return None if (levels == UNKNOWN).any() else tuple(levels.tolist())

    def child_bytes(self, n_runs: int) -> tuple[int, ...]:
        """Return what the child processes had in memory before the first run and after each.

        Nothing where others were there in between: what one has in memory when it starts is no growth.
        """
        levels = self._levels[: n_runs + 1, 1]
        is_one_set = levels.all() and (levels == levels[0]).all() and not self.numbers_since_start(CHILDREN, n_runs)
        return tuple(self._child_bytes[: n_runs + 1].tolist()) if is_one_set else ()

    def numbers_since_start(self, counted: Counted, n_runs: int) -> dict[int, int]:
        """Return the numbers that runs have left, each with its run, 1 for the first."""
        if counted is DESCRIPTORS:
            return self._arrivals[0].since_start(open_descriptors(), n_runs)
        return self._arrivals[1].since_start(self._children.numbers(), n_runs)

    def numbers(self, counted: Counted) -> Sequence[int]:
        """Return the numbers that are there now."""
        return open_descriptors() if counted is DESCRIPTORS else self._children.numbers()

    def full_words(self, row: int) -> str:
        """Return what there are so many of after run *row* that no more runs should be made; empty as long as not."""
        (descriptors, children), (first, first_children) = self._levels[row].tolist(), self._levels[0].tolist()
        free = None if self._limit is None else self._limit - first
        if free is not None and descriptors - first > _SHARE_OF_DESCRIPTORS * free:
            return f"{_SHARE_OF_DESCRIPTORS:.0%} of the file descriptors that this process could open"
        if children - first_children > _FOLLOWED_CHILDREN:
            return unit_words(children - first_children, CHILDREN.unit)
        return ""
