"""Look for the cures of the leaks that a check has found: think of changes, and run the code with them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from types import FunctionType
from typing import Any

from leaklab.check.findings import Explained
from leaklab.check.session import CheckSession, Ran, RunRequest, SplitCell
from leaklab.cure.applying import ReplaceableCell
from leaklab.cure.case import Case
from leaklab.cure.edits import with_changed_cells
from leaklab.cure.source import Program, Proposal
from leaklab.cure.trial import joined, may_be_tried, try_cures
from leaklab.cure.trial_runs import Means
from leaklab.explain.idioms import proposals_for
from leaklab.heap.source_lines import CellNames, current_lines, short_path
from leaklab.model import Check, Leak
from leaklab.model.cure import Cure
from leaklab.model.sentences import CHANGES
from leaklab.runtime.child import Child, begin_child, why_no_child
from leaklab.text import format_seconds

_FEWEST_JOINED, _MOST_JOINED = 2, 2
_MOST_LEAKS = 5
"""Of more leaks than these the small ones get their advice only."""
_MOST_TRIED_SECONDS = 3.0
"""Of a run that takes longer, trials that would keep the notebook busy are made on request only."""
_TRIALS_SHARE, _LEAST_TRIAL_SECONDS = 2.0, 5.0
"""So many times as long as the counted runs, and at least so many seconds, may trials take that nobody asked for."""
_ROUNDS, _MOST_TRIAL_RUNS = 3, 8
"""So many trials, one behind the other, there is time for in a copy of the process, however long a run takes."""
_IDLE_SECONDS, _IDLE_RUNS = 20.0, 10.0
"""A copy that has computed nothing for so many seconds and runs waits for what it will never get."""
Cures = dict[str, tuple[Cure, ...]]
"""For the fingerprint of a leak what was tried."""


def find_cures(
    session: CheckSession,
    explained: Explained,
    checked: SplitCell | FunctionType | None,
    known: Callable[[Cures], Check],
) -> Generator[int | RunRequest, Ran, Cures]:
    """Try the changes that would end the leaks, where the settings want that; not after a run that failed.

    Where the session tries beside, a copy of the process makes the trials, and nothing is waited for.

    Args:
        session: No phase of its measurement is open.
        explained: The leaks, with their places and lines.
        checked: The cell or the function that is checked; None where that is none of Python's.
        known: Returns the record with the cures that were found.

    Returns:
        For the fingerprint of a leak its cures, best first.
    """
    settings, per_run = session.settings, session.run_seconds
    is_wanted = settings.sites is not False if settings.cure is None else settings.cure
    if not is_wanted or session.in_loop or session.failure or not _curable(explained):
        return {}
    unasked = max(_TRIALS_SHARE * session.measuring_seconds, _LEAST_TRIAL_SECONDS)
    has_child = not (why_no_child() or getattr(checked, "awaits", False))
    obstacle = f"a run takes {format_seconds(per_run)}" if per_run > _MOST_TRIED_SECONDS and not has_child else ""
    obstacle = "if a trial failed on one rank, the other ranks would wait for it" if session.among_ranks else obstacle
    # Beside this process a trial keeps nobody from reading what has been found: it has the time of the check once more.
    seconds = session.seconds_left if settings.cure or not has_child else settings.max_seconds
    seconds = seconds if settings.cure else min(seconds, unasked)
    obstacle = f"{obstacle}: --cure (cure=True) tries it" if obstacle and settings.cure is None else ""
    is_beside = session.tries_beside and has_child and settings.cure is None and not obstacle
    if is_beside:  # it keeps nobody from anything
        seconds = max(settings.max_seconds, _ROUNDS * _MOST_TRIAL_RUNS * per_run)
    trials = partial(_trials, session, explained, checked, seconds, obstacle, is_beside=is_beside)
    if is_beside:
        with suppress(OSError):  # of a system that starts no other process: then they are made here
            idle_seconds = _IDLE_SECONDS + _IDLE_RUNS * per_run
            session.trials = yield from begin_child(trials, idle_seconds=idle_seconds)
            return {}
    if not obstacle:
        session.tell(CHANGES, explained.leaks, known({}), seconds)
    return (yield from trials())


def _trials(
    session: CheckSession,
    explained: Explained,
    checked: SplitCell | FunctionType | None,
    seconds: float,
    obstacle: str,
    *,
    is_beside: bool,
) -> Generator[int | RunRequest, Ran, Cures]:
    """Run the code again with the changes that would end its leaks.

    Args:
        session: What is checked, and how it was measured.
        explained: The leaks.
        checked: The cell or the function.
        seconds: What all trials together may take.
        obstacle: Why nothing is to be tried, one clause; empty if trials are wanted.
        is_beside: Whether this is done in a copy of the process.
    """
    measurement = session.measurement
    program = program_of(session.namespace, checked, session.cell_name)
    proposed = []
    for leak in _curable(explained)[:_MOST_LEAKS]:
        keeping = tuple(place for found in explained.lines for place in found.keeping.get(leak.fingerprint, ()))
        making = tuple(place for found in explained.lines for place in found.making.get(leak.fingerprint, ()))
        case = Case(leak, program, keeping, making)
        alone = proposals_for(case)
        # The best one first, by itself: where a single call lets everything go, nothing else need be written.
        proposed.append((leak, (*alone[:1], *_for_all_holders(case, alone), *alone[1:])))
    means = Means(
        program=program,
        cell=checked if not isinstance(checked, FunctionType) else None,
        heap=measurement.heap,
        collects=measurement.collects,
        addresses=frozenset(one for address in explained.addresses for one in address.chain),
        next_run=measurement.n_runs + 1,
        seconds=seconds,
        obstacle=obstacle,
        run_seconds=session.run_seconds,
        reported_bytes=sum(leak.bytes_per_run for leak in explained.leaks),
        is_copy=is_beside,
    )
    cures = yield from try_cures(proposed, means)
    return {name: with_changed_cells(tried, session.cell_name, program.source) for name, tried in cures.items()}


def _curable(explained: Explained) -> list[Leak]:
    """Return the leaks that a change of the program may end: not what runs an older text of its class."""
    return [leak for leak in explained.leaks if leak.fingerprint not in explained.of_older_code]


class TrialsBeside:
    """Trials that go on in a copy of the process while this one does something else.

    Called, it waits for them and returns the record with the cures that held. An interrupt of the wait ends the trials.

    Args:
        child: Makes the trials.
        check: What was found before them.

    Attributes:
        check: What is known by now.
    """

    def __init__(self, child: Child[Cures], check: Check) -> None:
        self._child, self.check = child, check
        self._thread = threading.Thread(target=self._wait, name="leaklab trials", daemon=True)
        self._then: Callable[[Check], object] | None = None

    @property
    def are_over(self) -> bool:
        """Whether there is nothing to wait for."""
        return self._child.is_over and not self._thread.is_alive()

    def begin(self, then: Callable[[Check], object]) -> None:
        """Wait in a thread, and call *then* there with the record."""
        self._then = then
        self._thread.start()

    def __call__(self) -> Check:
        """Return the record when the trials are over."""
        try:
            if self._thread is not threading.current_thread():
                self._thread.join()
        except BaseException:
            self._child.kill()
            raise
        return self.check

    def __eq__(self, other: object) -> bool:
        return self() == (other() if isinstance(other, TrialsBeside) else other)

    def __hash__(self) -> int:
        return hash(self())

    def __reduce__(self) -> tuple[Callable[[Check], Check], tuple[Check]]:
        """Be copied and pickled as the record that is waited for."""
        return _same, (self(),)

    def _wait(self) -> None:
        self._child.wait()
        if self._child.answer is not None:
            self.check = replace(self.check, leaks=with_cures(self.check.leaks, self._child.answer))
        if self._then is not None:
            self._then(self.check)


def _same(check: Check) -> Check:
    return check


def _for_all_holders(case: Case, of_first: Sequence[Proposal]) -> Iterator[Proposal]:
    """Yield changes for all that keep what leaks, made together: one for a single holder leaves it to the others.

    Args:
        case: The leak.
        of_first: What is proposed for its first holder.
    """
    leak = case.leak
    others = (Case(replace(leak, holder=one, holders=()), case.program, (), case.making) for one in leak.holders[1:])
    rows = [[one for one in found if may_be_tried(one)] for found in (of_first, *map(proposals_for, others))]
    if len(rows) < _FEWEST_JOINED:
        return
    for proposals in islice(zip(*rows, strict=False), _MOST_JOINED):
        together: Proposal | None = proposals[0]
        for one in proposals[1:]:
            together = None if together is None else joined(together, one)
        if together is not None:
            yield together


def program_of(
    namespace: dict[str, Any] | None, checked: ReplaceableCell | FunctionType | None, cell_name: CellNames
) -> Program:
    """Return what is checked as a program that can be changed."""

    def source(filename: str) -> str | None:
        return "".join(current_lines(filename)) or None

    def place(filename: str, number: int) -> str:
        cell = cell_name(filename)
        return f"{cell}, line {number}" if cell else f"{short_path(filename)}:{number}"

    filename = function = ""
    if isinstance(checked, FunctionType):
        filename, function = checked.__code__.co_filename, checked.__name__
    elif checked is not None:
        filename = checked.filename
    return Program({} if namespace is None else namespace, source, place, filename, function)


def with_cures(leaks: tuple[Leak, ...], cures: dict[str, tuple[Cure, ...]]) -> tuple[Leak, ...]:
    """Return *leaks* with the cures that were found for them."""
    return tuple(replace(leak, cures=cures.get(leak.fingerprint, ())) for leak in leaks)
