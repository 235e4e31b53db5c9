"""The whole check on one page: count, decide, explain, conclude.

`check_steps` is a generator: it yields whenever the user's code is to be run once, and is sent a `Ran` that says how
that went. So the same page serves a function, a cell, and a cell that awaits; the front end knows how to run each.
Every step is a function of the session, what has been measured, and of what the steps before it have found.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Collection, Generator
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import Any

from leaklab.check.cures import Cures, TrialsBeside, find_cures
from leaklab.check.explaining import as_far_as_possible, explain, unexplained
from leaklab.check.findings import Explained
from leaklab.check.judging import judge
from leaklab.check.line_search import MAX_TRACED_RUNS, find_lines, whose
from leaklab.check.loop_code import read_loop_code
from leaklab.check.native_caches import discount_caches
from leaklab.check.ranking import apart_from_small
from leaklab.check.record import completed, record_of
from leaklab.check.replaced import find_replaced
from leaklab.check.session import (
    SLOW_SECONDS,
    CheckSession,
    LoopRuns,
    Ran,
    RunRequest,
    SplitCell,
    Steps,
    one_at_a_time,
)
from leaklab.check.statement_runs import find_statements
from leaklab.check.stores_in_c import find_native_lines, name_unseen
from leaklab.decide.growth import NATIVE_FLOOR_BYTES, SURE_RUNS
from leaklab.decide.verdict import (
    DEFAULT_RUNS,
    FOLLOWED_SECONDS,
    MOST_OF_CACHES,
    MOST_RUNS,
    next_phase,
)
from leaklab.lines.branches import BranchWatch
from leaklab.lines.native import require_memray
from leaklab.measure.census import DisturbedError
from leaklab.measure.measurement import Measurement
from leaklab.model import MIN_RUNS, Leak, Outcome, Settings
from leaklab.model.sentences import LINES, RUNS, Progress, pile_words
from leaklab.runtime.gc_control import FROZEN_BY_PYTHON, GcState, user_lets_collect

_SHORT_RUNS, _SHORT_SECONDS = 111, 0.005
"""Where there is no time for so many runs, each of them so long at least, the check has too few looks at the heap to
leave one out."""
_FEWEST_PHASES = 2
_MOST_KEPT = 75_000
"""What grows is followed no further than the explanation takes a second or two for: so many objects, or a fifth of it
in autograd nodes, of which Python must not touch too many."""
_MOST_KEPT_OF_LOOP = 20_000
"""The same of a loop that goes on, which waits meanwhile: about twelve times as long as a collection takes where
nothing but torch has been imported, and in a larger heap less."""
_LEAST_PHASE = 4
"""Fewer runs do not show the pace of what is counted between phases."""
_MOST_WATCHED = 111
"""In so few runs, counts alone do not tell a leak from a cache that still fills: it is watched which way the branches
of the code go."""
_KNOWN = "these leaks are known: neither their lines nor a change were looked for again"
_QUICK_SECONDS, _RATE_ERROR = 0.02, 0.15
"""Of runs that take less than this there are as many as tell how much leaks per run, with so large a standard error."""
_RUNS_OF_KEYS = 8
"""Of a slow cell, where what grows has keys that may come again."""

_Step = Callable[[CheckSession, Explained], Generator[int | RunRequest, Ran, Explained]]
"""Makes further runs, if there is a reason to, and returns what was found with what these tell."""
_MEASURING_STEPS: tuple[_Step, ...] = (discount_caches, find_replaced, name_unseen)
_TRACING_STEPS: tuple[_Step, ...] = (find_lines, find_native_lines, find_statements, read_loop_code)


@one_at_a_time
def check_steps(
    settings: Settings,
    namespace: dict[str, Any] | None,
    cell_name: Callable[[str], str] = lambda _filename: "",
    checked: SplitCell | FunctionType | None = None,
    *,
    called: object = None,
    known: Collection[str] = (),
    in_loop: LoopRuns | None = None,
    among_ranks: bool = False,
    on_progress: Callable[[Progress], object] | None = None,
    beside: Callable[[TrialsBeside], object] | None = None,
) -> Steps:
    """Check what the front end runs whenever this yields.

    Args:
        settings: How often, how long.
        namespace: The dict that the code's global variables live in, the first place to look for holders.
        cell_name: Returns what a notebook calls the cell that a file name stands for; empty for a real file.
        checked: What the front end runs, where that is a cell or a function of Python's: trials change it.
        called: What the front end calls, a function, a partial, a method: a place where paths may begin.
        known: Fingerprints of leaks that have been explained before: where there is no other, that is not done again.
        in_loop: Where a run is the next stretch of a loop that goes on: has a say in how many, and is told the places
            that grow. Nothing is switched or tried there, and the functions that run are traced as well.
        among_ranks: Whether other processes make the same runs: they would wait for one whose trial fails.
        on_progress: Is told what grows while more runs are made, and what was found while more is looked for.
        beside: Is given the trials of changes, which then go on in a copy of the process when this has ended; None:
            they are made before that.

    Returns:
        The record, through ``StopIteration``; also after a failed run, with what was measured until then.

    Raises:
        MissingExtraError: before the first run, if native code is to be named and memray is not installed.
        CheckRunningError: before the first run, if another check is under way in this process.
    """
    if settings.native:
        require_memray()
    state = GcState.now()
    cell = None if isinstance(checked, FunctionType) else checked
    session = CheckSession(
        settings, namespace, cell_name, cell, in_loop, among_ranks, on_progress, beside is not None,
        called=called, known=frozenset(known),
    )  # fmt: skip
    restored: tuple[str, ...] = ()
    try:
        yield from _warm_up(session)
        yield from _measure_undisturbed(session)
        session.is_measured = True
        explained = session.explained or (yield from _explained(session))
        is_known = session.knows(explained.leaks)
        for step in () if is_known else _MEASURING_STEPS:
            explained = yield from as_far_as_possible(session, step(session, explained), explained)
        explained = apart_from_small(explained, settings.min_bytes)
        check = record_of(session, explained)
        if in_loop is not None:
            lengths = session.judgement.lengths if session.judgement is not None else {}
            in_loop.note(explained.addresses, explained.native_bytes, lengths)
        if not session.failure:
            session.tell(LINES, explained.leaks, check)
        # From here on nothing is measured: what tracing does to the figures is in no record.
        if is_known:
            explained = replace(explained, later_notes=(*explained.later_notes, _KNOWN))
        for step in () if is_known else _TRACING_STEPS:
            explained = yield from as_far_as_possible(session, step(session, explained), explained)
        as_completed = partial(completed, check, explained)
        cures: Cures = {}
        try:
            cures = cures if is_known else (yield from find_cures(session, explained, checked, as_completed))
        except session.interrupts:
            yield from session.interrupted("the trials of changes")
    finally:
        restored = state.restore() if in_loop is None else ()
    check = as_completed(cures, restored)
    if session.trials is not None and beside is not None:
        beside(TrialsBeside(session.trials, check))
    return check


def _warm_up(session: CheckSession) -> Generator[int, Ran, None]:
    """Run without measuring: imports, caches and lazy state of the first run are nobody's leak."""
    for number in range(1, session.settings.n_warmups + 1):
        n_frozen = gc.get_freeze_count()
        ran = yield 0
        session.warmup_seconds = ran[0]
        session.cell_freezes = gc.get_freeze_count() > n_frozen + FROZEN_BY_PYTHON
        if not session.note(ran, f"warm-up run {number}"):
            return


