"""Name the line of the user's code during which a watched place of the heap changed.

A trace function (``sys.settrace``) asks every watchpoint before each line of the user's functions, and when one of them
is called or returns. What changed since the last question was done by the line that was running, or by what that line
had called. Functions of libraries are entered without being traced.
"""

from __future__ import annotations

import collections
import gc
import inspect
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

from leaklab.lines.arrival import ArrivalLines, Line
from leaklab.measure.checkpoint import measure_of
from leaklab.runtime.containers import CONTEXT_NODES, EMPTY, entries_in, item_at, items_in, newest_items, newest_pairs
from leaklab.runtime.objects import has_base, is_exactly, is_tensor_type, loaded_type
from leaklab.runtime.referents import get_referents

Token = tuple[int, ...]
"""Differs from the one before if something was added, removed or replaced. An object is known by its address."""

Part = tuple[Callable[[], int], Callable[[int], list[object]]]
"""One number of a place, and what was put there last, given how much the number grew."""

_MAX_NEW = 4
"""So many new entries are handed out at once: they are looked at for the line that made them."""
_MAX_REFERENTS = 200
"""All of them are read before every line: an object with more is no instance with attributes."""
_PLAIN_KEYS = frozenset(map(id, (str, int, float, bool, bytes, type(None))))
"""Looking these up runs no code of the user; any other key could have an ``__eq__`` or ``__hash__`` of its own."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Watchpoint:
    """One place that is asked again and again. Holds the user's objects: let go of it soon.

    Attributes:
        fingerprint: Of the leak that is kept here.
        readers: Each tells one number of the place.
        newest: Each returns what was put there last; its argument is how many entries are new.
        has_length: Whether the first number is how much there is in the place.
    """

    fingerprint: str
    readers: tuple[Callable[[], int], ...]
    newest: tuple[Callable[[int], list[object]], ...]
    has_length: bool = False

    def token(self) -> Token:
        """Return the numbers of this moment."""
        return tuple([read() for read in self.readers])

    def has_changed(self, since: Token) -> bool:
        """Return whether the numbers are others than *since*; cheap, it is asked before every line."""
        for read, old in zip(self.readers, since):  # noqa: B905, SIM110 - one length; a generator would cost as much again
            if read() != old:
                return True
        return False

    def is_sorting(self, before: Token, after: Token) -> bool:
        """Return whether the place may be a list that is being sorted: until that is done it reads as empty."""
        return self.has_length and after[0] == 0 < before[0]

    def has_grown(self, before: Token, after: Token) -> bool:
        """Return whether there is more in the place at the second token than at the first."""
        return self.has_length and after[0] > before[0]

    def new_entries(self, before: Token, after: Token) -> list[object]:
        """Return what was put there between two tokens; the caller drops it at once."""
        found: list[object] = []
        for newest, old, new in zip(self.newest, before, after, strict=True):
            if old != new:
                found += newest(new - old)
        return found[: 2 * _MAX_NEW]


class Unseen:
    """Stands in a chain for an object that the collector does not list: a function that runs."""


def replaced_whole(fingerprint: str, chain: list[object]) -> Watchpoint | None:
    """Return the watch over the place that refers to the holder at the end of *chain*, the newest entry last.

    Where every run makes a longer holder (``losses = losses + [loss]``) the old one never changes.
    """
    slot = _slot(chain[-3], chain[-2]) if len(chain) > 2 else None  # noqa: PLR2004 - a holder, its owner, its entry
    return None if slot is None else Watchpoint(fingerprint, (slot[0],), (slot[1],))


def watchpoint(fingerprint: str, chain: list[object], *, grows: bool) -> Watchpoint | None:
    """Return the watch over the place that *chain* ends at, None if nothing there can be read without the user's code.

    Args:
        fingerprint: Of the leak.
        chain: Each object refers to the next; see *grows* for the last.
        grows: Whether the last object grows itself; otherwise it is the newest entry of the one before it.
    """
    parts: list[Part] = []
    owner, last = chain[-2] if len(chain) > 1 else None, chain[-1]
    parts += _inside(last if grows else owner)
    has_length = bool(parts)
    if owner is not None and (slot := _slot(owner, last)) is not None:
        parts.append(slot)
    if not grows and owner is not None and is_tensor_type(type(owner)):
        # What hangs on a tensor (its graph, its gradient) comes with a new tensor in the old place, or in place.
        above = _slot(chain[-3], owner) if len(chain) > 2 else None  # noqa: PLR2004
        parts += [above] if above is not None else []
        parts += [_gradient_of(thing) for thing in chain[-3:-1] if is_tensor_type(type(thing))]
    if not parts:
        return None
    reading, newest = zip(*parts, strict=True)
    return Watchpoint(fingerprint, reading, newest, has_length)


def _inside(thing: Any) -> Iterator[Part]:
    """Yield how to read the size of *thing*, and its newest entries.

    No closures: their cells would be taken for variables of the user's that refer to *thing*.
    """
    kind = type(thing)
    if is_tensor_type(kind):
        yield partial(_version, thing), _nothing
        return
    measure = measure_of(kind)
    if measure is None:
        return
    newest: Callable[[int], list[object]] = _nothing
    if has_base(kind, list) or has_base(kind, collections.deque):
        newest = partial(_last_entries, thing)
    elif has_base(kind, dict):
        newest = partial(_last_items, thing)
    yield partial(measure, thing), newest


def _last_entries(things: Any, n_new: int) -> list[object]:
    """Return the items added last; a list's own order, whatever a subclass says."""
    return newest_items(things, min(n_new, _MAX_NEW))


