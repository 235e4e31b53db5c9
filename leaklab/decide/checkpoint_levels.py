"""Judge a quantity known at a few checkpoints only, the habit of a cell, and whether runs get slower.

Such quantities are lengths of containers, bytes of buffers, nodes of a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median

from leaklab.decide.trend import Growth, mann_kendall_z
from leaklab.model import Outcome
from leaklab.model.heap_diff import Totals
from leaklab.text import format_bytes, unit_words

STEADY_RATIO = 0.6
"""The last phase must grow at this share of the pace before it; a filling cache does not."""

SETTLED_RATIO = 0.9
"""From this share on, two phases are of one pace, whatever came before them."""

MIN_STEPS = 3


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
    words = " -> ".join(f"{level:,.10g}" for level in levels) + f" after {', '.join(map(str, at_runs[1:]))} runs"
    if 1 not in moves:
        return Growth(Outcome.CLEAN, 0.0, f"did not grow in {at_runs[-1]} runs")
    if -1 in moves:
        return _judge_with_release(rates, moves, words)
    if moves[-1] == 0:
        return _judge_pause(levels, at_runs, moves, words, floor_per_run)
    if len(rates) == 1:
        return Growth(Outcome.INCONCLUSIVE, rates[-1], f"grew by {rates[-1]:,.3g} per run, measured once: {words}")
    if moves[-2] == 0:
        return _judge_pause(levels, at_runs, moves, words, floor_per_run)
    return _judge_pace(rates, words)


def _move(rate: float, floor_per_run: float) -> int:
    """Return 1 for growth, -1 for a release, 0 for neither."""
    return (rate > 0 and rate >= floor_per_run) - (rate < 0 and -rate >= floor_per_run)


def _judge_with_release(rates: Sequence[float], moves: Sequence[int], words: str) -> Growth:
    """Judge levels that fell somewhere: only steady growth in three phases since is more than one tooth of a saw."""
    since = len(moves) - 1 - moves[::-1].index(-1) + 1
    if moves[since:] and all(move == 1 for move in moves[since:]):
        if len(moves) - since >= MIN_STEPS:
            return _judge_pace(rates[since:], words)
        if since == 1 and len(moves) > 2:  # noqa: PLR2004
            return Growth(Outcome.INCONCLUSIVE, rates[-1], f"gave back at first, grows since: {words}")
    return Growth(Outcome.BOUNDED, 0.0, f"grew and gave back: {words}")


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
    return Growth(Outcome.BOUNDED, 0.0, f"grew, then stopped: {words}")


def _judge_pace(rates: Sequence[float], words: str) -> Growth:
    """Judge growth in each of the last two phases by whether it keeps its pace."""
    last, before = rates[-1], rates[-2]
    is_settled = last >= SETTLED_RATIO * before
    fades_throughout = len(rates) > 3 and not is_settled and before < SETTLED_RATIO * rates[-3]  # noqa: PLR2004
    if last < STEADY_RATIO * before or fades_throughout:
        return Growth(Outcome.INCONCLUSIVE, last, f"grows, but slower and slower: {words}")
    rate = min(last, before)
    return Growth(Outcome.LEAK, rate, f"grew by at least {rate:,.3g} per run in each phase: {words}")


MIN_RUNS = 4
"""The first execution fills caches; of the others at least three must agree."""

_LEAST_OBJECTS = 10.0  # a notebook keeps two or three objects of its own for each cell
_LEAST_HEAP = 64 * 1024.0  # history, messages and the allocator's own noise stay well below


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
        ([run.n_objects - run.n_tensors for run in later], _LEAST_OBJECTS, "other objects"),
        ([run.heap_bytes for run in later], _LEAST_HEAP, "of native heap"),
    ):
        rate = _steady_rate(amounts, floor)
        if rate:
            words.append(_amount(rate, unit))
    return Habit(len(later), ", ".join(words)) if words else None


def _steady_rate(amounts: Sequence[int], floor: float) -> float:
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


def judge_slowdown(seconds: Sequence[float]) -> float | None:
    """Return how much slower the last third of the runs is than the first.

    Args:
        seconds: Wall time of each measured run.

    Returns:
        Ratio of the medians of the last and the first third, at least 1.2; None if the time does not rise steadily, or
        there are fewer than 12 runs.
    """
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
