"""Sum up what was found into one verdict: an outcome, a sentence with its figures, a projection."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import accumulate

from leaklab.decide.growth import SURE_RUNS
from leaklab.model import MIN_RUNS, Leak, Outcome, Verdict
from leaklab.model.loop import LoopState
from leaklab.model.sentences import growth_sentence, log_sentence, more_words, place_words
from leaklab.text import PER_THOUSAND, format_bytes, projected_runs, unit_words

WORST_FIRST = (Outcome.LEAK, Outcome.INCONCLUSIVE, Outcome.BOUNDED, Outcome.CLEAN)


def conclude(  # noqa: PLR0917 - a check ends with these, in this order
    leaks: Sequence[Leak],
    bounded: Sequence[Leak],
    open_questions: Sequence[str],
    n_runs: int,
    free_bytes: int | None,
    failure: str = "",
    n_aside: int = 0,
    suspects: Sequence[Leak] = (),
    seconds_per_run: float = 0.0,
    logs: Sequence[Leak] = (),
    small: tuple[int, int] = (0, 0),
) -> Verdict:
    """Say what the check says.

    Args:
        leaks: Everything judged a leak, largest first.
        bounded: What grew and stopped, or is limited by its holder.
        open_questions: What could not be decided, one clause each.
        n_runs: Measured runs.
        free_bytes: Memory of this machine that is still free; None if unknown.
        failure: Why the check ended early; empty if it did not.
        n_aside: Places that are not the user's, or grow too little to be called leaks, which the notes name.
        suspects: What grew so far where it is not decided whether that is a leak, largest first.
        seconds_per_run: What a run costs.
        logs: What gains a few numbers in every run, the fastest first.
        small: So many leaks are left aside, and from how many bytes per run a leak counts.

    Returns:
        A leak if there is one, whatever else is open; otherwise inconclusive as long as anything is open.
    """
    if leaks:
        return _leak(leaks, n_runs, free_bytes, failure, _and_small(small))
    if failure and not n_runs:
        return Verdict(Outcome.INCONCLUSIVE, f"the check ended early ({failure}): nothing was measured", n_runs)
    if failure:
        seen = "showed no leak, but cannot exclude one"
        if suspects or open_questions:
            seen = f"are too few to decide; {_grew(suspects) if suspects else open_questions[0]}"
        reason = f"the check ended early ({failure}): {_runs(n_runs)} {seen}"
        return Verdict(Outcome.INCONCLUSIVE, f"{reason}{_and_small(small)}", n_runs)
    if n_runs < MIN_RUNS:
        verb = "is" if n_runs == 1 else "are"
        reason = f"{_runs(n_runs)} {verb} too few to tell a leak from a warm-up; at least {MIN_RUNS} are needed"
        if seconds_per_run * MIN_RUNS > _LONG_SECONDS:
            seconds = math.ceil(1.1 * seconds_per_run * MIN_RUNS)
            reason += f": -t {seconds} allows them, or check a smaller piece of the work"
        if suspects:
            reason += f"; {_grew(suspects)}"
        return Verdict(Outcome.INCONCLUSIVE, reason, n_runs)
    if open_questions:
        reason = f"{open_questions[0]}{more_words(open_questions, 'open question')}{_and_small(small)}"
        return Verdict(Outcome.INCONCLUSIVE, reason, n_runs)
    if bounded:
        first = bounded[0]
        more = more_words(bounded, "bounded place")
        reason = f"{place_words(first)} grew to a limit: {first.reason}{more}{_and_logs(logs)}{_and_small(small)}"
        return Verdict(Outcome.BOUNDED, reason, n_runs)
    return Verdict(Outcome.CLEAN, _clean(n_runs, n_aside, logs, small), n_runs)


def _clean(n_runs: int, n_aside: int, logs: Sequence[Leak], small: tuple[int, int]) -> str:
    """Say that nothing leaks; that nothing piled up only where that is so."""
    aside = f"{n_aside} small place{'s grow' if n_aside > 1 else ' grows'} (see the notes)" if n_aside else ""
    if small[0]:
        words = f"nothing leaks {format_bytes(small[1])} or more per run in {_runs(n_runs)}{_and_small(small)}"
        return f"{words}{_and_logs(logs)}" + (f"; in addition, {aside}" if aside else "")
    if logs:
        return f"nothing leaks{_and_logs(logs)}" + (f"; in addition, {aside}" if aside else "")
    if aside:
        return f"nothing of yours piled up in {_runs(n_runs)}: {aside}"
    return f"nothing piled up in {_runs(n_runs)}: only the latest run's objects are alive"


def _and_logs(logs: Sequence[Leak]) -> str:
    return f"; {log_sentence(logs[0])}{more_words(logs, 'log')}" if logs else ""


def _and_small(small: tuple[int, int]) -> str:
    n_leaks, min_bytes = small
    leaks = f"{n_leaks:,} leaks are" if n_leaks > 1 else "1 leak is"
    return (
        f"; {leaks} left aside, smaller than --min-bytes {format_bytes(min_bytes)} (see the notes)" if n_leaks else ""
    )


_LONG_SECONDS = 20.0


def _grew(suspects: Sequence[Leak]) -> str:
    """Name what grew so far: ``suspect so far: `history` grows by 3 tensors every run``."""
    first = suspects[0]
    return f"suspect so far: {growth_sentence(first)}{more_words(suspects, 'suspect')}"


def _leak(leaks: Sequence[Leak], n_runs: int, free_bytes: int | None, failure: str, aside: str) -> Verdict:
    bytes_per_run = sum(max(0.0, leak.bytes_per_run) for leak in leaks)
    early = f" (the check ended early: {failure})" if failure else ""
    reason = (
        f"{growth_sentence(leaks[0])}{more_words(leaks, 'leak')}; {_projection(leaks, bytes_per_run)}{aside}{early}"
    )
    return Verdict(Outcome.LEAK, reason, n_runs, bytes_per_run, _full_after(free_bytes, bytes_per_run))


def _full_after(free_bytes: int | None, bytes_per_run: float) -> int | None:
    if free_bytes is None or bytes_per_run <= 0:
        return None
    runs = max(0, free_bytes) / bytes_per_run
    return math.floor(runs) if math.isfinite(runs) else None


def _projection(leaks: Sequence[Leak], bytes_per_run: float) -> str:
    if bytes_per_run > 0:
        n_runs = projected_runs(bytes_per_run)
        return f"{n_runs:,} runs would keep {format_bytes(bytes_per_run * n_runs)}"
    first = leaks[0]
    return f"{PER_THOUSAND:,} runs would keep {unit_words(round(first.count_per_run * PER_THOUSAND), first.unit)}"


def _runs(count: int) -> str:
    return f"{count:,} run" if count == 1 else f"{count:,} runs"


# Lengths without a common pattern: a list that is flushed every few runs would look as if it grew if every phase ended
# at the same place of its period. (8, 7, 9) tells every period up to 25 from growth, the totals every one up to 111.
_FAST_PHASES = (8, 7, 9, 16, 31, 67, 150)
_SLOW_PHASES = (3, 2, 3, 8)
_FASTEST_TOTALS = (15, 24, 58, 111, 551, 1000)
"""After so many runs of the fastest cells the heap is looked at: a look costs as much as thousands of them."""
_ENOUGH_OF_FASTEST, _FEWEST_OF_FASTEST = 111, 153
_SHORTEST_OF_FASTEST = 9
_THREE_PHASES = 12
"""From so many runs on, three phases tell more than two longer ones."""
_FASTEST_SECONDS_PER_RUN = 0.005
_FAST_SECONDS_PER_RUN = 0.6
MOST_FOLLOWED = _FASTEST_TOTALS[-2]
"""A leak that is certain so far is followed for so many runs: a cache of 500 entries is full by then."""
_CHEAP_SECONDS = 2.0
"""As long as a clean check has cost less than this, a third phase is run all the same: it finds rarer leaks."""
FOLLOWED_SECONDS = 2.0
"""What grows is followed for so long, beyond the runs that show it: most caches are full by then, a leak never is."""
DEFAULT_RUNS = 40
"""While a question is open, so many runs are made of a cell however slow it is, if the time limit allows."""
MOST_OF_CACHES = 64
"""In more runs a cache whose keys never came again is a leak; a limit that the code names may be higher."""
_CACHE_SECONDS = 10.0
"""As long as one run more than that takes no longer, it is made while a question is open."""
MOST_RUNS = 1000
"""No question is worth more runs, unless somebody asks for them."""


MORE_TIME = 2.0
"""By so much the time limit may be exceeded by the runs that a verdict needs, and by those that name its lines."""


def usual_runs(max_runs: int | None, seconds_per_run: float) -> tuple[int, int]:
    """Return how many runs of so many seconds a check makes: where the answer is plain, and at most."""
    limit = run_limit(max_runs, seconds_per_run)
    if _is_fastest(limit, seconds_per_run):
        return _ENOUGH_OF_FASTEST, limit
    phases = _phases(seconds_per_run)
    n_sure = 2 if phases is _SLOW_PHASES else 3
    return min(sum(phases[:n_sure]), limit), min(sum(phases[:3]), limit) if phases is _SLOW_PHASES else limit


def run_limit(max_runs: int | None, seconds_per_run: float) -> int:
    """Return the upper limit of measured runs: the user's, or by what a run costs, 40 to 1,000."""
    if max_runs is not None:
        return max_runs
    if seconds_per_run <= 0:
        return MOST_RUNS
    affordable = max(FOLLOWED_SECONDS / seconds_per_run, min(_CACHE_SECONDS / seconds_per_run, MOST_OF_CACHES + 1))
    return int(min(max(affordable, DEFAULT_RUNS), MOST_RUNS))


