"""When to look: by what looking costs, by how far the loop is, and by what has been seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from leaklab.decide.loop_period import run_length

_FEWEST_STEPS = 23
"""Of a run. Not 25: that divides the 50, 100, 200 steps after which loops validate and log."""
_RUNS_OF_ALL = 200
"""A run is such a part of the steps so far: what happens in every epoch happens in some runs of every check."""
_MOST_STEPS = 500
_MOST_SECONDS = 20.0
_RUNS_THAT_FIT = 45
"""Runs of a check, those that look for lines included, at most: a short loop has to have room for them."""
_FEWEST_OF_SLOW = 3
_GROWTH = 10
"""Where nothing grows, the next check is at so many times the steps."""
_FREE_SECONDS = 20.0
"""So much may checks take beyond their share: a loop of a minute has its answer, a loop of days does not feel it."""
_SHARE_OF_LEVELS = 0.002


@dataclass(slots=True)
class Schedule:
    """Plain numbers that say what is due.

    Attributes:
        overhead: The share of the loop's time that watching may take.
        first_step: The step after which the first check may begin.
        next_check: The step at which the next check is due.
        expected_seconds: What a check is expected to take of the processor; 0.0 before the first.
        spent_seconds: What watching took of the processor so far; on a loaded machine its pauses are longer.
    """

    overhead: float
    first_step: int
    next_check: int = 0
    expected_seconds: float = 0.0
    spent_seconds: float = 0.0

    def begin(self, total_steps: int | None) -> None:
        """Set the first check, earlier in a loop that is known to be short."""
        short = self.first_step if total_steps is None else max(total_steps // 5, 1)
        self.next_check = min(self.first_step, short)

    def may_check(self, elapsed: float) -> bool:
        """Return whether a check may begin now: always the first, then within the share of time."""
        if not self.expected_seconds:
            return True
        return self.spent_seconds + self.expected_seconds <= self.overhead * elapsed + _FREE_SECONDS

    def end_check(self, step: int, seconds: float, look_again: int | None) -> None:
        """Set the next check after one that ended at *step* and took *seconds* of watching."""
        self.expected_seconds = seconds
        self.next_check = look_again if look_again is not None else _GROWTH * max(step, 1)

    def hasten(self, step: int) -> None:
        """Let the next check begin at *step*, if it was to be later."""
        self.next_check = min(self.next_check, step)

    def steps_per_run(self, step: int, seconds_per_step: float, total_steps: int | None, periods: Sequence[int]) -> int:
        """Return how many steps are one run of the next check.

        Args:
            step: Steps so far.
            seconds_per_step: Of the loop.
            total_steps: Steps of the whole loop; None where nobody told.
            periods: Steps after which the loop does something else (validates, saves), as far as they are known.
        """
        steps = min(max(_FEWEST_STEPS, step // _RUNS_OF_ALL), _MOST_STEPS)
        if seconds_per_step > 0:
            steps = min(steps, max(_FEWEST_OF_SLOW, int(_MOST_SECONDS / seconds_per_step)))
        steps = run_length(steps, periods)
        if total_steps is not None:
            steps = min(steps, max(1, (total_steps - step) // _RUNS_THAT_FIT))
        return steps


def steps_between_levels(seconds_per_step: float, cost: float, spacing: int) -> int:
    """Return after how many steps the levels are read again, where one reading takes *cost* seconds."""
    affordable = math.ceil(cost / (_SHARE_OF_LEVELS * seconds_per_step)) if seconds_per_step > 0 else 1
    return max(affordable, spacing, 1)


def refuse_wrong_numbers(*, total_steps: object, overhead: object, first_step: object) -> None:
    """Raise a TypeError or ValueError that names the first number which is none, or out of range."""
    if not (total_steps is None or (isinstance(total_steps, int) and total_steps > 0)):
        msg = f"total_steps must be a whole number above 0, or None if nobody knows, not {total_steps!r}"
        raise ValueError(msg) if isinstance(total_steps, int) else TypeError(msg)
    if not (isinstance(first_step, int) and first_step >= 0):
        msg = f"first_step must be a whole number, 0 or more, not {first_step!r}"
        raise ValueError(msg) if isinstance(first_step, int) else TypeError(msg)
    if not (isinstance(overhead, (int, float)) and 0 < overhead <= 1):
        msg = f"overhead must be a share of the loop's time above 0 and at most 1, such as 0.01, not {overhead!r}"
        raise ValueError(msg) if isinstance(overhead, (int, float)) else TypeError(msg)
