"""Say what growth is: the answer that every rule gives, noise, rhythm, ranks, and the rule for a few checkpoints.

Quantities that are known at a few checkpoints only are lengths of containers, bytes of buffers, nodes of a graph. By
the same rule are judged the habit of a cell, and, by ranks, whether runs get slower. The statistics need no library
and ask nothing of the shape of the noise.

A container that gains plain data for ever is a log, or a table that nobody empties. A program that runs for days keeps
its losses, and somebody reads them: a **log** is a sequence of numbers or of messages, or a mapping from numbers that
rise to numbers. A **table** has keys, members or texts that no later run meets again: names, tuples, hashes,
configurations. It was made for looking up, and grows unread: that is a leak, however small. So is a log that gains
more than `LOG_BYTES` in every run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations, pairwise
from statistics import median

import numpy as np
import numpy.typing as npt

from leaklab.model import Outcome
from leaklab.model.heap_diff import Totals
from leaklab.text import format_bytes, unit_words

NATIVE_FLOOR_BYTES = 16 * 1024
"""Native growth below this per run is not called a leak: caches of libraries and of the allocator move by as much."""

CREEP_FLOOR_BYTES = 256
"""Native growth of so much per run, if nothing found explains that, is worth a search for what gets larger."""

ACCELERATOR_FLOOR_BYTES = 512
"""torch hands out accelerator memory in blocks of this size."""

REMADE_FLOOR = 0.9
"""Whoever makes its objects anew adds one in every run; less than that is the coming and going of the newest."""

HABIT_FLOOR_OBJECTS = 10.0
"""A notebook keeps two or three objects of its own for each cell."""

HABIT_FLOOR_BYTES = 64 * 1024.0
"""History, messages and the allocator's own noise stay well below, for each cell."""


def noise_of(levels: npt.ArrayLike) -> float:
    """Return the standard deviation of one reading: the smaller of two estimates, which no leak or saw inflates both.

    The spread of all changes ignores rare steps, and the rare deep falls of a saw; the depth of the falls ignores
    growth of any shape, because what only grows never falls.
    """
    changes = np.diff(np.asarray(levels, np.float64))
    falls = -changes[changes < 0]
    spread, depth = np.median(np.abs(changes - np.median(changes))), np.median(falls) if len(falls) else 0.0
    # 1.4826 / sqrt(2): from the median change of normal noise to one reading's deviation
    return 1.05 * float(min(spread, depth))


def concordance(values: Sequence[float]) -> int:
    """Return the pairs of *values* that rise minus the pairs that fall; ties count for neither."""
    if len(values) < _FEW_VALUES:
        return sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))
    array = np.asarray(values, np.float64)
    return sum(
        int(np.count_nonzero(array[i + 1 :] > value)) - int(np.count_nonzero(array[i + 1 :] < value))
        for i, value in enumerate(array)
    )


_FEW_VALUES = 100
"""From so many values on, arrays are faster than pairs of numbers."""


def kendall_tau(values: Sequence[float]) -> float:
    """Return how monotone *values* are: 1.0 all pairs rise, -1.0 all fall, 0.0 for fewer than two."""
    n_pairs = len(values) * (len(values) - 1) // 2
    return concordance(values) / n_pairs if n_pairs else 0.0


def mann_kendall_z(*parts: Sequence[float]) -> float:
    """Return the Mann-Kendall statistic, corrected for ties: about standard normal if *parts* have no trend.

    Of several parts, only the trends inside each count: a jump from one part to the next does not.
    """
    score = sum(concordance(part) for part in parts)
    variance = sum(_variance(part) for part in parts)
    if variance <= 0 or score == 0:
        return 0.0
    return (score - math.copysign(1, score)) / math.sqrt(variance)


def _variance(values: Sequence[float]) -> float:
    n = len(values)
    tied = sum(k * (k - 1) * (2 * k + 5) for k in Counter(values).values())
    return (n * (n - 1) * (2 * n + 5) - tied) / 18