def _measure_undisturbed(session: CheckSession) -> Generator[int | RunRequest, Ran, None]:
    """Measure; where the cell freezes or thaws objects, start again with a census that can bear it."""
    started = time.perf_counter()
    most_runs = session.max_runs or MOST_RUNS
    fitting = session.settings.max_seconds / max(session.warmup_seconds, _SHORT_SECONDS)
    is_short = min(most_runs, fitting) < _SHORT_RUNS
    while True:
        session.branches = None if session.in_loop or session.among_ranks else BranchWatch(whose)
        session.collects = user_lets_collect() and not session.cell_freezes
        taker, room = session.baseline(), most_runs + MAX_TRACED_RUNS
        measurement = session.measurement = Measurement(
            room,
            taker,
            collects=session.collects,
            frozen_too=session.user_froze,
            is_short=is_short,
            has_collected=session.loop is not None and session.loop.has_collected,
        )
        try:
            yield from _measure(session, measurement)
        except DisturbedError as disturbed:
            measurement.abandon()
            session.cell_freezes = disturbed.how == "frozen"
            session.user_froze = True  # a cell that thaws would thaw our baseline again: list the heap instead
        else:
            session.measuring_seconds = time.perf_counter() - started
            if measurement.n_runs > _MOST_WATCHED:
                session.branches = None
            return
        finally:
            measurement.abandon()


