"""Find the cell that a report came from among the notebook's inputs, and check it again."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from IPython.core.magic_arguments import parse_argstring
from IPython.utils.capture import capture_output

from leaklab.errors import LeaklabError
from leaklab.report import LeakReport

_MAGIC = "leakcheck"
_FAIL = "--fail-on-leak"


@dataclass(frozen=True, slots=True)
class CheckedCell:
    """A cell under ``%%leakcheck``.

    Attributes:
        line: What stands behind the magic's name.
        body: The code below.
    """

    line: str
    body: str

    def __str__(self) -> str:
        return f"%%{_MAGIC} {self.line}\n{self.body}"


def typed_cells(shell: Any) -> list[str]:
    """Return every cell as it was typed, by its number; empty where there is no notebook."""
    typed = getattr(getattr(shell, "history_manager", None), "input_hist_raw", None)
    return [text if type(text) is str else "" for text in typed] if type(typed) is list else []


def find_cell(shell: Any, name: str) -> CheckedCell | None:
    """Return the latest cell that was checked under *name*; None if the notebook has none, or lost the magic."""
    magic = shell.find_cell_magic(_MAGIC)
    if magic is None:
        return None
    for text in reversed(typed_cells(shell)):
        if not text.lstrip().startswith(f"%%{_MAGIC}"):
            continue
        first, _, body = text.lstrip().partition("\n")
        cell = CheckedCell(first.removeprefix(f"%%{_MAGIC}").strip(), body)
        try:
            options: Any = parse_argstring(magic, cell.line)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001, S112 - a line that the magic refused in its time is no check
            continue
        if options.name == name:
            return cell
    return None


def run_again(shell: Any, cell: CheckedCell) -> LeakReport:
    """Check *cell* once more, as it was typed, and return its report. What it prints is dropped.

    Raises:
        LeaklabError: if the cell awaits: only the notebook can run that; or if it gave no report.
    """
    line = " ".join(word for word in cell.line.split(" ") if word != _FAIL)
    with capture_output():
        report = shell.run_cell_magic(_MAGIC, f"{line} -q -o".strip(), cell.body)
    if inspect.iscoroutine(report):
        report.close()
        msg = "the cell awaits, and only the notebook can do that: run it there"
        raise LeaklabError(msg)
    if type(report) is not LeakReport:
        msg = "the check gave no report: run its cell in the notebook to see why"
        raise LeaklabError(msg)
    return report
