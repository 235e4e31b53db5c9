"""Judge whether a cell that is executed again and again keeps growing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from leaklab.decide.levels import judge_levels
from leaklab.model import Outcome
from leaklab.model.moments import Totals
from leaklab.words import format_bytes, unit_words

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

    The rule is that of levels at checkpoints (`judge_levels`): growth in every one of the later executions, at a steady
    pace. A cell that replaces what it made before, or fills a cache, has no such habit.

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
        ([run.n_objects for run in later], _LEAST_OBJECTS, "objects"),
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
    growth = judge_levels(levels, range(len(levels)), floor_per_run=floor)
    return growth.rate if growth.outcome is Outcome.LEAK else 0.0


def _amount(rate: float, unit: str) -> str:
    is_count = unit in ("tensors", "objects")
    if is_count:
        return f"+{unit_words(rate, unit)}"
    return f"+{format_bytes(rate)} {unit}"
