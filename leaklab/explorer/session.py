"""Answer what the explorer asks: look at living objects, explain, release, run again, compare, export.

A session holds records, addresses and words, no object of the user: what it needs it finds anew for each answer.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.core.magic_arguments import parse_argstring
from IPython.utils.capture import capture_output

from leaklab.ask.alive import answer
from leaklab.ask.autograd import autograd
from leaklab.errors import LeaklabError
from leaklab.explorer.payload import Data, autograd_data, explanation_data, report_data
from leaklab.explorer.rows import HeapSource, Looks, ReportSource, Source
from leaklab.render.base import check_target
from leaklab.render.drawing import draw_svg
from leaklab.reports.check import SUFFIXES, LeakReport
from leaklab.runtime.objects import type_name
from leaklab.text import clip, clip_block

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
        found.append(f"Out, _, __, ___ and their hidden copies: {len(outputs)} values ({words})")
    if any(getattr(sys, name, None) is not None for name in _LAST_ERROR):
        kind = type_name(type(getattr(sys, "last_value", None)))
        found.append(f"the last uncaught exception ({kind}), with the variables of every function it went through")
    elif getattr(getattr(shell, "InteractiveTB", None), "tb", None) is not None:
        found.append("the traceback that %tb and %debug would show, with the variables of its functions")
    if getattr(getattr(shell, "last_execution_result", None), "result", None) is not None:
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
    if type(outputs) is dict:
        outputs.clear()
    for name in _LAST_OUTPUTS:
        namespace[name] = ""
        if hasattr(shell.displayhook, name):
            setattr(shell.displayhook, name, "")
    _forget_error(shell)
    return found


def _outputs(shell: Any) -> dict[int, object]:
    outputs = shell.user_ns.get("_oh")
    return dict(outputs) if type(outputs) is dict else {}


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
        msg = "the cell awaits, and only the notebook can do that: run it there"
        raise LeaklabError(msg)
    if type(report) is not LeakReport:
        msg = "the check gave no report: run its cell in the notebook to see why"
        raise LeaklabError(msg)
    return report


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
        return check_cell_again(shell, cell)
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


Again = Callable[[], LeakReport]
_MAX_DOT = 400_000


class AskedWronglyError(LeaklabError):
    """The page asked for something that does not exist."""


class Session:
    """What one explorer knows.

    Args:
        report: The report to explore; None for the living heap.
        shell: IPython's shell; None outside of it.
        namespace: The user's variables.
        again: Checks once more; without it the cell is looked for among the notebook's inputs.
        summaries: Whether shapes and lengths may be told.
    """

    def __init__(
        self,
        report: LeakReport | None,
        shell: Any,
        namespace: dict[str, Any],
        again: Again | None = None,
        *,
        summaries: bool = True,
    ) -> None:
        self._shell, self._namespace, self._again = shell, namespace, again
        self._summaries = summaries if report is None else report.check.settings.summaries
        self._before: LeakReport | None = None
        self.report = report
        self.source: Source
        self._looks: Looks
        self._start()

    def data(self) -> Data:
        """Return what the page shows before anything is asked."""
        shown = (
            self.source.data()
            if self.report is None
            else report_data(self.report.check, typed_cells(self._shell), self._checked_cell())
        )
        return {**shown, "others": list(self._others()), "has_shell": self._shell is not None}

    def answer(self, ask: str, arguments: Mapping[str, Any]) -> Data:
        """Return the answer to *ask*.

        Returns:
            Plain data. ``confirm`` in it is a sentence to be agreed to: ask again with ``sure`` then. ``record`` is
            what the whole page shows from now on.

        Raises:
            LeaklabError: one sentence, if it cannot be done.
        """
        handler = _HANDLERS.get(ask)
        if handler is None:
            msg = f"there is no answer to {clip(str(ask), 40)!r}"
            raise AskedWronglyError(msg)
        return handler(self, arguments)

    def close(self) -> None:
        """Forget everything."""
        self._shell, self._namespace, self._again, self._before, self.report = None, {}, None, None, None
        self._looks.clear()
        self.source.close()

    def _start(self) -> None:
        """Begin with the present report, or with a fresh look at the heap."""
        if self.report is None:
            self.source = HeapSource(self._namespace, summaries=self._summaries)
        else:
            self.source = ReportSource(self.report.check, self._namespace)
        self._looks = Looks(self.source, self._namespace, summaries=self._summaries)

    def _checked_cell(self) -> str:
        """Return the cell that the report calls "this cell", as it was typed; empty if it is not known."""
        cell = (
            None
            if self._shell is None or self.report is None
            else find_cell(self._shell, self.report.check.settings.name)
        )
        return "" if cell is None else str(cell)

    def _others(self) -> dict[str, LeakReport]:
        """Return the reports that this one can be compared with, the latest last."""
        if self.report is None:
            return {}
        found = {
            name: value
            for name, value in list(self._namespace.items())
            if type(value) is LeakReport and not name.startswith("_") and value.check is not self.report.check
        }
        if self._before is not None:
            found[BEFORE] = self._before
        return found

    def _look(self, arguments: Mapping[str, Any]) -> Data:
        number, key = int(arguments.get("target", 0)), str(arguments.get("key", ""))
        return {"graph": self._looks.change(number, str(arguments.get("change", "")), key)}

    def _explain(self, arguments: Mapping[str, Any]) -> Data:
        found = self.source.find(int(arguments.get("target", 0)))
        why = answer(found.borrowed, self._namespace, asked=found.expression, summaries=self._summaries)
        return {"explanation": explanation_data(why.record)}

    def _autograd(self, arguments: Mapping[str, Any]) -> Data:
        found = self.source.find(int(arguments.get("target", 0)))
        try:
            report = autograd(found.borrowed[0], name=found.expression or "the object", namespace=self._namespace)
        except ValueError as error:
            raise AskedWronglyError(str(error)) from None
        finally:
            found.borrowed.clear()
        return {"autograd": autograd_data(report.record)}

    def _release(self, arguments: Mapping[str, Any]) -> Data:
        return release(self._shell, sure=bool(arguments.get("sure")))

    def _run_again(self, arguments: Mapping[str, Any]) -> Data:
        if self.report is None:
            self._start()
            return {"record": self.data(), "message": "looked again"}
        done = run_again(self._shell, self.report, self._again, sure=bool(arguments.get("sure")))
        if isinstance(done, dict):
            return done
        self._before, self.report = self.report, done
        self._start()
        return {"record": self.data(), **compare(self._others(), BEFORE, done)}

    def _compare(self, arguments: Mapping[str, Any]) -> Data:
        return compare(self._others(), str(arguments.get("with", "")), self.report)

    def _export(self, arguments: Mapping[str, Any]) -> Data:
        return export(self.report, str(arguments.get("path", "")), sure=bool(arguments.get("sure")))

    def _draw(self, arguments: Mapping[str, Any]) -> Data:
        dot = str(arguments.get("dot", ""))
        svg = draw_svg(dot) if len(dot) <= _MAX_DOT else None
        if svg is None:
            msg = "nothing here can draw the graph: `pip install pygraphviz`; the path stands below as text"
            raise AskedWronglyError(msg)
        return {"svg": svg}


_HANDLERS: dict[str, Callable[[Session, Mapping[str, Any]], Data]] = {
    "look": Session._look,  # noqa: SLF001 - the table of its own methods
    "explain": Session._explain,  # noqa: SLF001
    "autograd": Session._autograd,  # noqa: SLF001
    "release": Session._release,  # noqa: SLF001
    "again": Session._run_again,  # noqa: SLF001
    "compare": Session._compare,  # noqa: SLF001
    "export": Session._export,  # noqa: SLF001
    "draw": Session._draw,  # noqa: SLF001
}
