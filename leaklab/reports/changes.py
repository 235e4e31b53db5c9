"""Take over a change that held: as a patch for files, which git applies, and as the cell that it makes of one."""

from __future__ import annotations

import difflib
import linecache
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython import get_ipython

from leaklab.cure.edits import MAGIC_LINE, NotTriedError, edited
from leaklab.errors import ChangeError
from leaklab.model import Leak
from leaklab.model.cure import Change
from leaklab.render.advice import cure_of, patch_text


def patch_of(leak: Leak) -> str:
    """Return the change that cured *leak* as a unified diff; empty where none did.

    A file gets three lines around each change, and the name that it has from the working directory on, as ``git apply``
    wants it. A cell, and a file that is not as it was, gets the changed lines alone.
    """
    cure = cure_of(leak)
    if cure is None:
        return ""
    by_file: dict[str, list[Change]] = {}
    for change in cure.changes:
        by_file.setdefault(change.filename, []).append(change)
    parts = [_of_file(name, changes) for name, changes in by_file.items()]
    return "".join(parts) if all(parts) else patch_text(leak)


def _of_file(filename: str, changes: list[Change]) -> str:
    """Return the diff of a file; empty where it is none, or is not as it was."""
    try:
        text = Path(filename).read_bytes().decode()
        changed = edited(text, changes)
    except (OSError, ValueError, NotTriedError):
        return ""
    below = os.path.relpath(filename)
    name = filename.lstrip(os.sep) if below.startswith(os.pardir) else Path(below).as_posix()
    changed = changed.replace("\n", "\r\n") if "\r\n" in text else changed
    lines = difflib.unified_diff(_lines(text), _lines(changed), f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Return the lines of *text* as git counts them, with their ends."""
    *lines, last = text.split("\n")
    return [*(f"{line}\n" for line in lines), *([last] if last else [])]


@dataclass(frozen=True, slots=True, repr=False)
class AppliedChange:
    """A cell that was written into the notebook.

    Attributes:
        old: The cell as it was.
        new: The cell as it is written.
    """

    old: str
    new: str

    def undo(self) -> None:
        """Write the old text in the place of the cell that calls this."""
        _write_cell(self.old)

    def __repr__(self) -> str:
        proves = "run it to check it" if self.new.startswith("%%leakcheck") else "run it, and then the check again"
        return f"the changed cell stands here now: {proves}; undo() writes the old text"


def apply_change(leak: Leak, number: int) -> AppliedChange:
    """Write the cell with the change that cured *leak*, number *number* of its report, in the place of the running one.

    Raises:
        ChangeError: if there is no such change, if it does not lie in one cell, or outside of a notebook.
    """
    cure = cure_of(leak)
    if cure is None:
        msg = f"no change was tried that cures leak {number}"
        raise ChangeError(msg)
    if not cure.changed_cell:
        msg = f"the change is not in one cell that could be written as it is: report.patch({number}) shows it"
        raise ChangeError(msg)
    shell: Any = get_ipython()
    if shell is None:
        msg = f"there is no notebook to write the cell into: report.patch({number}) shows the change"
        raise ChangeError(msg)
    old, new = _whole_cells(shell, cure.changes[0].filename, cure.changed_cell)
    _write_cell(new)
    return AppliedChange(old, new)


def _whole_cells(shell: Any, filename: str, changed: str) -> tuple[str, str]:
    """Return the cell as it was typed, with the line of its magic, and the changed one with the same line."""
    body = "".join(linecache.getlines(filename)).removeprefix(MAGIC_LINE).strip("\n")
    for typed in reversed(shell.history_manager.input_hist_raw):
        head, found, below = typed.rpartition(body)
        if found and not below.strip() and (not head.strip() or head.lstrip().startswith("%%leakcheck")):
            return typed, head + changed
    return body, changed


def _write_cell(text: str) -> None:
    get_ipython().set_next_input(text, replace=True)
