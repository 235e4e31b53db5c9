"""The whole check on one page: count, decide, explain, conclude.

`check_steps` is a generator: it yields whenever the user's code is to be run once, and is sent a `Ran` that says how
that went. So the same page serves a function, a cell, and a cell that awaits; the front end knows how to run each.
"""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import partial
from types import FunctionType
from typing import Any

import psutil

from leaklab.check.cures import find_cures, with_cures
from leaklab.check.explained import Explained, apart_from_small, explain_nothing
from leaklab.check.explaining import explain_growth
from leaklab.check.extra_runs import MAX_TRACED_RUNS, NOTHING, FoundLines, find_lines, find_native_lines, with_lines
from leaklab.check.judging import Judgement, judge
from leaklab.check.memory_shares import with_rests
from leaklab.check.native_caches import discount_caches
from leaklab.check.one_check import one_at_a_time
from leaklab.check.other_threads import ThreadClocks, new_threads_note, thread_words
from leaklab.check.process_leaks import children_note
from leaklab.check.replaced_places import find_replaced
from leaklab.check.run_rows import run_rows
from leaklab.check.statement_runs import FoundStatements, SplitCell, find_statements
from leaklab.check.steps import Ran, RunRequest, Steps
from leaklab.check.unseen_holders import name_unseen
from leaklab.collect.census import Baseline, DisturbedError
from leaklab.collect.holder_lengths import HolderLengths
from leaklab.collect.measurement import Measurement, choose_baseline
from leaklab.collect.native_lines import require_memray
from leaklab.decide.verdict import MOST_RUNS, conclude, next_phase
from leaklab.model import MIN_RUNS, Check, Settings
from leaklab.model.cure import Cure
from leaklab.runtime.gc_control import FROZEN_BY_PYTHON, GcState, user_has_frozen, user_lets_collect
from leaklab.text import format_seconds
from leaklab.version import environment

_SHORT_RUNS, _SHORT_SECONDS = 111, 0.005
"""With fewer runs, or longer ones, the check has too few looks at the heap to leave one out."""
_FEWEST_PHASES = 2
_MOST_KEPT = 75_000
"""What grows is followed no further than the explanation takes a second or two for: so many objects, or a fifth of it
in autograd nodes, of which Python must not touch too many."""
_NO_MEMORY = "what runs made stays alive, and no memory was left to look for its holder: free some, or allow fewer runs"


@dataclass(slots=True)
class _Progress:
    """What one check knows while it runs."""

    settings: Settings
    among_ranks: bool = False
    seconds: float = 0.0  # of the user's code, warm-ups not counted
    counting_seconds: float = 0.0
    measuring_seconds: float = 0.0  # of all that was counted, with the looks at the heap
    warmup_seconds: float = 0.0
    failure: str = ""
    collects: bool = True
    user_froze: bool = False
    cell_freezes: bool = False
    full: str = ""
    clocks: ThreadClocks = field(default_factory=ThreadClocks)

    @property
    def max_runs(self) -> int | None:
        """Upper limit of measured runs. A limit of a billion must not cost memory: room is made before the first."""
        return None if self.settings.max_runs is None else min(self.settings.max_runs, MOST_RUNS)

    def cost_of_run(self, n_runs: int) -> float:
        """Return the seconds of a run with its counting, which takes longer than most where you have frozen objects."""
        return (self.seconds + self.counting_seconds) / n_runs if n_runs else self.warmup_seconds

    def note(self, ran: Ran, run: str) -> bool:
        """Take in a run; return whether the check goes on."""
        _seconds, failure = ran
        self.failure = f"{failure} in {run}" if failure else ""
        return not failure