def next_phase(
    *,
    phases_done: int,
    runs_done: int,
    max_runs: int | None,
    seconds_per_run: float,
    seconds_left: float,
    growing: bool,
    is_open: bool,
    is_sure: bool = False,
) -> int:
    """Return the number of runs of the next phase, 0 if the check is over.

    Args:
        phases_done: Phases measured so far.
        runs_done: Runs measured so far.
        max_runs: The user's limit of runs; None to let the cost of a run decide.
        seconds_per_run: What a run costs, estimated from those before; 0.0 if unknown.
        seconds_left: Seconds until the time limit.
        growing: Whether anything seems to grow.
        is_open: Whether any question is still without an answer.
        is_sure: Whether the counts of all runs agree, and no branch of the code could end the growth any more.
    """
    limit = run_limit(max_runs, seconds_per_run)
    if runs_done >= limit or seconds_left <= 0:
        return 0
    phases, is_fastest = _phases(seconds_per_run), _is_fastest(limit, seconds_per_run)
    cheap = seconds_per_run * runs_done < _CHEAP_SECONDS
    if phases_done == 2 and not (growing or cheap):  # noqa: PLR2004 - two phases are the least that shows growth
        return 0
    if is_sure and (runs_done >= SURE_RUNS or (phases_done >= 2 and not cheap)):  # noqa: PLR2004 - as above
        return 0
    if phases_done > 2 and not is_open:  # noqa: PLR2004
        if not growing:
            return 0
        # A leak, so far as is known. A cache that has not filled yet looks the same: as long as it costs little, go on.
        if max_runs is None or max_runs <= DEFAULT_RUNS:
            affordable = int(FOLLOWED_SECONDS / seconds_per_run) if seconds_per_run > 0 else MOST_FOLLOWED
            limit = min(limit, affordable, MOST_FOLLOWED)
        if runs_done >= limit:
            return 0
    if not is_fastest:
        wanted = min(_length(phases, phases_done, runs_done), _share(phases, limit - runs_done, phases_done))
    elif runs_done >= _ENOUGH_OF_FASTEST and not growing:
        return 0
    else:
        least = _SHORTEST_OF_FASTEST if growing or not runs_done else _ENOUGH_OF_FASTEST - runs_done
        wanted = min(_next_total(_FASTEST_TOTALS, runs_done, least, limit), limit) - runs_done
    affordable = math.floor(seconds_left / seconds_per_run) if seconds_per_run else wanted
    return max(1, min(wanted, affordable))


