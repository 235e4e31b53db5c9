"""Find the source around the lines that a report names, ``Cell In[3], line 2`` and ``train.py:41``."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Sequence

_CELL_LINE = re.compile(r"Cell In ?\[(\d+)\], line (\d+)")
_THIS_LINE = re.compile(r"this cell, line (\d+)")
_FILE_LINE = re.compile(r"^(?P<file>[^:]+\.py):(?P<line>\d+)")
_AROUND = 2
"""Lines shown before and after."""


def source_around(site: str, cells: Sequence[str], this_cell: str = "") -> list[tuple[int, str, bool]]:
    """Return the lines around *site* as number, text, and whether it is the one; empty where there is no source.

    Args:
        site: As a leak's ``sites`` have it.
        cells: The notebook's cells as they were typed, by number.
        this_cell: The cell that a report calls so; empty if it is not known.
    """
    if this := _THIS_LINE.match(site):
        return _around(this_cell.splitlines(), int(this[1]))
    if cell := _CELL_LINE.search(site):
        number, line = int(cell[1]), int(cell[2])
        return _around(cells[number].splitlines() if 0 < number < len(cells) else [], line)
    if file := _FILE_LINE.match(site):
        return _around(linecache.getlines(_full_path(file["file"])), int(file["line"]))
    return []


def _around(lines: Sequence[str], line: int) -> list[tuple[int, str, bool]]:
    if not 0 < line <= len(lines):
        return []
    first, last = max(line - _AROUND, 1), min(line + _AROUND, len(lines))
    return [(number, lines[number - 1].rstrip("\n"), number == line) for number in range(first, last + 1)]


def _full_path(shown: str) -> str:
    """Return the file of a loaded module that *shown*, perhaps the end of its path, stands for."""
    for module in list(sys.modules.values()):
        file = vars(module).get("__file__") if type(module) is type(sys) else None
        if type(file) is str and (file == shown or file.endswith(f"/{shown}")):
            return file
    return shown