@one_at_a_time
def check_steps(
    settings: Settings,
    namespace: dict[str, Any] | None,
    cell_name: Callable[[str], str] = lambda _filename: "",
    checked: SplitCell | FunctionType | None = None,
    *,
    in_loop: HolderLengths | None = None,
    among_ranks: bool = False,
) -> Steps:
    """Check what the front end runs whenever this yields.

    Args:
        settings: How often, how long.
        namespace: The dict that the code's global variables live in, the first place to look for holders.
        cell_name: Returns what a notebook calls the cell that a file name stands for; empty for a real file.
        checked: What the front end runs, where that is a cell or a function of Python's: trials change it.
        in_loop: Is told the places that grow, where a run is the next stretch of a loop that goes on: nothing is
            switched or tried there, and the functions that run are traced as well.
        among_ranks: Whether other processes make the same runs: they would wait for one whose trial fails.

    Returns:
        The record, through ``StopIteration``; also after a failed run, with what was measured until then.

    Raises:
        MissingExtraError: before the first run, if native code is to be named and memray is not installed.
        CheckRunningError: before the first run, if another check is under way in this process.
    """
    if settings.native:
        require_memray()
    state = GcState.now()
    progress = _Progress(settings, user_froze=user_has_frozen(), among_ranks=among_ranks)
    restored: tuple[str, ...] = ()
    try:
        yield from _warm_up(progress)
        started = time.perf_counter()
        measurement, judgement = yield from _measure_undisturbed(progress)
        progress.measuring_seconds = time.perf_counter() - started
        explained = _explain(measurement, judgement, namespace, settings)
        if in_loop is None:
            explained = yield from _discount_caches(progress, measurement, explained)
        explained = yield from _find_replaced(progress, measurement, judgement, explained, namespace)
        is_wanted = settings.sites is not False and not progress.failure
        left, number = is_wanted * (settings.max_seconds - progress.seconds), measurement.n_runs + 1
        explained, stores = yield from name_unseen(
            explained, measurement, namespace, next_run=number, seconds_left=left, cell_name=cell_name
        )
        explained = apart_from_small(explained, settings.min_bytes)
        check = _record(progress, measurement, judgement, explained)
        if in_loop is not None:
            in_loop.note(explained.addresses)
        # From here on nothing is measured: what tracing does to the figures is in no record.
        is_loop = in_loop is not None
        lines = yield from _find_lines(progress, measurement, explained, namespace, cell_name, in_loop=is_loop)
        native = yield from _find_native_lines(progress, measurement, explained, cell_name)
        statements, cures = FoundStatements(), dict[str, tuple[Cure, ...]]()
        if in_loop is None:
            statements = yield from _find_statements(progress, measurement, explained, lines, checked)
            known = (stores, lines)
            cures = yield from _find_cures(progress, measurement, explained, known, namespace, checked, cell_name)
    finally:
        restored = state.restore() if in_loop is None else ()
    return _completed(check, (stores, lines, native), statements, cures, restored)


def _warm_up(progress: _Progress) -> Generator[int, Ran, None]:
    """Run without measuring: imports, caches and lazy state of the first run are nobody's leak."""
    for number in range(1, progress.settings.n_warmups + 1):
        n_frozen = gc.get_freeze_count()
        ran = yield 0
        progress.warmup_seconds = ran[0]
        progress.cell_freezes = gc.get_freeze_count() > n_frozen + FROZEN_BY_PYTHON
        if not progress.note(ran, f"warm-up run {number}"):
            return


def _measure_undisturbed(progress: _Progress) -> Generator[int, Ran, tuple[Measurement, Judgement | None]]:
    """Measure; where the cell freezes or thaws objects, start again with a census that can bear it."""
    while True:
        progress.collects = user_lets_collect() and not progress.cell_freezes
        taker = _baseline(progress)
        room = (progress.max_runs or MOST_RUNS) + MAX_TRACED_RUNS
        is_short = (
            progress.warmup_seconds > _SHORT_SECONDS
            or (progress.max_runs or MOST_RUNS) < _SHORT_RUNS
            or progress.settings.max_seconds < _SHORT_RUNS * _SHORT_SECONDS
        )
        measurement = Measurement(
            room, taker, collects=progress.collects, frozen_too=progress.user_froze, is_short=is_short
        )
        try:
            judgement = yield from _measure(progress, measurement)
        except DisturbedError as disturbed:
            measurement.abandon()
            progress.cell_freezes = disturbed.how == "frozen"
            progress.user_froze = True  # a cell that thaws would thaw our baseline again: list the heap instead
        else:
            return measurement, judgement
        finally:
            measurement.abandon()


def _baseline(progress: _Progress) -> Baseline:
    return choose_baseline(
        user_froze=progress.user_froze, cell_freezes=progress.cell_freezes, collects=progress.collects
    )


def _measure(progress: _Progress, measurement: Measurement) -> Generator[int, Ran, Judgement | None]:
    """Run phase after phase until every question has its answer, or a limit is reached; None if nothing was run."""
    settings, phases, judgement = progress.settings, 0, None
    progress.seconds = progress.counting_seconds = 0.0
    while not (progress.failure or progress.full):
        n_runs = next_phase(
            phases_done=phases,
            runs_done=measurement.n_runs,
            max_runs=progress.max_runs,
            seconds_per_run=progress.cost_of_run(measurement.n_runs),
            seconds_left=settings.max_seconds - progress.seconds,
            growing=judgement is None or judgement.growing,
            is_open=judgement is None or judgement.is_open,
        )
        # A short third phase is made in any case: it shows whether growth keeps its pace.
        is_enough = phases > _FEWEST_PHASES or (phases == _FEWEST_PHASES and n_runs > measurement.n_runs)
        if not n_runs or (is_enough and _would_keep(measurement, n_runs) > _MOST_KEPT):
            break
        try:
            yield from _run_phase(progress, measurement, n_runs)
        except MemoryError:  # ours: what the user's code raises does not come here
            progress.failure = f"no memory was left to count what run {measurement.n_runs} had made"
            return None
        phases += 1
        judgement = judge(measurement) if measurement.n_runs else None
    return judgement


