"""Make the runs of trials, so that nothing of them stays: in forked children where that can be, else here.

A trial in this process is followed by bringing everything back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import psutil

from leaklab.cure.applying import ReplaceableCell, applied, begin_anew, remake, run_again
from leaklab.cure.behaviour import Behaviour, Observer, calls_noted, prints_noted, uncaught_noted
from leaklab.cure.edits import NotTriedError, merged
from leaklab.cure.judging import Heap, LevelGain, LevelReader, is_settling, may_be_kept_back
from leaklab.cure.keeping import KeptData, to_the_end
from leaklab.cure.source import Program, Proposal, Remade
from leaklab.errors import ENDS
from leaklab.model.cure import Change
from leaklab.runtime.child import Child, Ran, RunRequest, begin_child, wait_for, why_no_child
from leaklab.runtime.objects import attributes_of, has_base, loaded_type

Result = TypeVar("Result")
_N_WARMUPS = 2
_MOST_PARTS = 3
"""So often the runs of a trial are made again where what they leave may still settle."""
_FILLING_SECONDS = 5.0
"""So long may the runs take that fill what a change leaves in place, before what grows is judged."""
_SLOW_SECONDS = 0.6
"""Of a run that takes longer, two in each half are enough: they are counted exactly, and the wait is long."""
_CHILD_SECONDS, _CHILD_SHARE = 120.0, 10.0
"""So many seconds, and so many times as long as its runs took so far, a child may take."""
_IDLE_SECONDS, _IDLE_RUNS = 3.0, 2.0
"""A child that has computed nothing for so many seconds and runs waits for a thread that only this process has."""

_POOL_SECONDS = 0.01
"""So long a pool of threads gets after each run: what it has not done yet is no leak."""


@dataclass(frozen=True, slots=True)
class Means:
    """What trials need of the check.

    Attributes:
        program: The user's.
        cell: What is checked, if it is a cell.
        heap: Lends the heap.
        collects: Whether garbage is collected before a level is read.
        addresses: Of the objects on the paths of the leaks.
        next_run: Number of the next run.
        seconds: What all trials together may take.
        obstacle: Why nothing is to be tried, one clause; empty if trials are wanted.
        run_seconds: What a run took so far.
        reported_bytes: Bytes per run of all leaks.
        is_written: Whether somebody has written the change: then it is looked whether a run still does anything.
        is_copy: Whether this process is a copy itself: what shows in no copy does not show here either.
    """

    program: Program
    cell: ReplaceableCell | None
    heap: Heap
    collects: bool
    addresses: Collection[int]
    next_run: int
    seconds: float
    obstacle: str = ""
    run_seconds: float = 0.0
    reported_bytes: float = 0.0
    is_written: bool = False
    is_copy: bool = False

    @property
    def n_half(self) -> int:
        """So many runs are in each of the two halves of a trial."""
        return 2 if self.run_seconds > _SLOW_SECONDS else 3

    @property
    def n_runs(self) -> int:
        """So many runs make a trial: two warm-ups, then two halves."""
        return _N_WARMUPS + 2 * self.n_half


Asked = Generator[int | RunRequest, Ran, Result]
"""Yields the numbers of the runs to make, and what is to be waited for."""


@dataclass(slots=True)
class TrialResult:
    """How a program ran, changed or not: plain numbers and words, as a child sends them.

    Attributes:
        failure: The name of what it raised.
        refused: Why it was not run to its end, one clause.
        ended_by: What ended all runs, an interrupt.
    """

    gain: LevelGain | None = None
    behaviour: Behaviour | None = None
    failure: str = ""
    n_runs: int = 0
    refused: str = ""
    ended_by: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is run in one trial.

    Attributes:
        proposals: Whose changes are made together; none for the unchanged code.
        is_control: Whether the code runs unchanged all the same, with what *proposals* need kept.
        n_parts: So often the runs are made; what the last ones add is judged.
    """

    proposals: tuple[Proposal, ...] = ()
    is_control: bool = False
    n_parts: int = 1

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes of the code.

        Raises:
            NotTriedError: if two of them write different things into one line.
        """
        return () if self.is_control else changes_of(self.proposals)


class TrialRuns:
    """Makes them.

    Attributes:
        in_children: Whether in children; it may be set to False.
        longest: Seconds that the longest trial took.
    """

    def __init__(self, means: Means) -> None:
        self._means = means
        self._number = means.next_run
        self.longest = 0.0
        self._observer = Observer(means.heap, means.program.namespace)
        # Code that awaits needs the loop of this process, and a pool of threads has its threads here only.
        self._has_pool = _has_pool(means.program.namespace)
        needs_us = (means.cell is not None and means.cell.awaits) or self._has_pool
        self.in_children = not needs_us and not why_no_child()
        self._at_work: dict[Trial, tuple[Child[TrialResult], float]] = {}

    def close(self) -> None:
        """End what is at work, and let go of everything of the user's."""
        self.end_children()
        del self._observer

    def unchanged(self) -> Asked[str]:
        """Run the code once as it is; return what it raised."""
        _seconds, failure = yield self._next()
        return failure

    def _next(self) -> int:
        self._number += 1
        return self._number - 1

    def is_at_work(self, trial: Trial) -> bool:
        """Return whether a child makes the runs of *trial* already, or has made them."""
        return trial in self._at_work

    def of(self, trial: Trial) -> Asked[TrialResult]:
        """Make the runs of one trial, in a child where that can be; the user's data are as before it."""
        if self.in_children:
            result = yield from self._from_child(trial)
        else:
            started = time.perf_counter()
            result = yield from self._runs_here(trial)
            if result.failure in ENDS:
                result.ended_by = result.failure
            self.longest = max(self.longest, time.perf_counter() - started)
        return result

    def _from_child(self, trial: Trial) -> Asked[TrialResult]:
        if trial not in self._at_work:
            yield from self.begin_children([trial])
        if trial not in self._at_work:
            return TrialResult(refused="the system could not start another process")
        child, started = self._at_work.pop(trial)
        try:
            ended_by = yield from wait_for([child], self._number)
        finally:
            child.kill()
        self.longest = max(self.longest, time.perf_counter() - started)
        if child.answer is None:
            return TrialResult(refused=child.failure, ended_by=ended_by)
        return child.answer

    def begin_children(self, trials: Iterable[Trial]) -> Asked[None]:
        """Begin the first of *trials*, and as many of the others as there are cores for."""
        for trial in trials if self.in_children else ():
            n_at_work = sum(not child.is_over for child, _started in self._at_work.values())
            if trial in self._at_work or (n_at_work and n_at_work >= _most_at_once()):
                continue
            n_runs = trial.n_parts * 2 * self._means.n_runs + self._n_filling(trial)
            try:
                child = yield from begin_child(
                    partial(self._runs_here, trial),
                    seconds=_CHILD_SECONDS + _CHILD_SHARE * n_runs * self._means.run_seconds,
                    idle_seconds=_IDLE_SECONDS + _IDLE_RUNS * self._means.run_seconds,
                )
            except OSError:
                return
            self._at_work[trial] = child, time.perf_counter()

    def end_children(self) -> None:
        """End what is at work."""
        while self._at_work:
            self._at_work.popitem()[1][0].kill()

    def _runs_here(self, trial: Trial) -> Asked[TrialResult]:
        means, proposals = self._means, trial.proposals
        kept = None
        try:
            changes = trial.changes
            # A child takes its data with it. To a check its unchanged runs are runs like the others.
            if (proposals or means.is_written) and not self.in_children:
                kept = KeptData(means.program.namespace, means.addresses, means.heap)  # type: ignore[arg-type]  # a dict
                kept.keep_all([name for one in proposals for name in one.emptied])
            again = tuple(dict.fromkeys(name for one in proposals for name in one.again))
            if failure := self._run_cells_again(again, changes):
                return TrialResult(failure=failure)
            if self.in_children and not trial.is_control:
                for name in dict.fromkeys(name for one in proposals for name in one.begun):
                    begin_anew(name, means.program)
            done = self._remake([one for each in proposals for one in each.remade]) if changes else frozenset()
            to_do = [one for one in changes if one.filename not in again and (one.filename, one.line) not in done]
            with applied(to_do, means.program, means.cell):
                return (yield from self._parts(trial, is_changed=bool(changes)))
        except NotTriedError as refused:
            return TrialResult(refused=str(refused))
        finally:
            if kept is not None:
                to_the_end(kept.put_back)
            del kept

    def _run_cells_again(self, filenames: Sequence[str], changes: Sequence[Change]) -> str:
        """Run cells that ran once, with their *changes*; return the name of what one of them raised.

        Raises:
            NotTriedError: in this process, where nothing could take that back.
        """
        if filenames and not self.in_children:
            msg = "it changes what ran once, and there is no copy of the process in which that could run again"
            raise NotTriedError(msg)
        try:
            for filename in filenames:
                run_again(filename, changes, self._means.program)
        except NotTriedError:
            raise
        except Exception as raised:  # noqa: BLE001 - the user's
            return type(raised).__name__
        if filenames:
            self._observer.look_again()
        return ""

    def _remake(self, remade: Sequence[Remade]) -> frozenset[tuple[str, int]]:
        """Put containers of another kind in the places of *remade*; return the lines of the changes that do so.

        Raises:
            NotTriedError: in this process, where nothing could take that back.
        """
        if remade and not self.in_children:
            msg = "it changes how a container was made, and there is no copy of the process in which to make it anew"
            raise NotTriedError(msg)
        for one in remade:
            remake(one, self._means.program)
        return frozenset(line for one in remade for line in one.lines)

    def _n_filling(self, trial: Trial) -> int:
        """Return how many runs to make until a window that the change leaves is full; 0 where one trial fills it."""
        wanted = 0 if trial.is_control else max((one.full_after for one in trial.proposals), default=0)
        is_short = wanted <= _FILLING_SECONDS / max(self._means.run_seconds, 1e-9)
        return wanted if wanted > self._means.n_runs and is_short else 0

    def _parts(self, trial: Trial, *, is_changed: bool) -> Asked[TrialResult]:
        """Make the runs as often as it takes; the code is in place."""
        n_filling = self._n_filling(trial)
        n_done, n_parts = 0, trial.n_parts + (n_filling > 0)
        uncaught: set[str] = set()
        with uncaught_noted(uncaught):
            while n_done < n_parts:
                result = yield from self._measured(is_first=not n_done)
                if result.gain is None:
                    break
                n_done += 1
                if n_filling and n_done == 1:
                    failure = yield from self._filled(n_filling - self._means.n_runs)
                    if failure:
                        return TrialResult(failure=failure)
                may_settle = may_be_kept_back(result.gain) or (n_done == 1 and is_settling(result.gain))
                if is_changed and n_done < _MOST_PARTS and may_settle:
                    n_parts = max(n_parts, n_done + 1)
        if result.behaviour is not None:
            result.behaviour = replace(result.behaviour, uncaught=frozenset(uncaught))
        result.n_runs = n_done * self._means.n_runs + max(0, n_filling - self._means.n_runs)
        if self._means.is_written and result.behaviour is not None:
            called: set[str] = set()
            _seconds, result.failure = yield RunRequest(self._next(), 1, calls_noted(called))
            result.behaviour = replace(result.behaviour, called=frozenset(called))
        return result

    def _filled(self, n_runs: int) -> Asked[str]:
        """Make so many runs unmeasured; return the name of what the code raised."""
        for _number in range(n_runs):
            _seconds, failure = yield self._next()
            if failure:
                return failure
        return ""

    def _measured(self, *, is_first: bool) -> Asked[TrialResult]:
        reader = LevelReader(self._means.heap, collects=self._means.collects)
        self._observer.begin()
        printed: list[str] = []
        n_half, look = self._means.n_half, reader.look
        for part, (n_runs, read) in enumerate(((1, reader.begin), (1, look), (n_half, look), (n_half, look))):
            for number in range(n_runs):
                # Noted before anything is measured: the notes themselves would be what a run has left.
                is_noted = is_first and part == 1 and self.in_children
                with prints_noted(printed) if is_noted else nullcontext():
                    _seconds, failure = yield self._next()
                if failure:
                    return TrialResult(failure=failure)
                if self._has_pool:
                    time.sleep(_POOL_SECONDS)
                if n_runs == n_half and not number:
                    reader.note_first_run()
            if is_first and n_runs == 1:  # with what a run before has left, and without
                self._observer.note_gradients()
            read()
        return TrialResult(reader.gain(2 * n_half), replace(self._observer.end(), printed=tuple(printed)))


def _has_pool(namespace: Mapping[str, object]) -> bool:
    """Return whether a variable is a pool whose threads run: in a child what is given to the pool is never done."""
    kind = loaded_type("concurrent.futures.thread", "ThreadPoolExecutor")
    return kind is not None and any(
        has_base(type(value), kind) and attributes_of(value).get("_threads") for value in list(namespace.values())
    )


def changes_of(proposals: Iterable[Proposal]) -> tuple[Change, ...]:
    """Return the changes of all *proposals*.

    Raises:
        NotTriedError: if two of them write different things into one line.
    """
    return merged([change for one in proposals for change in one.changes])


def _most_at_once() -> int:
    """Return how many children may be at work: one a core, but only one where each could not have all that we have."""
    n_cores = len(os.sched_getaffinity(0))
    has_room = psutil.virtual_memory().available > n_cores * psutil.Process().memory_info().rss
    return n_cores if has_room else 1
