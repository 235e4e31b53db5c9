"""Explore a report, or the living heap, in the notebook: the static report first, the widget below it."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import traitlets
from anywidget import AnyWidget
from markupsafe import Markup

from leaklab.errors import LeaklabError
from leaklab.explorer.payload import Data
from leaklab.explorer.rows import HeapSource
from leaklab.explorer.session import Session
from leaklab.render.base import Displayed
from leaklab.reports.check import LeakReport
from leaklab.reports.heap_overview import HeapPicture
from leaklab.reports.saved_heap import DRAWING_SCRIPT
from leaklab.runtime.objects import running_shell
from leaklab.text import clip

if TYPE_CHECKING:
    from ipywidgets import Widget

_SCRIPTS = ("dom", "table", "chart", "dot", "svg", "graph", "memory", "panels", "explorer")
"""In the order in which they are joined, below the script of icicles."""


@cache
def script() -> str:
    """Return the explorer's own script as one module.

    As text: anywidget, given the name of a file, watches it and never lets go of the widget.
    """
    return "\n".join([DRAWING_SCRIPT, *(_read("js", f"{name}.js") for name in _SCRIPTS)])


@cache
def style() -> str:
    """Return the style sheet."""
    return _read("js", "explorer.css")


def renderer() -> bytes:
    """Return Graphviz as a JavaScript module that needs no other file: 815 kB, sent once to each page."""
    return files(__package__).joinpath("vendor", "wasm_graphviz.js").read_bytes()


def _read(*names: str) -> str:
    return files(__package__).joinpath(*names).read_text("utf-8")


_RENDERER, _CLOSE = "renderer", "close"
_BUSY = "busy: the explorer is still at work on the question before this one"
_BUSY_CELL = "busy: a cell is running; ask again when it has ended"
_INSTEAD = "<the explorer needs a running kernel: run this cell again; the report is shown above>"


class ExplorerWidget(AnyWidget):
    """The page's side is ``js/explorer.js``; what it sends is ``{"ask": ..., "id": ..., ...}``.

    Attributes:
        record: What the page shows.
        place: The cell that shows it, as the front end calls it; empty where it has no name.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    record = traitlets.Dict().tag(sync=True)

    def __init__(self, session: Session, place: str = "") -> None:
        super().__init__(_esm=script(), _css=style(), record=session.data())
        self.place = place
        self._session = session
        self._is_working = False
        self._loop = _running_loop()
        self.on_msg(ExplorerWidget._received)

    def __repr__(self) -> str:
        """Return what is read in its place: in a notebook that is not trusted, in a saved one, on GitHub."""
        return _INSTEAD

    def _received(self, content: Any, _buffers: object) -> None:
        """Answer on the main thread: grad mode and frames of another are not those of the user's cells."""
        if type(content) is not dict or type(content.get("ask")) is not str:
            return
        if threading.current_thread() is threading.main_thread():
            self._answer(content)
        elif self._loop is None or self._loop.is_closed():
            self.send({"answer": content.get("id"), "error": _BUSY_CELL})
        else:
            # ipykernel 7.3 calls from a thread of its own, also while a cell runs: this waits for the cell's end.
            self._loop.call_soon_threadsafe(self._answer, content)

    def _answer(self, content: Data) -> None:
        number = content.get("id")
        if self.comm is None:
            return
        if self._is_working:
            self.send({"answer": number, "error": _BUSY})
            return
        if content["ask"] == _RENDERER:
            self.send({"answer": number}, [renderer()])
            return
        if content["ask"] == _CLOSE:
            self.close()
            return
        self._is_working = True
        self.send({"answer": number, "accepted": True})
        try:
            answer = self._asked(content)
        finally:
            self._is_working = False
        if "record" in answer and self.comm is not None:
            self.record = answer.pop("record")
        self.send({"answer": number, **answer})

    def _asked(self, content: Data) -> Data:
        """Return the session's answer, or in one sentence why there is none."""
        try:
            return self._session.answer(content["ask"], content)
        except LeaklabError as error:
            return {"error": clip(str(error), 1000)}
        except KeyboardInterrupt:
            return {"error": "interrupted"}
        except Exception as error:  # noqa: BLE001 - whatever it is, the page must not wait for ever
            return {"error": clip(f"{type(error).__name__}: {error}", 1000)}

    def close(self) -> None:
        """Close this widget and the one inside it, and forget the session. A second call does nothing."""
        if self.comm is None:
            return
        self.on_msg(ExplorerWidget._received, remove=True)
        layout = self.layout
        self._session.close()
        self.record = {}
        if layout is not None:
            layout.close()  # first: ipywidgets keeps what was not closed for ever
        super().close()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_FOLDED = Markup('<details style="font-size:13px"><summary>{}</summary>{}</details>')
_FOLDED_TITLE = "What the explorer below begins with, for readers without a kernel"
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
        shell = running_shell()
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
    shell = running_shell()
    if namespace is None:
        namespace = shell.user_ns if shell is not None else vars(sys.modules["__main__"])
    session = Session(report, shell, namespace, again)
    source = session.source
    shown: Displayed | None = HeapPicture(source.overview) if isinstance(source, HeapSource) else report
    has_page = getattr(shell, "kernel", None) is not None
    _display(_Folded(shown) if has_page and shown is not None else shown)
    place = _cell_of(shell)
    _close_former(place)
    widget = ExplorerWidget(session, place)
    title = "the living heap" if report is None else f"a check: {report.verdict.outcome.value}"
    explorer = Explorer(widget, title, getattr(shell, "execution_count", None))
    if has_page:
        _display(widget)
    else:
        print(_NO_PAGE)  # noqa: T201 - a terminal shows no widget
    return explorer


class _Folded:
    """A static report in one line that unfolds: who has the explorer need not scroll past it, who has not opens it."""

    def __init__(self, shown: Displayed) -> None:
        self._shown = shown

    def _repr_mimebundle_(self, **wanted: object) -> dict[str, str]:
        del wanted  # IPython drops what it did not ask for
        bundle = self._shown._repr_mimebundle_()
        if "text/html" in bundle:
            markup = Markup(bundle["text/html"])  # noqa: S704 - from our templates
            bundle["text/html"] = str(_FOLDED.format(_FOLDED_TITLE, markup))
        return bundle


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


def _display(shown: object) -> None:
    if running_shell() is None:
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
