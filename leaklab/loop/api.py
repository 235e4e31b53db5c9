"""`leaklab.monitor`, `leaklab.steps` and `leaklab.watch_calls`: watch a loop that runs once.

A check cannot look into another process, and a worker of a pool or of a DataLoader is one. But it does one thing again
and again: that is a loop, and a monitor inside of it sees what a monitor of any loop sees. What it finds comes home as
a file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from leaklab.files import FilePath
from leaklab.loop.monitor import Monitor
from leaklab.model.loop import StateChange
from leaklab.model.ranks import UNNUMBERED
from leaklab.ranks.gathering import record_here
from leaklab.render.base import write_text
from leaklab.reports.ranks import rank_to_json
from leaklab.runtime.objects import attributes_of, loaded_variables

Item = TypeVar("Item")


def monitor(
    name: str = "",
    *,
    total_steps: int | None = None,
    namespace: dict[str, Any] | None = None,
    roots: Mapping[str, object] | None = None,
    overhead: float = 0.01,
    first_step: int | None = None,
    on_change: Callable[[StateChange], object] | None = None,
    fail: bool = False,
    quiet: bool = False,
    group: Any = None,
    group_timeout: float = 300.0,
) -> Monitor:
    """Return a monitor of a loop that runs once: it says what grows, since which step, who holds it, and when it dies.

    Args:
        name: What to call the loop.
        total_steps: Steps of the whole loop; it says whether a growth matters before the end. None if nobody knows.
        namespace: The variables among which holders are looked for first; by default the caller's globals.
        roots: Objects by the names they shall have in what is reported, such as ``{"trainer": trainer}``; held weakly.
        overhead: The share of the loop's time that watching may take in the long run. A check of a stretch takes some
            seconds, in pauses; the first is made in any case.
        first_step: The first check begins after so many steps, earlier where *total_steps* is small. By default
            after ten steps and five seconds, or after 200 steps, whichever is first.
        on_change: Called with each `StateChange`; what it raises ends the loop.
        fail: Whether to raise `LeakFound` when a leak is certain and matters.
        quiet: Whether nothing is printed; otherwise one line for each change of a state.
        group: The ranks that run this loop, a ``torch.distributed.ProcessGroup``, or True for all of the job: they
            check the same stretches, and look at the same steps. Each of them has to be given it.
        group_timeout: So many seconds a rank waits at such a step for the others; then it goes on alone.

    Raises:
        TypeError: if an argument is of the wrong type, or a root cannot be referred to weakly.
        ValueError: if a number is out of range.

    Example::

        with leaklab.monitor(total_steps=100_000) as watch:
            for batch in loader:
                train(batch)
                watch.step()
        watch.report
    """
    variables = sys._getframe(1).f_globals if namespace is None else namespace  # noqa: SLF001 - the caller's globals
    return Monitor(
        name,
        total_steps=total_steps,
        namespace=variables,
        roots=roots,
        overhead=overhead,
        first_step=first_step,
        on_change=on_change,
        fail=fail,
        quiet=quiet,
        group=group,
        group_timeout=group_timeout,
    )


class WatchedSteps(Generic[Item]):
    """Items of a loop with a monitor around them; `leaklab.steps` makes it.

    Attributes:
        monitor: Watches from the first item to the last, or until the loop is left.
    """

    def __init__(self, items: Iterable[Item], watch: Monitor) -> None:
        self._items = items
        self.monitor = watch

    def __iter__(self) -> Iterator[Item]:
        with self.monitor:
            yield from self.monitor.steps(self._items)


def steps(
    items: Iterable[Item],
    name: str = "",
    *,
    total_steps: int | None = None,
    namespace: dict[str, Any] | None = None,
    overhead: float = 0.01,
    first_step: int | None = None,
    on_change: Callable[[StateChange], object] | None = None,
    fail: bool = False,
    quiet: bool = False,
    group: Any = None,
    group_timeout: float = 300.0,
) -> WatchedSteps[Item]:
    """Return *items*, to be gone through once, with a monitor around the loop: ``for batch in leaklab.steps(loader):``.

    A loop of several epochs has one monitor for all of them: ``for batch in watch.steps(loader)`` inside of
    ``with leaklab.monitor() as watch``.

    Args:
        items: Batches, epochs, numbers: a step of the loop is made with each.
        name: As of `monitor`, like all that follows.
        total_steps: By default the length of *items*, if they have one.
        namespace: The variables among which holders are looked for first.
        overhead: The share of the loop's time that watching may take in the long run.
        first_step: The first check begins after so many steps.
        on_change: Called with each `StateChange`.
        fail: Whether to raise `LeakFound` when a leak is certain and matters.
        quiet: Whether nothing is printed.
        group: The ranks that run this loop.
        group_timeout: So many seconds a rank waits for the others.

    Raises:
        TypeError: if *items* cannot be gone through, or another argument is of the wrong type.
        ValueError: if a number is out of range.
    """
    if not hasattr(type(items), "__iter__"):
        msg = f"leaklab.steps goes through batches or other items, not {type(items).__name__}"
        raise TypeError(msg)
    if total_steps is None:
        try:
            total_steps = len(items) or None  # type: ignore[arg-type]  # most have a length
        except TypeError:
            total_steps = None
    variables = sys._getframe(1).f_globals if namespace is None else namespace  # noqa: SLF001 - the caller's globals
    watch = Monitor(
        name,
        total_steps=total_steps,
        namespace=variables,
        overhead=overhead,
        first_step=first_step,
        on_change=on_change,
        fail=fail,
        quiet=quiet,
        group=group,
        group_timeout=group_timeout,
    )
    return WatchedSteps(items, watch)


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_watches: dict[tuple[int, str, str], _CallsHere] = {}
"""The loops of this process, by the process, the folder and the function: a task may bring a new copy of each."""
_EXIT_PRIORITY = 100
"""Before the queues of the worker are closed."""
_FIRST_FILE = 64
"""After so many calls the first file is written, and then whenever there are twice as many: some workers are killed."""


def watch_calls(
    function: Callable[Arguments, Result], folder: FilePath, *, first_step: int | None = None, overhead: float = 0.01
) -> WatchedCalls[Arguments, Result]:
    """Return *function* for worker processes: each watches its own calls, and writes what it finds into *folder*.

    A call is a step of a loop (see `leaklab.monitor`). Give it to a pool instead of the function itself, or to a
    DataLoader as ``collate_fn``; `leaklab.merge` makes one report of the files. In the process that makes it nothing is
    watched.

    Args:
        function: What the workers call. As for any pool, it must be possible to pickle it.
        folder: Where each worker writes ``worker_{pid}.json``, now and then and when it ends; it is made if missing.
        first_step: The first check begins after so many calls.
        overhead: The share of a worker's time that watching may take in the long run.

    Raises:
        TypeError: if *function* cannot be called.

    Example::

        with ProcessPoolExecutor() as pool:
            results = list(pool.map(leaklab.watch_calls(work, "workers"), items))
        leaklab.merge("workers")
    """
    if not callable(function):
        msg = f"watch_calls needs a function, not {type(function).__name__}"  # type: ignore[unreachable]
        raise TypeError(msg)
    return WatchedCalls(function, folder, first_step, overhead)


class WatchedCalls(Generic[Arguments, Result]):
    """A function whose calls are watched in every process but its own; `leaklab.watch_calls` makes it."""

    def __init__(
        self, function: Callable[Arguments, Result], folder: FilePath, first_step: int | None, overhead: float
    ) -> None:
        self._function = function
        self._folder = str(Path(folder).absolute())
        self._first_step, self._overhead = first_step, overhead
        self._home = os.getpid()

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Call the function."""
        result = self._function(*args, **kwargs)
        if os.getpid() != self._home:
            self._calls().note()
        return result

    def __repr__(self) -> str:
        return f"<leaklab.WatchedCalls of {self._name}>"

    @property
    def _name(self) -> str:
        found = getattr(self._function, "__qualname__", None)
        return found if type(found) is str else type(self._function).__name__

    def _calls(self) -> _CallsHere:
        key = (os.getpid(), self._folder, self._name)
        found = _watches.get(key)
        if found is None:
            variables = getattr(self._function, "__globals__", None)
            namespace = variables if type(variables) is dict else attributes_of(self._function)
            found = _watches[key] = _CallsHere(self._name, self._folder, namespace, self._first_step, self._overhead)
        return found


