"""Answer what the explorer asks: look at living objects, explain, release, run again, compare, export.

A session holds records, addresses and words, no object of the user: what it needs it finds anew for each answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from leaklab.asking.retaining import autograd
from leaklab.asking.why import answer
from leaklab.errors import LeaklabError
from leaklab.render.draw import draw_svg
from leaklab.report import LeakReport
from leaklab.widgets import actions
from leaklab.widgets.clipping import clip
from leaklab.widgets.explaining import autograd_data, explanation_data
from leaklab.widgets.looks import Looks
from leaklab.widgets.payload import Data, report_data
from leaklab.widgets.rerun import find_cell, typed_cells
from leaklab.widgets.sources import HeapSource, ReportSource, Source

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
            else report_data(self.report, typed_cells(self._shell), self._checked_cell())
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
            self.source = ReportSource(self.report, self._namespace)
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
            found[actions.BEFORE] = self._before
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
        return {"autograd": autograd_data(report)}

    def _release(self, arguments: Mapping[str, Any]) -> Data:
        return actions.release(self._shell, sure=bool(arguments.get("sure")))

    def _run_again(self, arguments: Mapping[str, Any]) -> Data:
        if self.report is None:
            self._start()
            return {"record": self.data(), "message": "looked again"}
        done = actions.run_again(self._shell, self.report, self._again, sure=bool(arguments.get("sure")))
        if isinstance(done, dict):
            return done
        self._before, self.report = self.report, done
        self._start()
        return {"record": self.data(), **actions.compare(self._others(), actions.BEFORE, done)}

    def _compare(self, arguments: Mapping[str, Any]) -> Data:
        return actions.compare(self._others(), str(arguments.get("with", "")), self.report)

    def _export(self, arguments: Mapping[str, Any]) -> Data:
        return actions.export(self.report, str(arguments.get("path", "")), sure=bool(arguments.get("sure")))

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
