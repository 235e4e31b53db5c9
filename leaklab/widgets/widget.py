"""The widget: sends the record to the page, and hands what the page asks to a session, on the main thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import traitlets
from anywidget import AnyWidget

from leaklab.errors import LeaklabError
from leaklab.widgets.assets import renderer, script, style
from leaklab.widgets.clipping import clip
from leaklab.widgets.payload import Data
from leaklab.widgets.session import Session

_RENDERER, _CLOSE = "renderer", "close"
_BUSY = "busy: the explorer is still at work on the question before this one"
_BUSY_CELL = "busy: a cell is running; ask again when it has ended"
_INSTEAD = "<the explorer needs a running kernel: run this cell again; what it explores is shown above>"


class ExplorerWidget(AnyWidget):
    """The page's side is `assets.script`; what it sends is ``{"ask": ..., "id": ..., ...}``.

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
