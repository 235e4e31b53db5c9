"""One check under way: a generator that asks for runs, what its steps share, and that there is one at a time."""

from __future__ import annotations

import ast
import functools
import os
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from leaklab.check.judging import Judgement
from leaklab.cure.applying import ReplaceableCell
from leaklab.decide.verdict import MORE_TIME, MOST_RUNS
from leaklab.errors import CheckRunningError
from leaklab.heap.running import other_threads
from leaklab.heap.source_lines import CellNames
from leaklab.lines.branches import BranchWatch
from leaklab.measure.census import Baseline
from leaklab.measure.level_history import KnownPlace, LengthsAfterRuns
from leaklab.measure.measurement import Measurement, choose_baseline
from leaklab.model import MIN_RUNS, Check, Leak, Settings
from leaklab.model.sentences import RUNS, Progress
from leaklab.runtime.child import Child, Ran, RunRequest
from leaklab.runtime.gc_control import user_has_frozen

if TYPE_CHECKING:
    from leaklab.check.findings import Explained

__all__ = ["Ran", "RunRequest", "Steps"]

Steps = Generator[int | RunRequest, Ran, Check]
"""Yields the number of the run to make (0 for a warm-up) or a request for several, is sent how it went, returns the
record. A single run is asked for by a bare number: a request, being an object, would count as born in the run."""


_LEAST_NANOSECONDS = 500_000
"""A thread that waits in turns of a second uses a tenth of this in a whole check."""
_N_NAMED = 3
_N_FOR_LINES, _ROOM = 2, 1.1
_N_OF_OPEN = 8
"""So many runs tell of the level of the native heap, and of what comes in most runs, what five do not."""
SLOW_SECONDS = 0.6
"""Of a run that takes longer, an explanation costs less than the runs that it may save."""


class ThreadClocks:
    """The processor time of the other threads from now on; of none where the system does not tell."""

    def __init__(self) -> None:
        self._before = {thread: _nanoseconds(thread) for thread in other_threads()}

    def busy(self) -> tuple[str, ...]:
        """Return the names of the threads that were there when this was made, and have run since."""
        return tuple(
            name
            for thread, name in other_threads().items()
            if thread in self._before and _nanoseconds(thread) - self._before[thread] >= _LEAST_NANOSECONDS
        )


def _nanoseconds(thread: int) -> int:
    """Return the processor time of a thread; 0 where the system does not tell, or where it has just ended."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def new_threads_note(measurement: Measurement) -> str:
    """Say how many more threads there are than before the first run; empty where there are none."""
    counts = [checkpoint.n_threads for checkpoint in measurement.checkpoints]
    n_more = counts[-1] - counts[0] if counts else 0
    return f"{n_more} more thread{' runs' if n_more == 1 else 's run'} than before" if n_more > 0 else ""


def thread_words(names: Sequence[str]) -> str:
    """Return ``thread 'loader'`` or ``threads 'a', 'b', 'c' and 2 more``."""
    named = ", ".join(map(repr, names[:_N_NAMED]))
    more = f" and {len(names) - _N_NAMED} more" if len(names) > _N_NAMED else ""
    return f"thread{'s' * (len(names) > 1)} {named}{more}"


class _Interrupted(AbstractContextManager[None]):
    """Hands an interrupt to who makes the runs."""

    def __enter__(self) -> NoReturn:
        raise KeyboardInterrupt

    def __exit__(self, *_raised: object) -> None:
        """There is nothing to leave."""


@dataclass(frozen=True, slots=True)
class Statement:
    """Statements at the top level of a cell that share a line, most often one.

    Attributes:
        nodes: What is compiled together.
        line: First line, 1 for the first of the text; decorators belong to what they decorate.
        end_line: Last line.
        source: Its text as it was written.
    """

    nodes: tuple[ast.stmt, ...]
    line: int
    end_line: int
    source: str


class SplitCell(ReplaceableCell, Protocol):
    """A cell that can be run statement by statement."""

    def by_statement(self, after: Callable[[int], object]) -> AbstractContextManager[Sequence[Statement]]:
        """Run the cell statement by statement inside; yields the statements.

        Args:
            after: Called with -1 before the first statement, and with the place of each after it.
        """


class LoopRuns(Protocol):
    """The runs of a check that are stretches of a loop which goes on."""

    @property
    def has_ended(self) -> bool:
        """Whether the loop has ended: that there are no more runs is nobody's failure."""

    def note(self, places: Iterable[KnownPlace], native_bytes: float, lengths: LengthsAfterRuns) -> None:
        """Hear of the places that grow, of what malloc hands out for them in a run, and of lengths of containers."""

    def note_endless(self, fingerprints: Collection[str]) -> None:
        """Hear which leaks nothing in the code could end."""

    @property
    def has_collected(self) -> bool:
        """Whether all garbage has just been collected."""

    def next_phase(self, phases_done: int, runs_done: int, *, is_open: bool, is_settled: bool) -> int | None:
        """Return the number of runs of the next phase, 0 if the check is over; None: as many as of any check.

        Args:
            phases_done: Phases so far.
            runs_done: Runs so far.
            is_open: Whether it is not decided what grows.
            is_settled: Whether nothing grows, or what grows can be followed by its length when the check is over.
        """

    def end_phase(self, phases_done: int) -> None:
        """Hear that a phase has ended; no heap is frozen now."""

    def tells_after(self, phases_done: int) -> bool:
        """Return whether what grows is to be told already, while more runs are made."""


