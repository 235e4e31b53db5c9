"""Drop the output of a run below everything that the cell has put upon the streams, and keep IPython's records of it.

From version 9 on IPython remembers what every cell prints, and what it displays where no kernel does that: without
these records a cell whose output fills the memory would look clean. And a cell that wraps `sys.stdout` again in every
run leaks wrappers: no stream is put in place of the user's and taken away again, but the very stream that writes on
the screen is closed for the time of a run.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

from IPython.core import history

from leaklab.check.ranking import BOOKKEEPING_BYTES
from leaklab.explain.leaks.ownership import is_users_kind
from leaklab.runtime.objects import has_base, is_exactly, loaded_variables
from leaklab.runtime.referents import get_referents

_HistoryOutput: Any = getattr(history, "HistoryOutput", None)
_MAX_LOOKED_AT = 2_000
"""So many objects are looked at to find the screen below the streams of the user's own."""
_PASSED = (dict, list, tuple, CellType, FunctionType, MethodType)
_ABSENT = object()
_tee_module = "IPython.core.interactiveshell"


class OutputRecords:
    """The output of runs: shown, or dropped but for what IPython keeps of it; `forget` takes that away again.

    Args:
        shell: The user's shell. Its streams are those of now.
    """

    def __init__(self, shell: Any) -> None:
        self._first = sys.stdout, sys.stderr
        self._records = _Records(shell)
        self._taps = list(_taps(self._records, shell, self._first))

    @contextmanager
    def of_run(self, number: int, *, shown: bool) -> Iterator[None]:
        """Show or drop what is printed and displayed inside; streams stay as the cell leaves them.

        Args:
            number: Of the run. Each has records of its own, as each execution of the cell would.
            shown: Whether it is shown. Otherwise it is dropped, but for IPython's records of it where these are large.
        """
        hook, taps = sys.displayhook, [] if shown else self._taps
        self._records.open(number)
        try:
            for tap in taps:
                tap.close()
            if taps:
                sys.displayhook = _drop
            yield
        finally:
            for tap in reversed(taps):
                tap.open()
            sys.displayhook = hook  # as IPython does after every cell
            self._records.close()

    @contextmanager
    def on_screen(self) -> Iterator[None]:
        """Print inside on the streams that there were before the first run."""
        out, err = self._first
        with redirect_stdout(out), redirect_stderr(err):
            yield

    def forget(self) -> None:
        """Take away the records of all runs whose output was dropped."""
        self._records.forget()


