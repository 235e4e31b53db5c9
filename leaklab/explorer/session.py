"""Answer what the explorer asks: look at living objects, explain, inspect, search, compare, export.

A session holds records, addresses and words, no object of the user: what it needs it finds anew for each answer.
"""

from __future__ import annotations

import keyword
import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from leaklab.ask.alive import answer
from leaklab.ask.autograd import autograd
from leaklab.errors import LeaklabError
from leaklab.explorer.in_notebook import CannotDoError, find_cell, release, run_again, typed_cells
from leaklab.explorer.memory import TakenHeap
from leaklab.explorer.payload import Data, autograd_data, explanation_data, report_data
from leaklab.explorer.rows import Found, HeapSource, Looks, ReportSource, Source
from leaklab.model import Check
from leaklab.model.sentences import growth_sentence, site_words
from leaklab.render.base import check_target
from leaklab.render.drawing import draw_svg
from leaklab.reports.check import SUFFIXES, LeakReport
from leaklab.reports.saved_heap import SavedHeap
from leaklab.runtime.containers import value_lines
from leaklab.runtime.objects import type_name
from leaklab.text import clip

BEFORE = "the check before this one"


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


def facts_in_check(check: Check, expression: str) -> list[list[str]]:
    """Return what *check* says of the holder that the object called *expression* is, or lies in: names and words."""
    for leak in check.leaks:
        holder = leak.holder
        if holder and (expression == holder or expression.startswith((f"{holder}[", f"{holder}."))):
            inside = "" if expression == holder else f"it lies in {holder}: "
            lines = [["made or kept by", clip("; ".join(map(site_words, leak.sites)), 1000)]] if leak.sites else []
            return [["in the report", clip(f"{inside}{growth_sentence(leak)}", 1000)], *lines]
    return []


def put_into(namespace: dict[str, Any], name: str, borrowed: list[Any], *, sure: bool) -> Data:
    """Put a weak reference to the only item of *borrowed*, which is emptied, into a variable.

    Raises:
        CannotDoError: if the name is none, or the object cannot be referred to weakly.
    """
    try:
        if not name.isidentifier() or keyword.iskeyword(name):
            msg = f"{clip(name, 40)!r} is not a name for a variable"
            raise CannotDoError(msg)
        if name in namespace and not sure:
            return {"confirm": f"This replaces your variable {clip(name)}"}
        try:
            reference = weakref.ref(borrowed[0])
        except TypeError:
            kind = type_name(type(borrowed[0]))
            msg = f"Python has no weak reference to a {kind}, and a strong one would keep it alive: copy its expression"
            raise CannotDoError(msg) from None
    finally:
        borrowed.clear()
    namespace[name] = reference
    return {
        "message": (
            f"{name}() returns the object while it is alive and None afterwards; the variable does not keep it alive"
        )
    }


def export_heap(heap: SavedHeap, path: str, *, sure: bool) -> Data:
    """Write *heap* to *path*: as a page with its icicle, or as a file that `leaklab.load` opens.

    Raises:
        CannotDoError: if it has another suffix.
        ReportError: if it cannot be written.
    """
    target = Path(os.path.expanduser(path.strip()))  # noqa: PTH111 - Path.expanduser raises for unknown users
    if target.suffix not in (_PAGE, _HEAP_FILE):
        msg = f"the name must end in {_PAGE}, for a page, or in {_HEAP_FILE}, for a file that leaklab.load opens"
        raise CannotDoError(msg)
    if target.exists() and not sure:
        return {"confirm": f"This replaces the file {clip(str(target.resolve()))}"}
    write = heap.to_html if target.suffix == _PAGE else heap.save
    write(target)
    return {"message": f"saved to {clip(str(target.resolve()))}"}


