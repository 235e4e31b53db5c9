"""See which call of a function that is known to keep things in C has kept what: by it the count of references rises.

A profile function (``sys.setprofile``) is told of every call from Python into C. Before and after one that fills a
registry the references to the young objects are counted; what has more of them afterwards was kept by the call. Of any
other function that would not be proof: many return what they are given.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from leaklab.lines.allocation import frames_from, innermost_and_asking, line_of
from leaklab.lines.arrival import Line
from leaklab.lines.change import Whose
from leaklab.measure.registries import REGISTRIES
from leaklab.runtime.objects import is_kind_of, type_name

_MOST_CALLS = 500
"""So many calls are counted in a run, 0.1 us for each object that was made since."""


@dataclass(frozen=True, slots=True)
class StoringCall:
    """A call that kept an object.

    Attributes:
        address: Of the object.
        function: The function in C, as `Registry.c_function` has it.
        owner: Address of the object whose method it is; 0 for a function.
        line: The line of the user's that called it, be it through a library.
    """

    address: int
    function: str
    owner: int
    line: Line


class StoreCalls:
    """Notes the calls that keep something.

    Args:
        young: Lends the objects that were made since a phase began.
        whose: Tells whose code a file is.

    Attributes:
        calls: What was noted so far, in the order of the calls.
    """

    def __init__(self, young: Callable[[], AbstractContextManager[list[object]]], whose: Whose) -> None:
        self.calls: list[StoringCall] = []
        self._young, self._whose = young, whose
        self._known: dict[str, bool | None] = {}
        self._open: dict[int, tuple[str, int, Line, list[object], dict[int, int]]] = {}  # by the frame that waits
        self._functions = frozenset(registry.c_function for registry in REGISTRIES)
        self._n_calls = 0

    @contextmanager
    def watched(self) -> Iterator[bool]:
        """Watch the calls of this thread inside; the value is False where a profiler of the user's is left alone."""
        if sys.getprofile() is not None:
            yield False
            return
        self._n_calls = 0
        sys.setprofile(self._on_event)
        try:
            yield True
        finally:
            if sys.getprofile() == self._on_event:  # the code may have set one of its own
                sys.setprofile(None)
            self._open.clear()

    def _on_event(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            self._before(frame, function)
        elif self._open and event in ("c_return", "c_exception"):
            self._after(frame)

    def _before(self, frame: FrameType, function: Any) -> None:
        self._open.pop(id(frame), None)
        if not is_kind_of(function, types.BuiltinFunctionType):
            return
        name = _name_of(function)
        if name not in self._functions or self._n_calls >= _MOST_CALLS:
            return
        self._n_calls += 1
        line = line_of(innermost_and_asking(frames_from(frame), self._is_users)[0])
        if line is not None:
            owner = 0 if type(function.__module__) is str else id(function.__self__)
            with self._young() as objects:
                held = [*objects]  # until the call is over: another object would have the address of what is gone
            self._open[id(frame)] = name, owner, line, held, self._counts()

    def _after(self, frame: FrameType) -> None:
        waiting = self._open.pop(id(frame), None)
        if waiting is None:
            return
        name, owner, line, _held, before = waiting
        for address, count in self._counts().items():
            if count > before.get(address, count):
                self.calls.append(StoringCall(address, name, owner, line))

    def _counts(self) -> dict[int, int]:
        with self._young() as objects:
            return dict(zip(map(id, objects), map(sys.getrefcount, objects), strict=True))

    def _is_users(self, filename: str) -> bool | None:
        try:
            return self._known[filename]
        except KeyError:
            return self._known.setdefault(filename, self._whose(filename))


def _name_of(function: Any) -> str:
    module = function.__module__  # a method has none
    return f"{module if type(module) is str else type_name(type(function.__self__))}.{function.__name__}"