@dataclass(frozen=True, slots=True)
class Growth:
    """What a series of numbers says about growth.

    Attributes:
        outcome: ``BOUNDED`` is something that grew and stopped, or a window of the newest; ``INCONCLUSIVE`` is a
            question that more runs can answer.
        rate: Units per run of the settled part; 0.0 unless the outcome is a leak, or inconclusive (then the rate seen).
        reason: One clause with the figure that decided.
        mean_rate: The same rate over all settled runs, where *rate* is that of the later ones; None where it is not
            told apart.
    """

    outcome: Outcome
    rate: float
    reason: str
    mean_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Positions at which a series grew.

    Attributes:
        hits: Positions that grew, ascending.
        length: Number of positions looked at.
    """

    hits: tuple[int, ...]
    length: int

    @classmethod
    def of(cls, amounts: Sequence[float], least: float = 0.0) -> Rhythm:
        """Read the rhythm of *amounts*: an amount above *least* is a hit."""
        return cls(tuple(i for i, amount in enumerate(amounts) if amount > least), len(amounts))

    @property
    def lead(self) -> int:
        """Silent positions before the first hit; the whole length without one."""
        return self.hits[0] if self.hits else self.length

    @property
    def tail(self) -> int:
        """Silent positions after the last hit; the whole length without one."""
        return self.length - 1 - self.hits[-1] if self.hits else self.length

    @property
    def gaps(self) -> tuple[int, ...]:
        """Distances from each hit to the next."""
        return tuple(later - earlier for earlier, later in pairwise(self.hits))

    @property
    def widest(self) -> int:
        """The largest distance between two neighbouring hits, 1 if there are none."""
        return max(self.gaps, default=1)

    def chance_of_silence(self, n_silent: int) -> float:
        """Return how probable *n_silent* silent positions in a row are at the pace of growth seen outside of them.

        The pace is taken one miss lower than seen, so that three hits of three are no proof of "always".
        """
        pace = len(self.hits) / (self.length - n_silent + 1)
        return float((1.0 - pace) ** n_silent)

    def is_one_pause(self) -> bool:
        """Whether one silence between hits stands out so far that the hits are bursts rather than one rhythm."""
        silences = sorted([gap - 1 for gap in self.gaps])
        if len(silences) < 2:  # noqa: PLR2004 - one gap has nothing to stand out from
            return False
        longest, next_longest = silences[-1], max(silences[-2], self.lead, self.tail)
        if longest < MIN_SILENCE or longest <= 2 * next_longest + 1:
            return False
        return len(self.hits) * self.chance_of_silence(longest) < IMPROBABLE


MIN_SILENCE = 3
"""Shorter silences are never called an end: an object's id may be attributed to the run before its own."""

IMPROBABLE = 0.005

STEADY_RATIO = 0.6
"""The last phase must grow at this share of the pace before it; a filling cache does not."""

SETTLED_RATIO = 0.9
"""From this share on, two phases are of one pace, whatever came before them."""

MIN_STEPS = 3

SURE_RUNS = 24
"""From so many runs on, what grew once is not expected to grow again, though not so many runs have passed since; and a
leak whose code was seen to fill, and not to end, is one."""

_FEW_RUNS = 8
"""Before so many runs a pause is not called an end, nor less than one more in every run a leak: the two phases may have
ended at two points of one saw."""


def judge_checkpoints(levels: Sequence[float], at_runs: Sequence[int], *, floor_per_run: float = 0.0) -> Growth:
    """Judge the levels at checkpoints.

    Args:
        levels: At each checkpoint; the first is the baseline after the warm-up.
        at_runs: The measured runs after which they were taken, ascending from 0.
        floor_per_run: Growth below it is noise. 0 for exact counts.

    Returns:
        The judgement; its rate is in units of *levels* per run. A single phase that grew stays open.

    Raises:
        ValueError: if there are fewer than two checkpoints, or they do not ascend.
    """
    if len(levels) != len(at_runs) or len(levels) < 2 or any(b <= a for a, b in pairwise(at_runs)):  # noqa: PLR2004
        msg = (
            f"needs two or more ascending checkpoints, one per level, not {len(levels)} levels at runs {tuple(at_runs)}"
        )
        raise ValueError(msg)
    rates = [
        (b - a) / (run_b - run_a) for (a, b), (run_a, run_b) in zip(pairwise(levels), pairwise(at_runs), strict=True)
    ]
    moves = [_move(rate, floor_per_run) for rate in rates]
    words = " -> ".join(f"{level:,.10g}" for level in levels) + f" after {', '.join(map(str, at_runs))} runs"
    if 1 not in moves:
        return Growth(Outcome.CLEAN, 0.0, f"did not grow in {at_runs[-1]} runs")
    phases = [after - before for before, after in pairwise(at_runs)]
    if -1 in moves:
        return _judge_with_release(rates, phases, moves, words)
    if moves[-1] == 0:
        return _judge_pause(levels, at_runs, moves, words, floor_per_run)
    if len(rates) == 1:
        return Growth(Outcome.INCONCLUSIVE, rates[-1], f"grew by {rates[-1]:,.3g} per run, measured once: {words}")
    if moves[-2] == 0:
        return _judge_pause(levels, at_runs, moves, words, floor_per_run)
    if at_runs[-1] < _FEW_RUNS and min(rates[-2:]) < 1 and not floor_per_run:
        return Growth(
            Outcome.INCONCLUSIVE, rates[-1], f"grew in some of too few runs to see a regular pattern: {words}"
        )
    growth = _judge_pace(rates, phases, words)
    is_rare = not floor_per_run and levels[-1] - levels[-2] < _FEW_MORE and rates[-1] != rates[-2]
    is_rare &= max(rates) <= _MOST_APART * min(rates)
    if is_rare and growth.outcome is Outcome.LEAK:
        # Of what comes now and then one phase has more than the next: all of them together tell how often.
        return replace(growth, rate=(levels[-1] - levels[0]) / at_runs[-1])
    return growth


