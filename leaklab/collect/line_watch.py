"""Name the line of the user's code during which a watched place of the heap changed.

A trace function (``sys.settrace``) asks every watchpoint before each line of the user's functions, and when one of them
is called or returns. What changed since the last question was done by the line that was running, or by what that line
had called. Functions of libraries are entered without being traced.
"""

from __future__ import annotations

import gc
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from leaklab.collect.watchpoints import Token, Watchpoint
from leaklab.objects import is_exactly

Line = tuple[str, int, str]
"""File name, line number, name of the function (``<module>`` outside of any)."""

Whose = Callable[[str], "bool | None"]
"""Tells of a file name whether its code is the user's (True), a library's (False) or leaklab's own (None)."""

_SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_FRAME_OF = {types.GeneratorType: "gi_frame", types.CoroutineType: "cr_frame", types.AsyncGeneratorType: "ag_frame"}
_SNAPSHOTS = sys.version_info < (3, 13)
"""Up to 3.12 tracing a function leaves a dict of its variables on its frame, for as long as the frame lives."""


class LineWatch:
    """Counts for each watchpoint the lines that changed it.

    Args:
        points: The places; the caller lets go of them.
        whose: Tells whose code a file is.
    """

    def __init__(self, points: list[Watchpoint], whose: Whose) -> None:
        self.lines: dict[str, Counter[Line]] = {}
        self._points = points
        self._tokens: list[Token] = []
        self._whose = whose
        self._known: dict[str, bool | None] = {}
        self._running: dict[int, Line | None] = {}
        self._saw_suspended = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Watch inside; a trace function that the code inside installs instead is left to it."""
        self._tokens = [point.token() for point in self._points]
        self._running.clear()
        of_threads = threading.gettrace() if hasattr(threading, "gettrace") else None
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            if sys.gettrace() == self._on_call:
                sys.settrace(None)
            threading.settrace(of_threads)
            if self._saw_suspended and _SNAPSHOTS:
                _refresh_snapshots()

    def _is_users(self, filename: str) -> bool | None:
        try:
            return self._known[filename]
        except KeyError:
            return self._known.setdefault(filename, self._whose(filename))

    def _on_call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        code = frame.f_code
        self._saw_suspended |= bool(code.co_flags & 0x2A0)  # generators, coroutines, asynchronous generators
        if not self._is_users(code.co_filename):
            return None
        self._look()
        self._running[threading.get_ident()] = _line_of(frame)
        return self._on_line

    def _on_line(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            self._look()
            self._running[threading.get_ident()] = _line_of(frame)
        elif event == "return":
            self._look()
            self._running[threading.get_ident()] = self._calling_line(frame.f_back)
        return self._on_line

    def _calling_line(self, frame: FrameType | None) -> Line | None:
        while frame is not None:
            is_users = self._is_users(frame.f_code.co_filename)
            if is_users:
                return _line_of(frame)
            if is_users is None:
                return None
            frame = frame.f_back
        return None

    def _look(self) -> None:
        for place, point in enumerate(self._points):
            if point.has_changed(self._tokens[place]):
                self._tokens[place] = point.token()
                line = self._running.get(threading.get_ident())
                if line is not None:
                    self.lines.setdefault(point.fingerprint, Counter())[line] += 1


def _line_of(frame: FrameType) -> Line:
    code = frame.f_code
    return code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)  # co_qualname came with 3.11


def _refresh_snapshots() -> None:
    """Let what tracing noted of suspended functions' variables go where it is out of date: it would keep objects."""
    for thing in gc.get_objects():
        if is_exactly(thing, _SUSPENDED):
            frame = getattr(thing, _FRAME_OF[type(thing)])
            if frame is not None:
                frame.f_locals  # noqa: B018 - reading it brings the snapshot up to date
