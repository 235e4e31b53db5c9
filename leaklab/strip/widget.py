"""The strip as a widget below the running cell, and the picture that takes its place when the loop has ended.

While a cell runs the kernel answers no message: what the page's button shows was sent before, with each change of a
state. A closed widget is a dead spot in a saved notebook, so the picture replaces it.
"""

from __future__ import annotations

import uuid
import weakref
from functools import cache
from importlib.resources import files
from typing import Any

import traitlets
from anywidget import AnyWidget
from IPython.display import display, update_display

from leaklab.measure.gauges import accelerator_levels
from leaklab.model.loop import Levels, MonitorRecord, MonitorStatus, StateChange
from leaklab.reports.loop import monitor_text
from leaklab.strip.drawing import strip_html, strip_text
from leaklab.text import shorten, well_formed

_MOST_CHARACTERS = 100_000
_WORDS = 300
Data = dict[str, Any]


@cache
def script() -> str:
    """Return the strip's script; as text: anywidget, given the name of a file, never lets go of the widget."""
    return _read("strip.js")


@cache
def style() -> str:
    """Return the style sheet."""
    return _read("strip.css")


def _read(name: str) -> str:
    return files(__package__).joinpath("js", name).read_text("utf-8")


class StripWidget(AnyWidget):
    """The page's side is `script`; it is sent ``{"now": ...}`` and ``{"news": ...}``, and may send ``{"ask": "news"}``.

    Attributes:
        first: What was known when the widget was made.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    first = traitlets.Dict().tag(sync=True)

    def __init__(self, source: Any) -> None:
        record = source.record
        first = {"now": now_data(record.status), "news": news_data(record), "levels": levels_data(record.levels)}
        super().__init__(_esm=script(), _css=style(), first=first)
        self._source = weakref.ref(source)
        self.on_msg(StripWidget._received)

    def __repr__(self) -> str:
        """Return what is read in its place where no widget can be shown."""
        return "<the live strip of a loop: its picture is shown here when the loop has ended>"

    def _received(self, content: Any, _buffers: object) -> None:
        source = self._source()
        if type(content) is dict and content.get("ask") == "news" and source is not None and self.comm is not None:
            self.send({"news": news_data(source.record)})

    def close(self) -> None:
        """Close this widget and the one inside it."""
        if self.comm is None:
            return
        self.on_msg(StripWidget._received, remove=True)
        layout = self.layout
        if layout is not None:
            layout.close()  # first: ipywidgets keeps what was not closed for ever
        super().close()


class NotebookFace:
    """A widget in the output of the cell, and what takes its place."""

    def __init__(self, source: Any) -> None:
        self._place = uuid.uuid4().hex
        self._widget = StripWidget(source)
        self._last = bundle(source.record)
        shown = {**self._last, **view_of(self._widget)}
        display(shown, raw=True, display_id=self._place)  # type: ignore[no-untyped-call]

    def sample(self, status: MonitorStatus) -> None:
        """Send one more moment to the page."""
        self._widget.send({"now": now_data(status)})

    def news(self, record: MonitorRecord) -> None:
        """Send the report so far, for the button."""
        self._last = bundle(record)
        self._widget.send({"news": news_data(record)})

    def clear_line(self) -> None:
        """Do nothing: what is printed has a place of its own."""

    def finish(self, record: MonitorRecord | None) -> None:
        """Put the picture and the report in the place of the widget."""
        left = self._last if record is None else bundle(record)
        update_display(left, raw=True, display_id=self._place)  # type: ignore[no-untyped-call]
        self._widget.close()


def bundle(record: MonitorRecord) -> dict[str, str]:
    """Return what a saved notebook keeps of the strip."""
    return {"text/html": well_formed(strip_html(record)), "text/plain": well_formed(strip_text(record))}


def view_of(widget: AnyWidget) -> Data:
    """Return what a front end shows the page's side of *widget* by."""
    made: Any = widget._repr_mimebundle_()
    data = made[0] if isinstance(made, tuple) else made
    return {name: value for name, value in data.items() if name.startswith("application/")}


def now_data(status: MonitorStatus) -> Data:
    """Return one moment as the page reads it."""
    levels = accelerator_levels()
    return {
        "seconds": status.seconds,
        "step": status.step,
        "total": status.total_steps,
        "state": status.state.value,
        "alarm": status.is_alarm,
        "checking": status.is_checking,
        "perStep": status.bytes_per_step,
        "full": status.full_at_step,
        "tensors": status.n_tensors,
        "holder": shorten(status.holder, _WORDS),
        "name": shorten(status.name, _WORDS),
        "heap": status.heap_bytes,
        "rss": status.rss_bytes or None,
        "accelerator": None if levels is None else levels[0],
        "reserved": None if levels is None else levels[1],
    }


def news_data(record: MonitorRecord) -> Data:
    """Return the report so far as the page reads it."""
    return {
        "changes": [_change_data(change) for change in record.changes],
        "report": well_formed(monitor_text(record)[:_MOST_CHARACTERS]),
    }


def _change_data(change: StateChange) -> Data:
    return {
        "step": change.step,
        "state": change.state.value,
        "alarm": change.is_alarm,
        "words": shorten(change.words, _WORDS),
    }


def levels_data(levels: Levels) -> Data:
    """Return the levels until now, column by column."""
    return {
        "seconds": levels.seconds,
        "step": levels.steps,
        "heap": _known(levels.heap_bytes),
        "rss": _known(levels.rss_bytes),
        "accelerator": _known(levels.accelerator_bytes),
        "reserved": _known(levels.reserved_bytes),
    }


def _known(column: tuple[int, ...]) -> list[int | None]:
    return [None if value < 0 else value for value in column]