_FEW_MORE, _MOST_APART = 10, 3.0
"""So few more in the last phase are a matter of chance, unless one phase went so many times as fast as another."""


def _move(rate: float, floor_per_run: float) -> int:
    """Return 1 for growth, -1 for a release, 0 for neither."""
    return (rate > 0 and rate >= floor_per_run) - (rate < 0 and -rate >= floor_per_run)


def _judge_with_release(rates: Sequence[float], phases: Sequence[float], moves: Sequence[int], words: str) -> Growth:
    """Judge levels that fell somewhere: only steady growth in three phases since is more than one tooth of a saw."""
    since = len(moves) - 1 - moves[::-1].index(-1) + 1
    if moves[since:] and all(move == 1 for move in moves[since:]):
        if len(moves) - since >= MIN_STEPS:
            return _judge_pace(rates[since:], phases[since:], words)
        if since == 1 and len(moves) > 2:  # noqa: PLR2004
            return Growth(Outcome.INCONCLUSIVE, rates[-1], f"shrank at first, then grew: {words}")
    return Growth(Outcome.BOUNDED, 0.0, f"grew and shrank again: {words}")


def _judge_pause(
    levels: Sequence[float], at_runs: Sequence[int], moves: Sequence[int], words: str, floor_per_run: float
) -> Growth:
    """Judge growth with a flat phase among the last two: it stopped, or its steps are longer than a phase."""
    if moves.count(1) >= MIN_STEPS and 0 in moves[:-1] and len(moves) >= 2 * MIN_STEPS - 1:
        pairs = list(range(len(levels) - 1, -1, -2))[::-1]
        merged = judge_checkpoints([levels[i] for i in pairs], [at_runs[i] for i in pairs], floor_per_run=floor_per_run)
        if merged.outcome is Outcome.LEAK:
            return merged
    if moves[-1] == 1:
        rate = (levels[-1] - levels[-2]) / (at_runs[-1] - at_runs[-2])
        return Growth(Outcome.INCONCLUSIVE, rate, f"grew in the last phase, not in the one before: {words}")
    grew = [at_runs[i + 1] for i, move in enumerate(moves) if move == 1]
    longest = max(after - before for before, after in pairwise((0, *grew)))  # of the phases that ended with growth
    pause = at_runs[-1] - grew[-1]
    is_sure, has_gone_on = at_runs[-1] >= SURE_RUNS, len(grew) > 1 and not floor_per_run
    # What came once, and bytes, have no pace; in few runs the pauses of before are what is known.
    expected = pause * (levels[-1] - levels[0]) / grew[-1] if is_sure and has_gone_on else math.inf
    if expected < 1 and len(levels) > 3:  # noqa: PLR2004 - of which three are left: that nothing came says nothing
        return judge_checkpoints(levels[:-1], at_runs[:-1])
    is_short = (not is_sure and pause < longest) or expected < _EXPECTED
    if at_runs[-1] < _FEW_RUNS or is_short:
        rate = (levels[-1] - levels[0]) / at_runs[-1]
        return Growth(Outcome.INCONCLUSIVE, rate, f"grew, then paused, in too few runs to say that it stopped: {words}")
    return Growth(Outcome.BOUNDED, 0.0, f"grew, then stopped: {words}")


_EXPECTED = 3.0
"""So much would have been added at the pace of before in a pause that is to say that growth has stopped: what comes at
random with that pace stays away for as long in one case of twenty."""


def _judge_pace(rates: Sequence[float], phases: Sequence[float], words: str) -> Growth:
    """Judge growth in each of the last two phases by whether it keeps its pace.

    What slows in each phase fades, though by less than `STEADY_RATIO`: what fills by the square root of the runs keeps
    0.7 of its pace from one phase to the next, where each is twice as long. The first phase does not count, which may
    have a warm-up in it, unless each phase is longer than the one before: then a warm-up would be over in the second.
    """
    last, before = rates[-1], rates[-2]
    is_settled = last >= SETTLED_RATIO * before
    n_enough = MIN_STEPS if all(later > earlier for earlier, later in pairwise(phases)) else MIN_STEPS + 1
    fades_throughout = len(rates) >= n_enough and not is_settled and before < SETTLED_RATIO * rates[-3]
    if last < STEADY_RATIO * before or fades_throughout:
        return Growth(Outcome.INCONCLUSIVE, last, f"grows, but more and more slowly: {words}")
    rate = min(last, before)
    return Growth(Outcome.LEAK, rate, f"grew by at least {rate:,.3g} per run in each phase: {words}")


