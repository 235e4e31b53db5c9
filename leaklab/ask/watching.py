"""Report what a block or a function leaves behind, and what each cell of a notebook does."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, TypeVar, cast

from leaklab.ask.heap_diff import compare_now
from leaklab.decide.growth import judge_habit
from leaklab.measure.heap_snapshot import NotebookContext, notebook_context
from leaklab.measure.snapshot_sizes import take_totals
from leaklab.model.heap_diff import HeapSnapshotRecord, Totals
from leaklab.reports.heap_diff import MemDiff
from leaklab.runtime.objects import loaded_variables
from leaklab.text import draw_levels, format_bytes, format_seconds, signed_bytes, signed_words, visible

_MAX_CELLS = 200  # different texts that are remembered; the one not executed for longest is forgotten first
_MAX_RUNS = 64
_N_LEVELS = 16
_ALARMS = frozenset({4, 8, 16, 32, _MAX_RUNS})

_Watch = TypeVar("_Watch", bound="watch")
_Function = TypeVar("_Function", bound=Callable[..., Any])


class watch:  # noqa: N801 - read as a word: `with leaklab.watch("epoch"):`
    """Report what a block makes and leaves behind; as a decorator, what each call of a function does.

    The same watch may be entered again while it is open, also by other threads and tasks: each entry has its own
    report. Exceptions of the block pass through. Nothing of the block's is kept: the watch holds the last report,
    which is numbers and words. Births are seen by address: the *net* figures are exact, while an object that died
    inside and whose place was taken by one of its own type passes for it (``%%memdiff`` sees those, too).

    A decorated coroutine function is watched from its first step to its end, and so is a generator function: what its
    consumer makes meanwhile is counted, too, and one that is dropped before its end has no report. What a function
    returns is alive when it is counted.

    Args:
        name: For the reader; a decorated function's own name by default.
        quiet: Whether nothing is printed; ``diff`` has the report in any case.

    Raises:
        TypeError: if the name is no text, or what is decorated is no function, or an asynchronous generator function.

    Example::

        with leaklab.watch("epoch") as epoch:
            train(model)
        epoch.diff.tensors
    """

    def __init__(self, name: str = "", *, quiet: bool = False) -> None:
        if type(name) is not str:
            hint = ": write @leaklab.watch() with parentheses" if callable(name) else ""
            msg = f"the name of a watch must be a str, not {type(name).__name__}{hint}"
            raise TypeError(msg)
        self.name = name
        self.quiet = quiet
        self.diff: MemDiff | None = None
        self._open: dict[tuple[int, int], list[tuple[HeapSnapshotRecord, NotebookContext]]] = {}

    def __enter__(self: _Watch) -> _Watch:  # noqa: PYI019 - typing.Self came with Python 3.11
        around = notebook_context(sys._getframe(1).f_globals)  # noqa: SLF001 - the variables of the block
        self._start(around)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop(self.name or "block", kind)

    def __call__(self, function: _Function) -> _Function:
        """Return *function* watched; every call has a report of its own, `diff` is that of the last one ended."""
        if not inspect.isroutine(function) and not isinstance(function, functools.partial):
            msg = f"leaklab.watch() decorates a function, not {type(function).__name__}"
            raise TypeError(msg)
        if inspect.isasyncgenfunction(function):
            msg = (
                "leaklab.watch() cannot decorate an asynchronous generator; use `with leaklab.watch():` around its use"
            )
            raise TypeError(msg)
        return cast("_Function", self._wrapped(function))

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        name = self.name or getattr(function, "__qualname__", "function")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def watched_coroutine(*args: Any, **kwargs: Any) -> Any:
                with self._stretch(name, function):
                    return await function(*args, **kwargs)

            return watched_coroutine
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def watched_generator(*args: Any, **kwargs: Any) -> Any:
                with self._stretch(name, function):
                    return (yield from function(*args, **kwargs))

            return watched_generator

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self._stretch(name, function):
                return function(*args, **kwargs)

        return watched

    @contextmanager
    def _stretch(self, name: str, function: Callable[..., Any]) -> Iterator[None]:
        """Watch one call: its moment lives in this frame, so calls may end in any order."""
        around = notebook_context(getattr(inspect.unwrap(function), "__globals__", None))
        before = around.take("before")
        try:
            yield
        except GeneratorExit:  # the collector may be at work: no time for a report
            raise
        except BaseException as error:
            self._report(before, around, name, type(error))
            raise
        self._report(before, around, name, None)

    def _start(self, around: NotebookContext) -> None:
        self._open.setdefault(_here(), []).append((around.take("before"), around))

    def _stop(self, name: str, kind: type[BaseException] | None) -> None:
        here = _here()
        opened = self._open[here]
        before, around = opened.pop()
        if not opened:
            del self._open[here]
        self._report(before, around, name, kind)

    def _report(
        self, before: HeapSnapshotRecord, around: NotebookContext, name: str, kind: type[BaseException] | None
    ) -> None:
        failure = kind.__name__ if kind is not None else ""
        self.diff = compare_now(before, around.take("after"), around, failure)
        if not self.quiet:
            sys.stdout.write(f"{visible(name)}: {self.diff}")

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<leaklab.watch{name}: {'not ended yet' if self.diff is None else repr(self.diff)[9:-1]}>"


def _here() -> tuple[int, int]:
    """Name the thread and the task that runs."""
    current_task, task = loaded_variables("asyncio").get("current_task"), None
    if current_task is not None:
        with suppress(RuntimeError):  # no loop runs in this thread
            task = current_task()
    return threading.get_ident(), id(task) if task is not None else 0


class CellWatcher:
    """Count after every cell what is alive, and say what the cell left behind.

    What happens between two cells is counted with the later one.

    Args:
        records: Returns the containers of the notebook's own texts, asked anew each time: a reset makes new ones.
        write: Takes each line.
        encoding: Of where the lines go: what it cannot say is not used.
        alarmed: Returns a text in the colour of an alarm, where there is colour.
    """

    def __init__(
        self,
        records: Callable[[], Iterable[object]],
        write: Callable[[str], object],
        *,
        encoding: Callable[[], str | None] = lambda: "utf-8",
        alarmed: Callable[[str], str] = str,
    ) -> None:
        self._records = records
        self._write = write
        self._encoding = encoding
        self._alarmed = alarmed
        self._levels: deque[int] = deque(maxlen=_N_LEVELS)
        self._last: Totals | None = None
        self._runs: OrderedDict[str, list[Totals]] = OrderedDict()
        self._started = 0.0
        self.n_cells = 0
        self.n_alarms = 0
        self.own_seconds = 0.0

    def start_cell(self) -> None:
        """Note that a cell begins; the first one needs something to be compared with."""
        if self._last is None:
            self._count()
        self._started = time.perf_counter()

    def end_cell(self, number: int, source: str) -> None:
        """Write one line on the cell that has ended, and an alarm if it keeps growing.

        Args:
            number: What the notebook calls it.
            source: Its text: executions of the same text are compared with each other.
        """
        seconds = time.perf_counter() - self._started
        before, now = self._last, self._count()
        if before is None:
            return
        self.n_cells += 1
        change = now.since(before)
        level = now.heap_bytes if now.heap_bytes >= 0 else now.tensor_bytes
        self._levels.append(level)
        levels = f"{draw_levels(self._levels, encoding=self._encoding())} {format_bytes(level)}"
        self._write(f"leakwatch In[{number}] {format_seconds(seconds):>7}  {change_words(change)}  {levels}\n")
        runs = self._remember(source.strip(), change)
        habit = judge_habit(runs)
        # Said once, then again whenever the executions have doubled.
        if habit is not None and len(runs) in _ALARMS:
            self.n_alarms += 1
            words = self._alarmed(f"leakwatch ALARM In[{number}]")
            self._write(
                f"{words}: each of the last {habit.n_runs} executions of this cell left {habit.words}\n"
                "    what to do: write %%leakcheck above this cell and run it again: it says who holds them, and"
                " which line does it\n"
            )

    def status(self) -> str:
        """Return what was watched and what it cost, in one line."""
        each = self.own_seconds / (self.n_cells + 1)
        cells = "cell" if self.n_cells == 1 else "cells"
        alarms = "alarm" if self.n_alarms == 1 else "alarms"
        return (
            f"leakwatch is on: {self.n_cells:,} {cells} watched, {self.n_alarms:,} {alarms};"
            f" watching took {format_seconds(each)} a cell"
        )

    def _count(self) -> Totals:
        started = time.perf_counter()
        self._last = take_totals(self._records())
        self.own_seconds += time.perf_counter() - started
        return self._last

    def _remember(self, source: str, change: Totals) -> list[Totals]:
        key = hashlib.sha256(source.encode("utf-8", "backslashreplace")).hexdigest()
        runs = self._runs.setdefault(key, [])
        self._runs.move_to_end(key)
        runs.append(change)
        del runs[:-_MAX_RUNS]
        if len(self._runs) > _MAX_CELLS:
            self._runs.popitem(last=False)
        return runs


def change_words(change: Totals) -> str:
    """Return what a cell changed: ``+1 tensor (+32.0 KiB), +11 other objects, native heap +36.2 KiB``."""
    n_bytes = f" ({signed_bytes(change.tensor_bytes)})" if change.tensor_bytes else ""
    others = signed_words(change.n_objects - change.n_tensors, "other objects")
    tensors = signed_words(change.n_tensors, "tensors")
    return f"{tensors}{n_bytes}, {others}, native heap {signed_bytes(change.heap_bytes)}"
