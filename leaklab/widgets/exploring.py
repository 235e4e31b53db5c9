"""Explore a report, or the living heap, in the notebook: the static report first, the widget below it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leaklab.render.heap_overview import HeapPicture
from leaklab.report import LeakReport
from leaklab.widgets.session import Session
from leaklab.widgets.sources import HeapSource
from leaklab.widgets.widget import ExplorerWidget

if TYPE_CHECKING:
    from ipywidgets import Widget

_NO_PAGE = "The explorer's controls need a notebook, such as JupyterLab; above is what it would show first."


class Explorer:
    """A shown explorer.

    The notebook and ipywidgets keep it until it is closed, by its own button, by `close`, or by running its cell again.
    """

    def __init__(self, widget: ExplorerWidget, title: str, shown_in: int | None) -> None:
        self._widget: ExplorerWidget | None = widget
        self._title = title
        self._shown_in = shown_in

    @property
    def widget(self) -> Widget | None:
        """The widget; None once it is closed."""
        if self._widget is not None and self._widget.comm is None:
            self._widget = None
        return self._widget

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self.widget is None

    def close(self) -> None:
        """Close the widget and let go of everything; a second call does nothing."""
        widget, self._widget = self._widget, None
        if widget is not None:
            widget.close()

    def __repr__(self) -> str:
        return f"<Explorer of {self._title}{', closed' if self.is_closed else '; close() ends it'}>"

    def _ipython_display_(self) -> None:
        """Show the widget again in another cell; the cell that made it has shown it already."""
        shell = _shell()
        if self.is_closed or shell is None:
            print(repr(self))  # noqa: T201 - this is what a cell shows of it
        elif shell.execution_count != self._shown_in:
            _display(self.widget)


def explore(
    report: LeakReport | None = None,
    *,
    namespace: dict[str, Any] | None = None,
    again: Callable[[], LeakReport] | None = None,
) -> Explorer:
    """Show *report*, or without one the living heap, as a page with tables, graphs and buttons.

    The static report is displayed first: a saved notebook, one that is not trusted, and one without a kernel show that.
    What the page asks live - further holders of an object, say - is answered by looking at the heap again. The explorer
    keeps no object of yours alive.

    Args:
        report: What ``%%leakcheck -v report`` stored, or `leakcheck` returned.
        namespace: The variables in which objects are looked for; by default those of the notebook.
        again: Checks once more when the page's button asks for it; by default the report's cell is run again.

    Returns:
        The explorer; its ``close()`` frees everything.

    Raises:
        TypeError: if an argument is of the wrong type.
    """
    _refuse_wrong_types(report, namespace, again)
    shell = _shell()
    if namespace is None:
        namespace = shell.user_ns if shell is not None else vars(sys.modules["__main__"])
    session = Session(report, shell, namespace, again)
    source = session.source
    shown = HeapPicture(source.overview) if isinstance(source, HeapSource) else report
    _display(shown)
    place = _cell_of(shell)
    _close_former(place)
    widget = ExplorerWidget(session, place)
    title = "the living heap" if report is None else f"a check: {report.verdict.outcome.value}"
    explorer = Explorer(widget, title, getattr(shell, "execution_count", None))
    if getattr(shell, "kernel", None) is None:
        print(_NO_PAGE)  # noqa: T201 - a terminal shows no widget
    else:
        _display(widget)
    return explorer


def _refuse_wrong_types(report: object, namespace: object, again: object) -> None:
    if report is not None and not isinstance(report, LeakReport):
        msg = f"explore() takes the report of a check, or nothing for the living heap, not {type(report).__name__}"
        raise TypeError(msg)
    if namespace is not None and not isinstance(namespace, dict):
        msg = f"namespace must be a dict of variables, not {type(namespace).__name__}"
        raise TypeError(msg)
    if again is not None and not callable(again):
        msg = f"again must be a function that returns a new report, not {type(again).__name__}"
        raise TypeError(msg)


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def _display(shown: object) -> None:
    if _shell() is None:
        print(shown)  # noqa: T201 - a script has no other display
        return
    from IPython.display import display  # noqa: PLC0415 - scripts do without

    display(shown)  # type: ignore[no-untyped-call]


def _cell_of(shell: Any) -> str:
    """Return the id that the front end gave to the cell that runs; empty where it gave none."""
    get_parent = getattr(shell, "get_parent", None)
    parent = get_parent() if callable(get_parent) else None
    metadata = parent.get("metadata") if isinstance(parent, dict) else None
    return str(metadata.get("cellId") or "") if isinstance(metadata, dict) else ""


def _close_former(place: str) -> None:
    """Close what this very cell showed when it was run before: its output is about to be replaced."""
    from ipywidgets.widgets import widget as home  # noqa: PLC0415 - paid by those who explore

    instances = getattr(home, "_instances", None) or {}
    for former in [one for one in list(instances.values()) if type(one) is ExplorerWidget]:
        if place and former.place == place:
            former.close()