def _measure(session: CheckSession, measurement: Measurement) -> Generator[int | RunRequest, Ran, None]:
    """Run phase after phase until every question has its answer, or a limit is reached."""
    phases, session.judgement, session.explained, session.long_graphs = 0, None, None, frozenset()
    session.seconds = session.counting_seconds = 0.0
    while not (session.failure or session.full):
        n_runs = _phase_of_loop(session, phases, measurement.n_runs)
        if n_runs is None:
            n_runs = next_phase(
                phases_done=phases,
                runs_done=measurement.n_runs,
                max_runs=session.max_runs,
                seconds_per_run=session.cost_of_run,
                seconds_left=session.seconds_left,
                growing=_is_growing(session),
                is_open=_is_open(session),
                is_sure=_is_sure(session),
            )
        n_runs = _fitting(session, phases, n_runs)
        if not n_runs:
            break
        try:
            yield from _run_phase(session, measurement, n_runs)
            phases += 1
            session.judgement = judge(measurement) if measurement.n_runs else None
            yield from _look_early(session, phases)
        except MemoryError:  # ours: what the user's code raises does not come here
            session.failure = f"memory ran out before the objects of run {measurement.n_runs} were counted"
            session.judgement = None
            return
        except session.interrupts:  # what was found before that is told
            session.judgement = None
            yield from session.interrupted(f"the count after run {measurement.n_runs}")
            return


def _fitting(session: CheckSession, phases: int, n_runs: int) -> int:
    """Return how many of *n_runs* more runs to make; 0 where they would pile up more than is to be explained.

    A short third phase is made in any case: it shows whether growth keeps its pace. A loop does that by itself, but
    that a graph gets longer is seen between two phases only: the second one is as long as there is room for.
    """
    measurement, judgement = session.measurement, session.judgement
    if not session.in_loop:
        is_long = phases > _FEWEST_PHASES or (phases == _FEWEST_PHASES and n_runs > measurement.n_runs)
        return 0 if is_long and measurement.would_keep(n_runs) > _MOST_KEPT else n_runs
    if not phases or measurement.would_keep(n_runs) <= _MOST_KEPT_OF_LOOP:
        return n_runs
    is_seen_once = phases == 1 and judgement is not None and judgement.graph.outcome is Outcome.INCONCLUSIVE
    fitting = int((_MOST_KEPT_OF_LOOP / measurement.n_kept - 1) * measurement.n_runs) if is_seen_once else 0
    return min(fitting, n_runs) if fitting >= _LEAST_PHASE else 0


def _phase_of_loop(session: CheckSession, phases: int, n_runs: int) -> int | None:
    """Return how many runs a loop that goes on wants next; None where it has no say."""
    if session.loop is None:
        return None
    judgement = session.judgement
    # Once a leak is certain, what is in doubt beside it is left to the next check: its line is worth more.
    is_named = session.explained is None or bool(session.explained.leaks)
    is_open = judgement is None or (judgement.is_open and not (judgement.is_certain and is_named))
    is_settled = judgement is not None and (
        not judgement.growing if session.explained is None else session.explained.lies_in(judgement.longer)
    )
    return session.loop.next_phase(phases, n_runs, is_open=is_open, is_settled=is_settled)


def _explained(session: CheckSession) -> Generator[RunRequest, Ran, Explained]:
    """Look for the holders of what grows, unless an interrupt ends that."""
    try:
        return explain(session)
    except session.interrupts:
        yield from session.interrupted("the search for holders")
    piles = () if session.judgement is None else session.judgement.piles()
    return unexplained(session, f"{pile_words(piles) if piles else 'something grows'}, and it is open what keeps it")


def _look_early(session: CheckSession, phases: int) -> Generator[RunRequest, Ran, None]:
    """Explain what grows before the runs are over, where that may save further ones, or where these take long.

    Then it is known early which files of libraries are to be watched: of a cell that gets no more than 40 runs, few are
    left behind the first look of quick ones.
    """
    judgement, measurement = session.judgement, session.measurement
    if session.loop is not None:
        is_certain = phases > 1 or (judgement is not None and judgement.is_certain)  # else the next phase tells more
        is_wanted = session.loop.tells_after(phases) and is_certain and not session.failure
    else:
        is_slow = session.run_seconds > SLOW_SECONDS or session.cost_of_run > FOLLOWED_SECONDS / DEFAULT_RUNS
        looks = measurement.checkpoints  # one only where the first measured run has failed
        is_first = len(looks) > 1 and looks[-2].after_run < SURE_RUNS <= measurement.n_runs
        is_wanted = session.branches is not None and (is_slow or is_first)
    is_wanted = is_wanted and session.collects  # where nobody collects, an explanation would free what piles up
    with measurement.meters.leaving_out():
        session.explained = None
        if session.loop is not None:
            session.loop.end_phase(phases)
        if judgement is None or not (judgement.growing and is_wanted):
            if phases == 1 and session.loop is None:
                session.tell_piles()
            elif session.loop is not None and judgement is not None and is_wanted:
                session.tell(RUNS)  # that nothing grows any more is an answer, too
            return
        session.explained = yield from _explained(session)
        session.is_doubted = bool(session.explained.suspects)
        if session.branches is not None:
            session.branches.watch_too(session.explained.owners)
        if session.loop is not None:  # of a loop nothing is told that is in doubt
            session.loop.note(session.explained.addresses, session.explained.native_bytes, judgement.lengths)
            session.tell(RUNS, session.explained.leaks)
        else:
            session.tell(RUNS, (*session.explained.leaks, *session.explained.suspects))