def _version(tensor: object) -> int:
    """Return how often *tensor* was written to in place; 0 where torch does not count."""
    base: Any = loaded_type("torch", "Tensor")
    try:
        return int(base._version.__get__(tensor))  # noqa: SLF001 - the counter has no public name
    except RuntimeError:  # a tensor of inference mode
        return 0


def _gradient_of(tensor: object) -> Part:
    return partial(_gradient, tensor), _nothing


def _gradient(tensor: object) -> int:
    """Return the address of the gradient of *tensor*, 0 if it has none."""
    base: Any = loaded_type("torch", "Tensor")
    # Of any other tensor the question would warn.
    gradient = base.grad.__get__(tensor) if base.is_leaf.__get__(tensor) else None
    return 0 if gradient is None else int(gradient._cdata)  # noqa: SLF001 - the identity below the Python object


def _nothing(_n_new: int) -> list[object]:
    return []


def _last_items(mapping: dict[object, object], n_new: int) -> list[object]:
    """Return the values added last, and keys that are objects; by the dict's own order, whatever a subclass says."""
    newest = newest_pairs(mapping, min(n_new, _MAX_NEW))
    return [thing for key, value in newest for thing in (value, key) if id(type(thing)) not in _PLAIN_KEYS]


def _slot(owner: object, target: object) -> Part | None:
    """Return how to read which object stands now where *owner* refers to *target*; None if that is not found."""
    if type(owner) is Unseen:
        cells = [cell for cell in gc.get_referrers(target) if type(cell) is types.CellType]
        return _reader(partial(_content, cells[0])) if len(cells) == 1 else None
    if has_base(type(owner), dict):
        return _dict_slot(owner, target)  # type: ignore[arg-type]  # a dict
    if has_base(type(owner), list):
        at = _place_of(target, items_in(owner))
        if at is not None:
            return _reader(partial(item_at, owner, at))
    referents: list[object] = get_referents(owner)
    place = _place_of(target, referents)
    if is_exactly(owner, CONTEXT_NODES):  # these are made anew: whose value it is stays
        variables = [one for value, one in pairwise(referents) if value is target and type(one) is ContextVar]
        return _reader(partial(variables[0].get, None)) if variables else None
    if place is not None:
        return _reader(partial(_referent, owner, place)) if len(referents) <= _MAX_REFERENTS else None
    own_dicts = (referent for referent in referents[:_MAX_REFERENTS] if type(referent) is dict)
    slots = map(partial(_dict_slot, target=target), own_dicts)
    return next((slot for slot in slots if slot is not None), None)


def _dict_slot(mapping: dict[object, object], target: object) -> Part | None:
    key = next((key for key, value in entries_in(mapping) if value is target), EMPTY)
    return _reader(partial(dict.get, mapping, key)) if id(type(key)) in _PLAIN_KEYS else None


def _place_of(target: object, things: list[object]) -> int | None:
    """Return where *target* itself, not its equal, stands among *things*."""
    return next((place for place, thing in enumerate(things) if thing is target), None)