def _is_fastest(limit: int, seconds_per_run: float) -> bool:
    return 0 < seconds_per_run <= _FASTEST_SECONDS_PER_RUN and limit >= _FEWEST_OF_FASTEST


def _phases(seconds_per_run: float) -> tuple[int, ...]:
    return _FAST_PHASES if seconds_per_run <= _FAST_SECONDS_PER_RUN else _SLOW_PHASES


def _length(phases: tuple[int, ...], phases_done: int, runs_done: int) -> int:
    """Return the runs of the next phase; of quick cells up to the next total, however many were made so far."""
    if phases is _SLOW_PHASES or phases_done >= len(phases):
        return phases[min(phases_done, len(phases) - 1)]
    return _next_total(tuple(accumulate(phases)), runs_done, min(phases), runs_done + phases[-1]) - runs_done


def _next_total(totals: tuple[int, ...], runs_done: int, least: int, otherwise: int) -> int:
    """Return the first of *totals* that is *least* runs away or more."""
    return next((total for total in totals if total - runs_done >= least), otherwise)


def _share(phases: tuple[int, ...], runs_left: int, phases_done: int) -> int:
    """Split few runs so that at least two phases can be compared, three if there are enough."""
    if phases_done == 0 and runs_left < sum(phases[:3]):
        return math.ceil(runs_left / 2) if runs_left < _THREE_PHASES else math.ceil(runs_left / 3)
    if phases_done == 1 and runs_left > phases[1]:
        return math.ceil(runs_left / 2) if runs_left < sum(phases[1:3]) else runs_left
    return runs_left


_OF_STATE = {
    LoopState.LEAK: Outcome.LEAK,
    LoopState.STEADY: Outcome.CLEAN,
    LoopState.STOPPED: Outcome.BOUNDED,
    LoopState.GROWING: Outcome.INCONCLUSIVE,
    LoopState.WARMING_UP: Outcome.INCONCLUSIVE,
}


def outcome_of_loop(state: LoopState) -> Outcome:
    """Return the verdict on a loop as far as there is one: while it warms up or still grows there is none."""
    return _OF_STATE[state]


def is_proof_lost(outcome: Outcome, failure: str) -> bool:
    """Return whether *failure* takes the proof from a verdict: what was not run to its end may leak later."""
    return bool(failure) and outcome is not Outcome.LEAK


def outcome_of_all(outcomes: Collection[Outcome]) -> Outcome:
    """Return the verdict on all processes: the worst of theirs; without any process there is none."""
    return min(outcomes, key=WORST_FIRST.index, default=Outcome.INCONCLUSIVE)