@dataclass(slots=True)
class CheckSession:
    """One check under way: how it is made, what it has measured, what it may still spend.

    Attributes:
        settings: How often, how long.
        namespace: The dict that the code's global variables live in, the first place to look for holders.
        cell_name: Returns what a notebook calls the cell that a file name stands for; empty for a real file.
        cell: What the front end runs, where that is a cell.
        loop: Where a run is the next stretch of a loop that goes on: has a say in how many; else None.
        among_ranks: Whether other processes make the same runs.
        on_progress: Is told what is known while the check is under way.
        tries_beside: Whether trials of changes are to go on when the check has ended, where that can be.
        trials: What makes these; None where none go on.
        called: What is run, where that is no cell.
        known: Fingerprints of leaks that have been explained before.
        shown: What it was told that grows, before the verdict.
        piles: The types that it was told to pile up, with what each run leaves of them.
        measurement: What was counted in the last attempt; there is none before the first.
        judgement: What the rules say of that; None if nothing was run.
        explained: What grows, as of the last run; None where the heap was not asked since.
        long_graphs: Fingerprints of tensors whose graphs were seen to reach back over more than a run.
        is_doubted: Whether it was not decided of a place, when the heap was last asked, whether the code may end that.
        is_measured: Whether all runs have been made that are counted.
        seconds: The user's code took, warm-ups not counted.
        counting_seconds: Counting took.
        measuring_seconds: All of that took, with the looks at the heap.
        warmup_seconds: The last warm-up took.
        failure: Why the check ended early; empty if it did not.
        full: What the runs kept when there were enough of them; empty if that was not the reason.
        collects: Whether garbage may be collected before counting.
        user_froze: Whether frozen objects have to be listed too.
        cell_freezes: Whether the cell itself freezes objects.
        clocks: Of the other threads.
        branches: Which way the user's code went in the measured runs, where few are made; else None.
    """

    settings: Settings
    namespace: dict[str, Any] | None = None
    cell_name: CellNames = lambda _filename: ""
    cell: SplitCell | None = None
    loop: LoopRuns | None = None
    among_ranks: bool = False
    on_progress: Callable[[Progress], object] | None = None
    tries_beside: bool = False
    trials: Child[Any] | None = None
    called: object = None
    known: frozenset[str] = frozenset()
    shown: tuple[Leak, ...] = ()
    piles: tuple[tuple[str, float], ...] = ()
    measurement: Measurement = field(init=False)
    judgement: Judgement | None = None
    explained: Explained | None = None
    long_graphs: frozenset[str] = frozenset()
    is_doubted: bool = False
    is_measured: bool = False
    seconds: float = 0.0
    counting_seconds: float = 0.0
    measuring_seconds: float = 0.0
    warmup_seconds: float = 0.0
    failure: str = ""
    full: str = ""
    collects: bool = True
    user_froze: bool = field(default_factory=user_has_frozen)
    cell_freezes: bool = False
    clocks: ThreadClocks = field(default_factory=ThreadClocks)
    branches: BranchWatch | None = None

    @property
    def in_loop(self) -> bool:
        """Whether a loop that goes on makes the runs: nothing is switched or tried there."""
        return self.loop is not None

    @property
    def max_runs(self) -> int | None:
        """Upper limit of measured runs. A limit of a billion must not cost memory: room is made before the first."""
        return None if self.settings.max_runs is None else min(self.settings.max_runs, MOST_RUNS)

    @property
    def run_seconds(self) -> float:
        """What a run takes, of the user's code."""
        return self.seconds / self.measurement.n_runs if self.measurement.n_runs else self.warmup_seconds

    @property
    def cost_of_run(self) -> float:
        """The seconds of a run with its counting, which takes longer than most where you have frozen objects."""
        n_runs = self.measurement.n_runs
        return (self.seconds + self.counting_seconds) / n_runs if n_runs else self.warmup_seconds

    @property
    def seconds_left(self) -> float:
        """How long the user's code may still run; further runs take theirs off by themselves.

        The runs that a verdict needs, more while a question is open, may take as long again; two that name the place
        and the lines are made after them.
        """
        n_runs, limit = self.measurement.n_runs, self.settings.max_seconds
        is_open = self.judgement is not None and self.judgement.is_open
        n_needed = n_runs + _N_FOR_LINES if self.is_measured else _N_OF_OPEN if is_open else MIN_RUNS
        most = MORE_TIME * limit + (_N_FOR_LINES * self.run_seconds if self.is_measured else 0.0)
        return max(limit, min(_ROOM * n_needed * self.run_seconds, most)) - self.seconds

    def n_further(self, usual: int) -> int:
        """Return how many further runs of one kind are made, where *usual* are of quick ones."""
        return usual if self.run_seconds <= SLOW_SECONDS else max(usual // 3, 1)

    def tell(self, stage: str, growing: Sequence[Leak] = (), check: Check | None = None, seconds: float = 0.0) -> None:
        """Say what is known so far to whoever wants to hear it."""
        if self.on_progress is None:
            return
        if check is None:
            known = {leak.holder for leak in self.shown}
            self.shown = (*self.shown, *(leak for leak in growing if leak.holder not in known))
        self.on_progress(Progress(stage, self.measurement.n_runs, tuple(growing), check, seconds))

    def tell_piles(self) -> None:
        """Say objects of which types pile up, before it is known what keeps them."""
        if self.on_progress is None or self.judgement is None:
            return
        self.piles = self.judgement.piles()
        if self.piles:
            self.on_progress(Progress(RUNS, self.measurement.n_runs, piles=self.piles))

    def knows(self, leaks: Sequence[Leak]) -> bool:
        """Return whether there are leaks, and each of them has been explained before."""
        return bool(leaks) and all(leak.fingerprint in self.known for leak in leaks)

    @property
    def next_run(self) -> int:
        """Number of the next run."""
        return self.measurement.n_runs + 1

    @property
    def interrupts(self) -> tuple[type[KeyboardInterrupt], ...]:
        """What may be told as `interrupted`: nothing in a loop that goes on, or where other processes run it too."""
        return () if self.in_loop or self.among_ranks else (KeyboardInterrupt,)

    def note(self, ran: Ran, run: str) -> bool:
        """Take in a run; return whether the check goes on."""
        _seconds, failure = ran
        self.failure = f"{failure} in {run}" if failure else ""
        return not failure

    def interrupted(self, where: str) -> Generator[RunRequest, Ran, None]:
        """Take an interrupt of our own work for one of a run: who makes the runs raises it when the report is there."""
        self.note((yield RunRequest(self.next_run, 0, _Interrupted())), where)

    def baseline(self) -> Baseline:
        """Return what sees births from now on; it has to bear what the code does to the collector."""
        return choose_baseline(user_froze=self.user_froze, cell_freezes=self.cell_freezes, collects=self.collects)


_running: dict[int, _Claim] = {}
"""The check under way, by the process: one that was forked during a check has none."""


class _Claim:
    """What a check has while it runs, and gives back whatever ends it."""

    def __init__(self, *, is_of_loop: bool) -> None:
        self._process = os.getpid()
        self._thread = threading.current_thread()
        self._is_of_loop = is_of_loop
        self.is_lent = False
        self.borrower: _Claim | None = None  # the check of a loop that is made meanwhile, one at a time as well
        self._lender: _Claim | None = None

    def take(self) -> None:
        """Let no other check begin; raises `CheckRunningError` if one is under way."""
        other = _running.setdefault(self._process, self)  # one step: no other thread comes between
        if other is self:
            return
        if self._is_of_loop and other.is_lent and other.borrower is None:
            self._lender, other.borrower = other, self
            return
        if other._thread is self._thread:  # noqa: SLF001 - of the same class
            msg = "a check is already running in this thread: checks cannot be nested"
        else:
            msg = f"a check is running in the thread {other._thread.name!r}: start this one when it has ended"  # noqa: SLF001
        raise CheckRunningError(msg)

    def give_back(self) -> None:
        """Let others begin; does nothing for a claim that was refused."""
        if self._lender is not None:
            self._lender.borrower = None
        elif _running.get(self._process) is self:
            del _running[self._process]


@contextmanager
def lent_to_loops() -> Iterator[None]:
    """Let the check of a loop be made inside, while this process's own check measures nothing."""
    claim = _running.get(os.getpid())
    if claim is None:
        yield
        return
    claim.is_lent = True
    try:
        yield
    finally:
        claim.is_lent = False


def one_at_a_time(steps: Callable[..., Steps]) -> Callable[..., Steps]:
    """Return *steps* so that its second caller is refused at the first step, until the first caller's have ended."""

    @functools.wraps(steps)
    def claimed(*args: object, **kwargs: object) -> Steps:
        claim = _Claim(is_of_loop=kwargs.get("in_loop") is not None)
        try:
            claim.take()
            return (yield from steps(*args, **kwargs))
        finally:
            claim.give_back()

    return claimed