class _CallsHere:
    """The calls of one function in this process."""

    def __init__(
        self, name: str, folder: str, namespace: dict[str, Any], first_step: int | None, overhead: float
    ) -> None:
        self._path = Path(folder) / f"worker_{os.getpid()}.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._n, self._next_file = 0, _FIRST_FILE
        self._watch = Monitor(
            name, namespace=namespace, first_step=first_step, overhead=overhead, on_change=self._write, quiet=True
        )
        self._watch.start()
        Finalize(None, self._end, exitpriority=_EXIT_PRIORITY)  # multiprocessing ends a worker without `atexit`

    def note(self) -> None:
        """Note that the function was called once more."""
        self._watch.step()
        self._n += 1
        if self._n >= self._next_file:
            self._next_file *= 2
            self._write()

    def _end(self) -> None:
        self._watch.stop()
        self._write()

    def _write(self, _change: StateChange | None = None) -> None:
        record = record_here(monitor=self._watch.record, label=_worker_words(), rank=UNNUMBERED)
        write_text(self._path, rank_to_json(record))


def _worker_words() -> str:
    """Return what this worker is called: ``DataLoader worker 1``, ``worker process 4711``."""
    info = loaded_variables("torch.utils.data._utils.worker").get("_worker_info")
    return f"worker process {os.getpid()}" if info is None else f"DataLoader worker {info.id}"