class _Records:
    """What IPython keeps of the runs of a cell, by the number of the execution: those of runs are below 0."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._key = 0

    @property
    def _kept(self) -> Any:
        """None where IPython keeps nothing."""
        return None if _HistoryOutput is None else getattr(self._shell.history_manager, "outputs", None)

    def open(self, number: int) -> None:
        self._key = -1 - number

    def close(self) -> None:
        kept = self._kept
        if kept is not None and _length(kept.get(self._key, ())) < BOOKKEEPING_BYTES:
            kept.pop(self._key, None)

    def forget(self) -> None:
        kept = self._kept
        for key in [] if kept is None else [key for key in list(kept) if key < 0]:
            del kept[key]

    def drop_text(self, kind: str, text: object, *_args: object) -> int:
        """Keep of *text* what IPython would keep; as in its own `InteractiveShell._tee`."""
        if not isinstance(text, str):
            msg = f"write() argument must be str, not {type(text).__name__}"
            raise TypeError(msg)
        if text and self._kept is not None and hasattr(self._shell, "_tee"):
            of_run = self._kept.setdefault(self._key, [])
            if not of_run or of_run[-1].output_type != kind:
                of_run.append(_HistoryOutput(output_type=kind, bundle={"stream": []}))
            of_run[-1].bundle["stream"].append(text)
        return len(text)

    def drop_display(self, data: Any, *_args: object, **_options: object) -> None:
        # A kernel's publisher has the switch, off by default.
        if self._kept is not None and getattr(self._shell.display_pub, "store_display_history", True):
            of_run = self._kept.setdefault(self._key, [])
            of_run.append(_HistoryOutput(output_type="display_data", bundle=data))


def _taps(records: _Records, shell: Any, streams: tuple[Any, Any]) -> Iterator[_Tap]:
    """Yield what is to be closed that nothing is shown."""
    is_teed = hasattr(shell, "_tee")  # IPython puts the `write` of its streams back after every cell
    yield _Tap(shell.display_pub, "publish", records.drop_display)
    yield _Tap(shell.display_pub, "clear_output", _drop)
    seen: set[int] = set()
    for first, kind in zip(streams, ("out_stream", "err_stream"), strict=True):
        below = [stream for stream in _below(first) if id(stream) not in seen]
        seen.update(map(id, below))
        for stream in below:
            if _is_screen(stream) or (stream is first and not is_users_kind(type(first))):
                yield _Tap(stream, "write", partial(records.drop_text, kind), is_put_back=is_teed)
                yield _Tap(stream, "flush", _drop, is_put_back=is_teed)
            elif _is_teed(stream):  # what dropped runs print is no output of the cell that checks
                yield _Tap(stream, "write", partial(type(stream).write, stream), is_put_back=True)


class _Tap:
    """Stands for a method of one object while it is closed.

    A function that the cell has put in its place may go on to call it: then it stays, and does what the method did.

    Args:
        thing: The object. Its own dict is changed, if it has one.
        name: Of the method.
        instead: What is called while it is closed.
        is_put_back: Whether the method is put back whatever the cell has put in its place.
    """

    def __init__(self, thing: Any, name: str, instead: Callable[..., Any], *, is_put_back: bool = False) -> None:
        self._thing, self._name, self._instead, self._is_put_back = thing, name, instead, is_put_back
        self._is_closed = self._is_left = False
        self._method: Any = None
        self._own: dict[str, Any] = getattr(thing, "__dict__", {})  # asked for now: it would come to be in a run
        self._before: Any = _ABSENT

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self._is_closed:
            return self._instead(*args, **options)
        method = self._own.get(self._name, self) if self._method is None else self._method
        if method is self:  # a cell has kept this from one of its runs
            method = MethodType(getattr(type(self._thing), self._name, _drop), self._thing)
        return method(*args, **options)

    def close(self) -> None:
        if not self._is_left:
            self._before, self._method = self._own.get(self._name, _ABSENT), getattr(self._thing, self._name, _drop)
            self._own[self._name] = self
        self._is_closed = True

    def open(self) -> None:
        self._is_left = self._is_closed and not self._is_put_back and self._own.get(self._name) is not self
        if self._is_closed and not self._is_left:
            if self._before is _ABSENT:
                self._own.pop(self._name, None)
            else:
                self._own[self._name] = self._before
            # A method is an object of its run: held until the next, it would be what an empty cell leaves behind.
            self._before, self._method = _ABSENT, None
        self._is_closed = False


def _drop(*_args: object, **_options: object) -> None:
    """Do nothing with what was to be shown."""


def _below(stream: object) -> Iterator[Any]:
    """Yield *stream* and what streams of the user's own refer to, without running their code."""
    pending, seen = deque([stream]), {id(stream)}
    while pending and len(seen) < _MAX_LOOKED_AT:
        thing = pending.popleft()
        yield thing
        referents: Sequence[object] = ()
        if type(thing) is FunctionType:  # its globals are everything
            referents = (*(thing.__closure__ or ()), *(thing.__defaults__ or ()))
        elif is_exactly(thing, _PASSED) or is_users_kind(type(thing)):
            referents = get_referents(thing)
        new = {id(referent): referent for referent in referents if id(referent) not in seen}
        seen.update(new)
        pending.extend(new.values())


def _is_screen(thing: object) -> bool:
    """Return whether *thing* is the stream of a kernel or of the terminal."""
    kind = loaded_variables("ipykernel.iostream").get("OutStream")
    return thing is sys.__stdout__ or thing is sys.__stderr__ or (kind is not None and has_base(type(thing), kind))


def _is_teed(thing: object) -> bool:
    """Return whether *thing* is a stream of the user's own of which IPython records what is written now."""
    if not is_users_kind(type(thing)):
        return False
    write = getattr(thing, "__dict__", {}).get("write")
    return type(write) is FunctionType and write.__module__ == _tee_module


def _length(records: Iterable[Any]) -> int:
    """Return how many characters and bytes *records* keep, but for nested data."""
    found = (text for record in records for value in record.bundle.values() for text in _texts(value))
    return sum(map(len, found))


def _texts(value: object) -> Sequence[str | bytes]:
    if type(value) is list:
        return value
    return (value,) if is_exactly(value, (str, bytes)) else ()  # type: ignore[return-value]  # the type was asked
