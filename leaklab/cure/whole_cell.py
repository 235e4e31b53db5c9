"""Write the whole cell that a change is in, as it would be with the change: what a person can copy and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from leaklab.model.cure import Change, Cure, CureOutcome

MAGIC_LINE = "# the magic's line\n"
"""Stands where ``%%leakcheck`` stood, so that the lines below it have the numbers that the user sees."""
_MAGIC_CALL = "get_ipython()."
_MOST_CHARACTERS = 20_000


def with_changed_cells(
    cures: Sequence[Cure], cell_name: Callable[[str], str], source: Callable[[str], str | None]
) -> tuple[Cure, ...]:
    """Return *cures*, those that cured with the whole changed cell where all their changes lie in one cell.

    Args:
        cures: What was tried.
        cell_name: What the notebook calls the cell of a file name; empty for a real file.
        source: The text of a file.
    """
    return tuple(replace(cure, changed_cell=_changed_cell(cure, cell_name, source)) for cure in cures)


def _changed_cell(cure: Cure, cell_name: Callable[[str], str], source: Callable[[str], str | None]) -> str:
    names = {change.filename for change in cure.changes}
    if cure.outcome is not CureOutcome.CURED or len(names) != 1 or not cell_name(name := names.pop()):
        return ""
    text = source(name) or ""
    # What the notebook made of lines such as ``%time`` and ``!ls`` is not what the person has written there.
    if not text or _MAGIC_CALL in text or len(text) > _MOST_CHARACTERS:
        return ""
    return _applied(text, cure.changes).removeprefix(MAGIC_LINE).strip("\n")


def _applied(text: str, changes: Sequence[Change]) -> str:
    lines = text.splitlines()
    for change in sorted(changes, key=lambda change: change.line, reverse=True):
        first, before = change.line - 1, change.before.splitlines()
        if lines[first : first + len(before)] != before:  # the cell was run anew meanwhile
            return ""
        lines[first : first + len(before)] = change.after.splitlines()
    return "\n".join(lines)
