"""Act on the notebook around the explorer: let go of what it keeps, find the checked cell and run it again."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from IPython.core.magic_arguments import parse_argstring
from IPython.utils.capture import capture_output

from leaklab.errors import LeaklabError
from leaklab.explorer.payload import Data
from leaklab.reports.check import LeakReport
from leaklab.runtime.objects import type_name
from leaklab.runtime.ours import is_own_kind
from leaklab.text import clip, clip_block, unit_words

_LAST_ERROR = ("last_exc", "last_value", "last_traceback", "last_type")
_LAST_OUTPUTS = ("_", "__", "___")
_MAX_KINDS = 4


def held_by_notebook(shell: Any) -> list[str]:
    """Return one sentence for each thing that *shell* keeps and `let_go` would drop; empty if there is none."""
    found = []
    outputs = _outputs(shell)
    if outputs:
        kinds = Counter(type_name(type(value)) for value in outputs.values())
        words = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common(_MAX_KINDS))
        found.append(f"Out, _, __, ___ and their hidden copies: {unit_words(len(outputs), 'values')} ({words})")
    if any(getattr(sys, name, None) is not None for name in _LAST_ERROR):
        kind = type_name(type(getattr(sys, "last_value", None)))
        found.append(f"the last uncaught exception ({kind}), with the variables of every function it went through")
    elif getattr(getattr(shell, "InteractiveTB", None), "tb", None) is not None:
        found.append("the traceback that %tb and %debug would show, with the variables of its functions")
    result = getattr(getattr(shell, "last_execution_result", None), "result", None)
    if result is not None and not is_own_kind(type(result)):
        found.append("the result of the last cell")
    return found


def let_go(shell: Any) -> list[str]:
    """Drop what `held_by_notebook` names, and return its sentences. ``_`` and ``Out`` work on afterwards."""
    found = held_by_notebook(shell)
    namespace, hidden = shell.user_ns, getattr(shell, "user_ns_hidden", {})
    names = [*_LAST_OUTPUTS, *(f"_{number}" for number in _outputs(shell))]
    for name in names:
        for variables in (namespace, hidden):
            variables.pop(name, None)
    outputs = namespace.get("_oh")
    for number in _outputs(shell):
        outputs.pop(number, None)
    for name in _LAST_OUTPUTS:
        namespace[name] = ""
        if hasattr(shell.displayhook, name):
            setattr(shell.displayhook, name, "")
    _forget_error(shell)
    return found


def _outputs(shell: Any) -> dict[int, object]:
    """Return what ``Out`` keeps, but for leaklab's own reports and explorers: they hold no object of the user."""
    outputs = shell.user_ns.get("_oh")
    every = dict(outputs) if type(outputs) is dict else {}
    return {number: value for number, value in every.items() if not is_own_kind(type(value))}


def _forget_error(shell: Any) -> None:
    for name in _LAST_ERROR:
        if hasattr(sys, name):
            delattr(sys, name)
    if hasattr(shell, "InteractiveTB"):
        shell.InteractiveTB.tb = None
    result = getattr(shell, "last_execution_result", None)
    if result is not None:
        result.result = result.error_in_exec = result.error_before_exec = None


_MAGIC = "leakcheck"
_FAIL = "--fail-on-leak"


@dataclass(frozen=True, slots=True)
class CheckedCell:
    """A cell under ``%%leakcheck``."""

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


def check_cell_again(shell: Any, cell: CheckedCell) -> LeakReport:
    """Check *cell* once more, as it was typed, and return its report. What it prints is dropped.

    Raises:
        LeaklabError: if the cell awaits: only the notebook can run that; or if it gave no report.
    """
    line = " ".join(word for word in cell.line.split(" ") if word != _FAIL)
    with capture_output():
        report = shell.run_cell_magic(_MAGIC, f"{line} -q -o".strip(), cell.body)
    if inspect.iscoroutine(report):
        report.close()
        msg = "the cell uses await, which works in the notebook only: run it there"
        raise LeaklabError(msg)
    if type(report) is not LeakReport:
        msg = "the check gave no report: run its cell in the notebook to see why"
        raise LeaklabError(msg)
    return report


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
            "no cell with the name of this check was run in this kernel: run it here first, or give "
            "explore(report, again=...) a function that checks again"
        )
        raise CannotDoError(msg)
    if sure:
        return check_cell_again(shell, cell)
    return {"confirm": f"This runs the cell again, as often as the check needs:\n{clip_block(str(cell), _CODE_LIMIT)}"}