Again = Callable[[], LeakReport]
_PAGE, _HEAP_FILE = ".html", ".heap"
_OBJECT = "object "
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
        summaries: Whether shapes and lengths may be shown.
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
        self._taken: TakenHeap | None = None
        self._n_taken = 0
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
        self._forget_memory()

    def _start(self) -> None:
        """Begin with the present report, or with a fresh look at the heap."""
        if self.report is None:
            self.source = HeapSource(self._namespace, summaries=self._summaries)
        else:
            self.source = ReportSource(self.report.check, self._namespace)
        self._looks = Looks(self.source, self._namespace, summaries=self._summaries)
        self._forget_memory()

    def _forget_memory(self) -> None:
        if self._taken is not None:
            self._taken.close()
            self._taken_looks.clear()
        self._taken = None

    def _asked(self, arguments: Mapping[str, Any]) -> tuple[Source, int]:
        """Return the source of what is asked about, and its number there.

        Raises:
            AskedWronglyError: if the memory was read again since.
        """
        target = arguments.get("target", 0)
        if type(target) is not str or not target.startswith(_OBJECT):
            return self.source, int(target)
        moment, _, number = target.removeprefix(_OBJECT).partition(" ")
        if self._taken is None or moment != str(self._n_taken) or not number.isdecimal():
            msg = "the memory has been read again since then: choose the object once more"
            raise AskedWronglyError(msg)
        return self._taken, int(number)

    def _found(self, arguments: Mapping[str, Any]) -> Found:
        source, number = self._asked(arguments)
        return source.find(number)

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
        source, number = self._asked(arguments)
        looks = self._taken_looks if source is self._taken else self._looks
        return {"graph": looks.change(number, str(arguments.get("change", "")), str(arguments.get("key", "")))}

    def _memory(self, arguments: Mapping[str, Any]) -> Data:
        """Return what fills the memory, read now where it was not read before or is to be read again."""
        if self._taken is None or arguments.get("again"):
            self._forget_memory()
            self._taken = TakenHeap(self._namespace, summaries=self._summaries)
            self._taken_looks = Looks(self._taken, self._namespace, summaries=self._summaries)
            self._n_taken += 1
        return {"memory": {**self._taken.data(), "moment": self._n_taken}}

    def _search(self, arguments: Mapping[str, Any]) -> Data:
        kind, where = str(arguments.get("kind", "")), str(arguments.get("where", ""))
        return {"found": self._heap_taken().search(kind.strip(), where)}

    def _inspect(self, arguments: Mapping[str, Any]) -> Data:
        _source, number = self._asked(arguments)
        inspected = self._heap_taken().inspect(number)
        if self.report is not None:
            inspected["facts"] += facts_in_check(self.report.check, inspected["expression"])
        return {"inspected": inspected}

    def _heap_taken(self) -> TakenHeap:
        if self._taken is None:
            msg = "the memory has not been read yet"
            raise AskedWronglyError(msg)
        return self._taken

    def _values(self, arguments: Mapping[str, Any]) -> Data:
        if not self._summaries:
            msg = "this check hides the data (--no-summaries)"
            raise CannotDoError(msg)
        found = self._found(arguments)
        try:
            return {"values": [clip(line, 1000) for line in value_lines(found.borrowed[0])]}
        finally:
            found.borrowed.clear()

    def _put(self, arguments: Mapping[str, Any]) -> Data:
        name, sure = str(arguments.get("name", "")).strip(), bool(arguments.get("sure"))
        return put_into(self._namespace, name, self._found(arguments).borrowed, sure=sure)

    def _export_heap(self, arguments: Mapping[str, Any]) -> Data:
        path, sure = str(arguments.get("path", "")), bool(arguments.get("sure"))
        return export_heap(self._heap_taken().saved(), path, sure=sure)

    def _explain(self, arguments: Mapping[str, Any]) -> Data:
        found = self._found(arguments)
        why = answer(found.borrowed, self._namespace, asked=found.expression, summaries=self._summaries)
        return {"explanation": explanation_data(why.record)}

    def _autograd(self, arguments: Mapping[str, Any]) -> Data:
        found = self._found(arguments)
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
            msg = "nothing here can draw the graph: `pip install pygraphviz`; the path is below as text"
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
    "memory": Session._memory,  # noqa: SLF001
    "search": Session._search,  # noqa: SLF001
    "inspect": Session._inspect,  # noqa: SLF001
    "values": Session._values,  # noqa: SLF001
    "put": Session._put,  # noqa: SLF001
    "export_heap": Session._export_heap,  # noqa: SLF001
}