def _content(cell: types.CellType) -> object:
    return next(iter(get_referents(cell)), None)


def _referent(owner: object, place: int) -> object:
    referents = get_referents(owner)
    return referents[place] if place < len(referents) else None


def _reader(read: Callable[[], object]) -> Part:
    return (lambda: id(read())), lambda _n_new: [read()]


Whose = Callable[[str], "bool | None"]
"""Tells of a file name whether its code is the user's (True), a library's (False) or leaklab's own (None)."""

_START = threading.Thread.start.__code__
_SUSPENDED = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_FRAME_OF = {types.GeneratorType: "gi_frame", types.CoroutineType: "cr_frame", types.AsyncGeneratorType: "ag_frame"}
_SNAPSHOTS = sys.version_info < (3, 13)
"""Up to 3.12 tracing a function leaves a dict of its variables on its frame, for as long as the frame lives."""


_trace_no_thread: Callable[[None], None] = getattr(threading, "settrace_all_threads", lambda _none: None)


class LineWatch:
    """Counts for each watchpoint the lines that changed it.

    Args:
        points: The places; the caller lets go of them.
        whose: Tells whose code a file is.
        arrivals: What is asked for new descriptors and children besides.
    """

    def __init__(self, points: list[Watchpoint], whose: Whose, arrivals: Sequence[ArrivalLines] = ()) -> None:
        self.lines: dict[str, Counter[Line]] = {}
        self._grown: set[str] = set()
        self._points = points
        self._arrivals = arrivals
        self._tokens: list[Token] = []
        self._whose = whose
        self._known: dict[str, bool | None] = {}
        self._running: dict[int, Line | None] = {}
        self._starters: dict[int, Line | None] = {}
        self._saw_suspended = False
        self._is_on = False

    @contextmanager
    def installed(self, *, running_too: bool = False) -> Iterator[None]:
        """Watch inside; a trace function that the code inside installs instead is left to it.

        A thread that is started inside and goes on afterwards stops being traced at its next line or call; at once
        from CPython 3.12 on, of which 3.12.1 crashes where one is still traced and a generator is resumed that was
        suspended since.

        Args:
            running_too: Whether the functions that run already, down to this one, are asked for their lines too: a loop
                that goes on is such a function.
        """
        self._tokens = [point.token() for point in self._points]
        for arrivals in self._arrivals:
            arrivals.begin()
        self._running.clear()
        self._starters.clear()
        of_threads, threads = threading.gettrace(), sys._current_frames().keys()  # noqa: SLF001
        self._is_on = True
        threading.settrace(self._on_call)
        if running_too:
            self._enter_running_functions(sys._getframe())  # noqa: SLF001
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            self._is_on = False
            self._leave_thread()
            if self._is_own(threading.gettrace()):
                threading.settrace(of_threads)
            if of_threads is None and sys.gettrace() is None and sys._current_frames().keys() - threads:  # noqa: SLF001
                _trace_no_thread(None)
            self._leave_running_functions()
            for arrivals in self._arrivals:
                for fingerprint, lines in arrivals.found().items():
                    self.lines.setdefault(fingerprint, Counter()).update(lines)
            if self._saw_suspended and _SNAPSHOTS:
                _refresh_snapshots()

    def _is_own(self, trace: object) -> bool:
        return type(trace) is types.MethodType and trace.__self__ is self

    def _leave_thread(self) -> None:
        """Trace this thread no more, unless somebody else does."""
        if self._is_own(sys.gettrace()):
            sys.settrace(None)

    def _enter_running_functions(self, innermost: FrameType | None) -> None:
        """Ask the user's functions that run in this thread for their lines: calls alone would not reach them."""
        if (line := self._calling_line(innermost, beyond_own=True)) is not None:
            self._running[threading.get_ident()] = line
        frame = innermost
        while frame is not None:
            if frame.f_trace is None and self._is_users(frame.f_code.co_filename):
                frame.f_trace = self._on_line
            frame = frame.f_back

    def _leave_running_functions(self) -> None:
        """Ask no function that still runs, in whichever thread, for its lines."""
        here = threading.get_ident()
        for thread, innermost in sys._current_frames().items():  # noqa: SLF001 - the only way to other threads' frames
            frame: FrameType | None = innermost
            while frame is not None:
                if self._is_own(frame.f_trace):
                    frame.f_trace = None
                    forget_variables(frame, at_rest=thread == here)
                frame = frame.f_back

    def _is_users(self, filename: str) -> bool | None:
        try:
            return self._known[filename]
        except KeyError:
            return self._known.setdefault(filename, self._whose(filename))

    def _on_call(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        if not self._is_on:
            return self._leave_thread()
        code = frame.f_code
        self._saw_suspended |= bool(code.co_flags & 0x2A0)  # generators, coroutines, asynchronous generators
        if not self._is_users(code.co_filename):
            if code is _START:
                self._starters[id(frame.f_locals.get("self"))] = self._calling_line(frame.f_back)
            return None
        self._look()
        self._running[threading.get_ident()] = line_of_frame(frame)
        return self._on_line

    def _on_line(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if not self._is_on:
            return self._leave_thread()
        if event == "line":
            self._look()
            self._running[threading.get_ident()] = line_of_frame(frame)
        elif event == "return":
            self._look()
            self._running[threading.get_ident()] = self._calling_line(frame.f_back)
        return self._on_line

    def _calling_line(self, frame: FrameType | None, *, beyond_own: bool = False) -> Line | None:
        """Return the innermost line of the user's from *frame* outward, up to leaklab's own functions or beyond."""
        while frame is not None:
            is_users = self._is_users(frame.f_code.co_filename)
            if is_users:
                return line_of_frame(frame)
            if is_users is None and not beyond_own:
                return None
            frame = frame.f_back
        return None

    def _look(self) -> None:
        for arrivals in self._arrivals:
            arrivals.look(self._line_of_thread())
        for place, point in enumerate(self._points):
            before = self._tokens[place]
            if point.has_changed(before) and not point.is_sorting(before, after := point.token()):
                self._tokens[place] = after
                self._note(point.fingerprint, has_grown=point.has_grown(before, after))

    def _note(self, fingerprint: str, *, has_grown: bool) -> None:
        """Count the line that runs; where some have made the place longer, those alone: to sort makes nothing grow."""
        line = self._line_of_thread()
        if line is None:
            return
        if has_grown and fingerprint not in self._grown:
            self._grown.add(fingerprint)
            self.lines[fingerprint] = Counter()
        if has_grown or fingerprint not in self._grown:
            self.lines.setdefault(fingerprint, Counter())[line] += 1

    def _line_of_thread(self) -> Line | None:
        """Return the line that this thread runs; in one that has run none yet, the line that started it."""
        ident = threading.get_ident()
        if ident in self._running:
            return self._running[ident]
        return self._starters.get(id(threading._active.get(ident)))  # type: ignore[attr-defined]  # noqa: SLF001


def line_of_frame(frame: FrameType) -> Line:
    """Return the line that *frame* is at."""
    return line_in_code(frame.f_code, frame.f_lineno)


def line_in_code(code: CodeType, number: int) -> Line:
    """Return line *number* of *code*."""
    return code.co_filename, number, getattr(code, "co_qualname", code.co_name)  # co_qualname came with 3.11


_SOLE_REFERENCES = 3  # to a snapshot of variables: the frame's, the name's, and the argument of getrefcount


def forget_variables(frame: FrameType, *, at_rest: bool) -> None:
    """Bring the dict of variables that tracing has left on *frame* up to date, and empty it where nobody needs it.

    A loop that runs for days would keep one step's objects in it. Where somebody else has that dict, from a call of
    ``locals()``, it is left; and in a thread that may be within the trace function, which copies the dict back
    (*at_rest* is not set there), emptying it would take the function's variables away.
    """
    snapshot = frame.f_locals
    if (
        _SNAPSHOTS
        and at_rest
        and frame.f_code.co_flags & inspect.CO_OPTIMIZED  # else these are the variables themselves, of a module
        and sys.getrefcount(snapshot) <= _SOLE_REFERENCES
    ):
        snapshot.clear()


def _refresh_snapshots() -> None:
    """Let what tracing noted of suspended functions' variables go where it is out of date: it would keep objects."""
    for thing in gc.get_objects():
        if is_exactly(thing, _SUSPENDED):
            frame = getattr(thing, _FRAME_OF[type(thing)])
            if frame is not None:
                frame.f_locals  # noqa: B018 - reading it brings the snapshot up to date
