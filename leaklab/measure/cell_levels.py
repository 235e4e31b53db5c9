"""Memory before and after each cell of a notebook, in a table of numbers that is as large at first as ever.

Two readings a cell, of counters that malloc, Python's allocator and torch keep anyway: microseconds. No object is
looked at, and no garbage is collected: what a cell left uncollected counts as its growth until a later cell, or the
collector, frees it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from leaklab.measure.cheap_counts import native_heap_bytes, python_blocks
from leaklab.measure.gauges import accelerator_levels, rss_bytes

N_CELLS = 1000
"""So many executions are remembered, the newest."""
_NUMBER, _TEXT, _BYTES, _BLOCKS = range(4)


@dataclass(frozen=True, slots=True)
class CellRuns:
    """The executions of one text, the oldest first.

    Attributes:
        number: What the notebook calls the newest of them.
        n_bytes: By how much native memory and that of accelerators grew over each.
        n_blocks: By how many blocks, Python's small objects and their parts, it grew over each.
    """

    number: int
    n_bytes: tuple[int, ...]
    n_blocks: tuple[int, ...]


class CellLevels:
    """What memory did over each of the last cells."""

    def __init__(self) -> None:
        self._rows = np.zeros((N_CELLS, 4), np.int64)
        self._n_rows = 0
        self._before: tuple[int, int] | None = None
        _levels()  # a first reading leaves an object behind: not in a cell

    def start_cell(self) -> None:
        """Note that a cell begins."""
        self._before = _levels()

    def end_cell(self, number: int, source: str) -> None:
        """Note what the cell did that has ended; nothing for one whose beginning was not seen.

        Args:
            number: What the notebook calls it.
            source: Its text, which is not kept.
        """
        if self._before is None:
            return
        (n_bytes, n_blocks), before, self._before = _levels(), self._before, None
        text = zlib.crc32(source.strip().encode("utf-8", "backslashreplace"))
        self._rows[self._n_rows % N_CELLS] = number, text, n_bytes - before[0], n_blocks - before[1]
        self._n_rows += 1

    def runs(self) -> tuple[CellRuns, ...]:
        """Return the executions by text; the text that was executed last comes last."""
        rows = np.roll(self._rows, -self._n_rows, axis=0) if self._n_rows > N_CELLS else self._rows[: self._n_rows]
        by_text: dict[int, list[list[int]]] = {}
        for row in rows.tolist():
            alike = by_text.pop(row[_TEXT], [])
            by_text[row[_TEXT]] = [*alike, row]
        return tuple(
            CellRuns(alike[-1][_NUMBER], tuple(row[_BYTES] for row in alike), tuple(row[_BLOCKS] for row in alike))
            for alike in by_text.values()
        )


def _levels() -> tuple[int, int]:
    """Return the bytes of malloc and of accelerators, and the blocks of Python's own allocator."""
    native, accelerator = native_heap_bytes(), accelerator_levels()
    n_bytes = (rss_bytes() if native is None else native) + (0 if accelerator is None else accelerator[0])
    return n_bytes, python_blocks()