MIN_RUNS = 4
"""The first execution fills caches; of the others at least three must agree."""


@dataclass(frozen=True, slots=True)
class Habit:
    """What every execution of a cell leaves behind.

    Attributes:
        n_runs: Executions that agree.
        words: What grows, with the amount per execution.
    """

    n_runs: int
    words: str


def judge_habit(runs: Sequence[Totals]) -> Habit | None:
    """Return what each execution leaves behind; None if nothing does, or it is too early to tell.

    The rule is that of levels at checkpoints (`judge_checkpoints`): growth in every one of the later executions,
    at a steady pace. A cell that replaces what it made before, or fills a cache, has no such habit.

    Args:
        runs: What each execution changed, the first one first.
    """
    if len(runs) < MIN_RUNS:
        return None
    later = runs[1:]
    words = []
    for amounts, floor, unit in (
        ([run.n_tensors for run in later], 0.0, "tensors"),
        ([run.tensor_bytes for run in later], 0.0, "in tensors"),
        ([run.n_objects - run.n_tensors for run in later], HABIT_FLOOR_OBJECTS, "other objects"),
        ([run.heap_bytes for run in later], HABIT_FLOOR_BYTES, "of native heap"),
    ):
        rate = steady_rate(amounts, floor)
        if rate:
            words.append(_amount(rate, unit))
    return Habit(len(later), ", ".join(words)) if words else None


def steady_rate(amounts: Sequence[int], floor: float) -> float:
    """Return what each of some executions adds; 0.0 where one of them adds nothing, or the pace is not steady.

    Args:
        amounts: What each added, the oldest first.
        floor: An average of less than this is noise.
    """
    if min(amounts) <= 0:
        return 0.0
    levels = list(accumulate(amounts, initial=0))
    growth = judge_checkpoints(levels, range(len(levels)), floor_per_run=floor)
    return growth.rate if growth.outcome is Outcome.LEAK else 0.0


def _amount(rate: float, unit: str) -> str:
    is_count = unit in ("tensors", "other objects")
    if is_count:
        return f"+{unit_words(rate, unit)}"
    return f"+{format_bytes(rate)} {unit}"


MIN_TIMES = 12
MIN_RATIO = 1.2
RISING_Z = 3.0
"""One random series in 740 rises so steadily."""

RISING_INSIDE_Z = 1.3
"""A single jump leaves both halves flat; a rise that goes on does not."""

MIN_SHARE = 0.15
"""Of the whole rise, each third must bring this much: a single jump (a busy machine) brings all of it at once."""


def judge_slowdown(seconds: Sequence[float], cpu_seconds: Sequence[float] | None = None) -> float | None:
    """Return how much slower the last third of the runs is than the first.

    Args:
        seconds: Wall time of each run.
        cpu_seconds: Processor time of each run. A machine that gets busy makes runs longer, and no more work.

    Returns:
        Ratio of the medians of the last and the first third, at least 1.2, by the clock that rises less; None if the
        time does not rise steadily, or there are fewer than 12 runs.
    """
    if cpu_seconds is not None:
        by_clock = judge_slowdown(seconds), judge_slowdown(cpu_seconds)
        return None if None in by_clock else min(filter(None, by_clock))
    third, half = len(seconds) // 3, len(seconds) // 2
    if len(seconds) < MIN_TIMES or mann_kendall_z(seconds) < RISING_Z:
        return None
    if mann_kendall_z(seconds[:half], seconds[half:]) < RISING_INSIDE_Z:
        return None
    first, last = median(seconds[:third]), median(seconds[-third:])
    middle = median(seconds[third:-third])
    least = MIN_SHARE * (last - first)
    if first <= 0 or last < MIN_RATIO * first or min(middle - first, last - middle) < least:
        return None
    return last / first


LOG_BYTES = 512
"""Per run: some sixteen numbers with their places in a list."""


def is_log(*, gains_log_entries: bool, bytes_per_run: float) -> bool:
    """Return whether what grows is a log.

    Args:
        gains_log_entries: Whether all that is new are numbers, short records of numbers, or messages, that have their
            place by coming later: in a sequence, or under keys that rise.
        bytes_per_run: What each run adds.
    """
    return gains_log_entries and bytes_per_run < LOG_BYTES