def _would_keep(measurement: Measurement, n_runs: int) -> float:
    """Return how much there would be to explain after *n_runs* more runs."""
    return measurement.n_kept * (1 + n_runs / max(measurement.n_runs, 1))


def _run_phase(progress: _Progress, measurement: Measurement, n_runs: int) -> Generator[int, Ran, None]:
    measurement.open_phase()
    for _ in range(n_runs):
        number = measurement.n_runs + 1
        measurement.start_run()
        ran = yield number
        progress.seconds += ran[0]
        if not progress.note(ran, f"run {number}"):
            break  # what it left is that of half a run
        before = time.perf_counter()
        measurement.finish_run(ran[0])
        progress.counting_seconds += time.perf_counter() - before
        progress.full = measurement.full_words() if number >= MIN_RUNS else ""
        if progress.full or progress.seconds > progress.settings.max_seconds:
            break
    measurement.close_phase()


def _explain(
    measurement: Measurement, judgement: Judgement | None, namespace: dict[str, Any] | None, settings: Settings
) -> Explained:
    """Look for the holders of what grows; where nothing does there is nothing to explain."""
    if judgement is None or not judgement.says_anything:
        return explain_nothing(measurement)
    try:
        return explain_growth(measurement, judgement, namespace, settings)
    except MemoryError:
        return replace(explain_nothing(measurement), open_questions=(_NO_MEMORY,))


def _discount_caches(
    progress: _Progress, measurement: Measurement, explained: Explained
) -> Generator[int, Ran, Explained]:
    """Take off what native libraries cache, where native memory seems to leak; not after a run that failed."""
    if progress.failure:
        return explained
    left, number = progress.settings.max_seconds - progress.seconds, measurement.n_runs + 1
    return (yield from discount_caches(explained, next_run=number, collects=measurement.collects, seconds_left=left))


def _find_replaced(
    progress: _Progress,
    measurement: Measurement,
    judgement: Judgement | None,
    explained: Explained,
    namespace: dict[str, Any] | None,
) -> Generator[int, Ran, Explained]:
    """Look for what is replaced by something larger, where native memory grows; not after a run that failed."""
    if progress.failure:
        return explained
    settings = progress.settings
    left, number = settings.max_seconds - progress.seconds, measurement.n_runs + 1
    creep, summaries = 0.0 if judgement is None else judgement.creep, settings.summaries
    return (
        yield from find_replaced(
            explained, measurement, namespace, creep=creep, next_run=number, seconds_left=left, summaries=summaries
        )
    )


def _find_lines(
    progress: _Progress,
    measurement: Measurement,
    explained: Explained,
    namespace: dict[str, Any] | None,
    cell_name: Callable[[str], str],
    *,
    in_loop: bool,
) -> Generator[int, Ran, FoundLines]:
    """Run the code a few more times, traced, where the settings want that; not after a run that failed."""
    settings = progress.settings
    leaks = (*explained.leaks, *explained.bounded) if settings.sites else explained.leaks
    if settings.sites is False or progress.failure or not leaks:
        return NOTHING
    return (
        yield from find_lines(
            measurement,
            leaks,
            explained.addresses,
            namespace,
            busy=progress.clocks.busy(),
            cell_name=cell_name,
            seconds_left=settings.max_seconds - progress.seconds,
            in_loop=in_loop,
        )
    )


def _find_native_lines(
    progress: _Progress, measurement: Measurement, explained: Explained, cell_name: Callable[[str], str]
) -> Generator[RunRequest, Ran, FoundLines]:
    """Run the code a few more times under memray, where the settings want that."""
    if not progress.settings.native or progress.failure:
        return NOTHING
    left, number = progress.settings.max_seconds - progress.seconds, measurement.n_runs + 1
    leaks = (*explained.leaks, *explained.bounded)
    return (yield from find_native_lines(leaks, next_run=number, cell_name=cell_name, seconds_left=left))


def _find_statements(
    progress: _Progress,
    measurement: Measurement,
    explained: Explained,
    lines: FoundLines,
    checked: SplitCell | FunctionType | None,
) -> Generator[int, Ran, FoundStatements]:
    """Run the cell statement by statement, where the settings want that; not after a run that failed."""
    if not progress.settings.statements or progress.failure:
        return FoundStatements()
    if checked is None or isinstance(checked, FunctionType):
        return FoundStatements(notes=("only the statements of a cell can be run one by one, not those of a function",))
    left = progress.settings.max_seconds - progress.seconds
    maker = partial(_baseline, progress)
    return (yield from find_statements(checked, maker, measurement, explained.leaks, lines, seconds_left=left))