def _is_growing(session: CheckSession) -> bool:
    """Return whether anything seems to grow, once the heap was asked: anything that is worth a word."""
    if session.judgement is None or session.explained is None:
        return session.judgement is None or session.judgement.growing
    return bool(session.explained.leaks or session.explained.suspects) or _is_open(session)


def _is_open(session: CheckSession) -> bool:
    """Return whether more runs could answer a question, once the heap was asked: one that is worth a word."""
    if session.judgement is None or session.explained is None:
        is_cache = session.is_doubted and session.measurement.n_runs <= MOST_OF_CACHES
        return session.judgement is None or session.judgement.is_open or is_cache
    is_doubted = bool(session.explained.suspects) and session.run_seconds <= SLOW_SECONDS  # the code may still end it
    is_asked = bool(session.explained.open_questions) and (session.judgement.is_open or is_doubted)
    return is_asked or session.judgement.is_open_of_memory


def _is_sure(session: CheckSession) -> bool:
    """Return whether the counts agree, and the code has nothing that could end the growth.

    Where a run takes long it is enough that nothing of that kind is seen: a library's cache looks the same in twice as
    many runs. Quick cells are run until the caches of most libraries are full, unless the code that fills was seen, or
    the same leaks have been followed for so long before.
    What stopped in the last runs, longer than ever before, may have stopped for good.
    """
    explained, judgement = session.explained, session.judgement
    if explained is None or judgement is None or explained.open_questions:
        return False
    if judgement.has_unread_rise or judgement.has_paused:
        return False
    if session.measurement.n_runs < MIN_RUNS:
        return False
    levels = session.measurement.meters.heap(session.measurement.n_runs)
    if levels is not None:  # before a rule can judge so noisy a level, what no object explains is a question
        known = sum(leak.bytes_per_run for leak in explained.leaks)
        if (levels[-1] - levels[1]) / (len(levels) - 2) - known > max(NATIVE_FLOOR_BYTES, known / 2):
            return False
    if session.run_seconds <= _QUICK_SECONDS and not all(map(_has_rate, explained.leaks)):
        return False
    if explained.is_endless or not (session.run_seconds > SLOW_SECONDS or session.knows(explained.leaks)):
        return explained.is_endless
    is_doubtful = explained.is_emptied or not (explained.is_new or session.measurement.n_runs >= _RUNS_OF_KEYS)
    return bool(explained.leaks) and not is_doubtful


def _has_rate(leak: Leak) -> bool:
    """Return whether the runs tell how much *leak* grows per run: by the standard error of what each has left."""
    counts = leak.kept[:-1]
    if len(counts) < MIN_RUNS or not any(counts):
        return True
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / (len(counts) - 1)
    return math.sqrt(variance / len(counts)) <= _RATE_ERROR * mean


def _run_phase(session: CheckSession, measurement: Measurement, n_runs: int) -> Generator[int | RunRequest, Ran, None]:
    if session.explained is not None:
        measurement.look_again()
    # Made now: an object that is made between two runs would be counted as one that a run made. A list would be taken
    # for a container that grows, from a phase of 9 runs to one of 87, and the whole heap asked who holds it.
    asked = tuple([_asked(session, measurement.n_runs + 1 + place) for place in range(n_runs)])
    measurement.open_phase()
    for wanted in asked:
        number = measurement.n_runs + 1
        measurement.start_run()
        ran = yield wanted
        session.seconds += ran[0]
        if not session.note(ran, f"run {number}"):
            break  # what it left is that of half a run
        before = time.perf_counter()
        measurement.finish_run(ran[0], session.branches.native_bytes if session.branches is not None else 0)
        session.counting_seconds += time.perf_counter() - before
        session.full = measurement.full_words() if number >= MIN_RUNS else ""
        if session.full or session.seconds_left < 0:
            break
    measurement.close_phase()


def _asked(session: CheckSession, number: int) -> int | RunRequest:
    """Return what the front end is asked for run *number*: the run, or the run with its branches watched."""
    if session.branches is None or number > _MOST_WATCHED:
        return number
    return RunRequest(number, 1, session.branches)
