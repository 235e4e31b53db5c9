"""What the buttons of the explorer do to a whole report or to the notebook; each says first what it will do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from leaklab.errors import LeaklabError
from leaklab.render.files import check_target
from leaklab.report import SUFFIXES, LeakReport
from leaklab.widgets.clipping import clip, clip_block
from leaklab.widgets.notebook_holds import held_by_notebook, let_go
from leaklab.widgets.payload import Data
from leaklab.widgets.rerun import find_cell
from leaklab.widgets.rerun import run_again as check_again

BEFORE = "the check before this one"
_CODE_LIMIT = 1500


class CannotDoError(LeaklabError):
    """A button cannot do what it says; the message says why, and what to do instead."""


def release(shell: Any, *, sure: bool) -> Data:
    """Say what the notebook itself holds, or let go of it.

    Raises:
        CannotDoError: if there is no notebook.
    """
    if shell is None:
        msg = "there is no notebook here whose outputs could be released"
        raise CannotDoError(msg)
    if sure:
        dropped = let_go(shell)
        return {"message": f"released: {clip('; '.join(dropped))}" if dropped else "the notebook held nothing"}
    held = held_by_notebook(shell)
    if not held:
        return {"message": "the notebook itself holds nothing: no output, no traceback"}
    listed = "\n".join(f"- {clip(line)}" for line in held)
    return {"confirm": f"This drops what the notebook itself keeps alive. Your own variables stay.\n{listed}"}


def run_again(
    shell: Any, report: LeakReport, again: Callable[[], LeakReport] | None, *, sure: bool
) -> Data | LeakReport:
    """Return what would be run, or, if that was agreed to, the report of the new check.

    Raises:
        CannotDoError: if nothing is known that could be run.
        LeaklabError: if the cell cannot be run from here.
    """
    if again is not None:
        if sure:
            return again()
        return {"confirm": "This calls the function that explore() was given, which checks once more."}
    cell = None if shell is None else find_cell(shell, report.check.settings.name)
    if cell is None:
        msg = (
            "the cell of this check is not among the inputs of this notebook: run it there, or give "
            "explore(report, again=...) a function that checks again"
        )
        raise CannotDoError(msg)
    if sure:
        return check_again(shell, cell)
    return {"confirm": f"This runs the cell again, as often as the check needs:\n{clip_block(str(cell), _CODE_LIMIT)}"}


def compare(others: Mapping[str, LeakReport], name: str, report: LeakReport | None) -> Data:
    """Return what became of the leaks of the report called *name*, the latest if that is empty, in *report*.

    Raises:
        CannotDoError: if there is no such report.
    """
    name = name or next(reversed(list(others)), "")
    if report is None or name not in others:
        msg = "there is no other check to compare with: store one in a variable (%%leakcheck -v before), or run again"
        raise CannotDoError(msg)
    comparison = others[name].compare(report)
    return {
        "comparison": {
            "title": f"From {clip(name)} to this check: {'fixed' if comparison.fixed else 'not fixed'}",
            "fixed": comparison.fixed,
            "lines": [clip(line, 1000) for line in comparison.lines] or ["no leak in either check"],
        }
    }


def export(report: LeakReport | None, path: str, *, sure: bool) -> Data:
    """Write *report* to *path* by its suffix; ask first where a file would be replaced.

    Raises:
        CannotDoError: if there is no report or no name.
        ReportError: if it cannot be written.
    """
    if report is None:
        msg = "the living heap cannot be exported: explore a report for that"
        raise CannotDoError(msg)
    if not path.strip():
        msg = "the file needs a name: report.html, report.json or report.csv"
        raise CannotDoError(msg)
    target = Path(os.path.expanduser(path.strip()))  # noqa: PTH111 - Path.expanduser raises for unknown users
    check_target(target, SUFFIXES)
    if target.exists() and not sure:
        return {"confirm": f"This replaces the file {clip(str(target.resolve()))}"}
    report.save(target)
    return {"message": f"saved to {clip(str(target.resolve()))}"}