def _find_cures(  # noqa: PLR0917 - what the steps before have found, in their order
    progress: _Progress,
    measurement: Measurement,
    explained: Explained,
    lines: tuple[FoundLines, ...],
    namespace: dict[str, Any] | None,
    checked: SplitCell | FunctionType | None,
    cell_name: Callable[[str], str],
) -> Generator[int | RunRequest, Ran, dict[str, tuple[Cure, ...]]]:
    """Try the changes that would end the leaks, where the settings want that; not after a run that failed."""
    settings = progress.settings
    is_wanted = settings.sites is not False if settings.cure is None else settings.cure
    if not is_wanted or progress.failure or not explained.leaks:
        return {}
    left = settings.max_seconds - progress.seconds
    unasked = max(_TRIALS_SHARE * progress.measuring_seconds, _LEAST_TRIAL_SECONDS)
    per_run = progress.seconds / max(measurement.n_runs, 1)
    obstacle = f"a run takes {format_seconds(per_run)}" if per_run > _SLOW_SECONDS else ""
    obstacle = "the other ranks would wait for one whose trial fails" if progress.among_ranks else obstacle
    return (
        yield from find_cures(
            measurement,
            explained,
            lines,
            namespace,
            checked,
            cell_name=cell_name,
            seconds=left if settings.cure else min(left, unasked),
            obstacle=f"{obstacle}: --cure (cure=True) tries it" if obstacle and settings.cure is None else "",
            run_seconds=per_run,
        )
    )


_SLOW_SECONDS = 3.0
"""Of a cell that takes longer, trials are made on request only."""
_TRIALS_SHARE, _LEAST_TRIAL_SECONDS = 2.0, 5.0
"""So many times as long as the counted runs, and at least so many seconds, may trials take that nobody asked for."""


def _completed(
    check: Check,
    found: tuple[FoundLines, ...],
    statements: FoundStatements,
    cures: dict[str, tuple[Cure, ...]],
    restored: tuple[str, ...],
) -> Check:
    """Return *check* with the lines, statements and cures that were found, and with what was put back at the end."""
    notes = [*check.notes, *(note for lines in found for note in lines.notes), *statements.notes]
    if restored:
        notes.append(f"the cell changed the garbage collector; put back: {', '.join(restored)}")
    leaks, bounded = with_cures(with_lines(check.leaks, found), cures), with_lines(check.bounded, found)
    return replace(check, leaks=leaks, bounded=bounded, notes=tuple(notes), statements=statements.rows)


def _record(progress: _Progress, measurement: Measurement, judgement: Judgement | None, explained: Explained) -> Check:
    verdict = conclude(
        explained.leaks,
        explained.bounded,
        explained.open_questions,
        measurement.n_runs,
        psutil.virtual_memory().available,
        progress.failure,
        explained.n_aside,
        explained.suspects,
        progress.seconds / measurement.n_runs if measurement.n_runs else progress.warmup_seconds,
        explained.logs,
        (len(explained.small), progress.settings.min_bytes),
    )
    found = (*explained.leaks, *explained.small)
    return Check(
        settings=progress.settings,
        verdict=verdict,
        leaks=explained.leaks,
        bounded=explained.bounded,
        objects=explained.objects,
        tensors=explained.tensors,
        containers=explained.containers,
        runs=run_rows(measurement, explained),
        notes=(*explained.notes, *_notes(progress, measurement, judgement)),
        failure=progress.failure,
        environment=(*environment(), ("system", platform.platform(terse=True))),
        shares=tuple(with_rests(explained.shares, found, explained.bounded, explained.charged)),
        noted=explained.noted,
    )


def _notes(progress: _Progress, measurement: Measurement, judgement: Judgement | None) -> tuple[str, ...]:
    """Say what the reader should know about how it was measured."""
    notes = []
    if progress.full:
        notes.append(f"no more runs were made: after run {measurement.n_runs} they kept {progress.full}")
    if judgement is not None and judgement.slowdown is not None:
        notes.append(f"a run took {judgement.slowdown:.1f} times as long at the end as at the start")
    if not measurement.collects and not progress.cell_freezes:
        notes.append("the garbage collector is switched off: cyclic garbage was counted as it piles up")
    if progress.cell_freezes:
        notes.append("the cell calls gc.freeze(): its objects were thawed for counting and frozen again")
    notes += filter(None, (new_threads_note(measurement), children_note(measurement)))
    if judgement is not None and judgement.says_anything and (busy := progress.clocks.busy()):
        notes.append(
            f"{thread_words(busy)} ran meanwhile: what other threads leave is counted with what the code leaves"
        )
    if judgement is not None and judgement.native is None:
        notes.append("the native heap could not be measured: this system's C library does not tell its level")
    return tuple(notes)
