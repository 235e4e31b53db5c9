"""Read levels of memory and lengths of containers while the loop runs, and let them speak on its states.

When to look is decided by what looking costs, by how far the loop is, and by what has been seen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leaklab.decide.loop_states import LoopStates
from leaklab.decide.rising_level import FIRST_LOOK, Free, find_periods, find_rise, next_look, run_length
from leaklab.measure.gauges import free_accelerator_bytes, free_host_bytes
from leaklab.measure.level_history import DEAD, HolderLengths, LevelHistory
from leaklab.model.loop import ACCELERATOR, HOST, StateChange

_FEWEST_STEPS = 23
"""Of a run. Not 25: that divides the 50, 100, 200 steps after which loops validate and log."""
_RUNS_OF_ALL = 200
"""A run is such a part of the steps so far: what happens in every epoch happens in some runs of every check."""
_MOST_STEPS = 500
_MOST_SECONDS = 20.0
_RUNS_THAT_FIT = 45
"""Runs of a check, those that look for lines included, at most: a short loop has to have room for them."""
_FEWEST_OF_SLOW = 3
_GROWTH = 3
"""Where nothing grows, the next check is at so many times the steps."""
_FREE_SECONDS, _FREE_WHERE_IT_RISES = 2.0, 6.0
"""So much may checks take beyond their share: a loop of a minute has its answer, a loop of days does not feel it. More
where memory is seen to rise in no place that is known: that is worth another check."""
_FIRST_STEPS, _FIRST_SECONDS, _LATEST_FIRST = 10, 5.0, 200
"""The first check begins after so many steps, and so many seconds, at the latest after so many steps more."""
_RUNS_OF_FIRST, _RUNS_OF_FROZEN = 25, 5
"""So many runs of the first check make the loop twice as long; fewer where each of them lists the whole heap."""
_RUNS_OF_SLOW, _SLOW_STEP = 100, 0.05
"""Of steps that take so many seconds, counting after each costs little, and a loop that ends soon has its answer."""
_PARTS = 10
"""The first check looks at up to eight times the steps, and then at some more for the lines."""
_SHARE_OF_LEVELS = 0.002
_LEAST_RISE = 1 << 20
"""Bytes: what has risen by less, at no place that is known, is not worth a word; our own imports make as much."""


@dataclass(slots=True)
class Schedule:
    """Plain numbers that say what is due.

    Attributes:
        overhead: The share of the loop's time that watching may take.
        first_step: The step after which the first check begins; None: after ten steps and five seconds, or 200 steps.
        not_before: No check begins in the first so many seconds.
        next_check: The step at which the next check is due.
        expected_seconds: What a check is expected to take of the processor; 0.0 before the first.
        spent_seconds: What watching took of the processor so far; on a loaded machine its pauses are longer.
        free_seconds: What checks may take beyond their share.
        loop_step: The step, and *loop_seconds* the time, at which the loop began that is watched now.
    """

    overhead: float
    first_step: int | None
    not_before: float = 0.0
    next_check: int = 0
    expected_seconds: float = 0.0
    spent_seconds: float = 0.0
    free_seconds: float = _FREE_SECONDS
    loop_step: int = 0
    loop_seconds: float = 0.0

    @property
    def is_first(self) -> bool:
        """Whether no check of this loop has ended yet."""
        return not self.expected_seconds

    def begin_again(self, step: int, elapsed: float) -> None:
        """Note that another loop begins, in which a first check is due as it was in the one before."""
        self.loop_step, self.loop_seconds, self.expected_seconds = step, elapsed, 0.0
        self.begin(None)
        self.next_check += step

    def begin(self, total_steps: int | None) -> None:
        """Set the first check, earlier in a loop that is known to be short."""
        latest = _LATEST_FIRST if self.first_step is None else self.first_step
        self.next_check = latest if total_steps is None else min(latest, max(total_steps // _PARTS, _FIRST_STEPS))

    def is_due(self, step: int, elapsed: float) -> bool:
        """Return whether a check is wanted after *step*, *elapsed* seconds after the loop began."""
        has_time = step - self.loop_step >= _FIRST_STEPS and elapsed - self.loop_seconds >= _FIRST_SECONDS
        is_early = self.first_step is None and self.is_first and has_time
        return elapsed >= self.not_before and (step >= self.next_check or is_early)

    def next_step(self, step: int, elapsed: float) -> int:
        """Return the step after which to ask again whether a check is due, *elapsed* seconds after the loop began.

        Before the first one that is asked after a quarter more steps each time: what the first step took tells nothing
        of the others. When the time has nearly come, the pace so far tells after how many.
        """
        n_steps, seconds = step - self.loop_step, elapsed - self.loop_seconds
        if not (self.first_step is None and self.is_first and self.next_check > step):
            return self.next_check
        until_due = math.ceil(n_steps * max(_FIRST_SECONDS - seconds, 0.0) / seconds) if seconds > 0 else n_steps
        further = max(min(-(-n_steps // 4), until_due), 1)
        return min(self.next_check, self.loop_step + max(_FIRST_STEPS, n_steps + further))

    def steps_per_first_run(
        self, step: int, seconds_per_step: float, periods: Sequence[int], *, is_frozen: bool
    ) -> int:
        """Return how many steps are one run of the first check, which looks at twice the steps, and again.

        Args:
            step: Steps so far, of which those of this loop count.
            seconds_per_step: Of the loop.
            periods: As for `steps_per_run`.
            is_frozen: Whether the user has frozen objects, so that each run costs a look at the whole heap.
        """
        n_runs = _RUNS_OF_SLOW if seconds_per_step >= _SLOW_STEP else _RUNS_OF_FIRST
        return run_length(max((step - self.loop_step) // (_RUNS_OF_FROZEN if is_frozen else n_runs), 1), periods)

    def may_check(self, elapsed: float) -> bool:
        """Return whether a check may begin now: always the first, then within the share of time."""
        if self.is_first:
            return True
        return self.spent_seconds + self.expected_seconds <= self.overhead * elapsed + self.free_seconds

    def end_check(self, step: int, seconds: float, look_again: int | None) -> None:
        """Set the next check after one that ended at *step* and took *seconds* of watching."""
        self.expected_seconds = seconds
        self.next_check = look_again if look_again is not None else _GROWTH * max(step, 1)

    def hasten(self, step: int) -> None:
        """Let the next check begin at *step*, if it was to be later: memory rises in no place that is known."""
        self.free_seconds = _FREE_WHERE_IT_RISES
        self.next_check = min(self.next_check, step)

    def steps_per_run(self, step: int, seconds_per_step: float, total_steps: int | None, periods: Sequence[int]) -> int:
        """Return how many steps are one run of the next check.

        Args:
            step: Steps so far.
            seconds_per_step: Of the loop.
            total_steps: Steps of the whole loop; None if not given.
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


def refuse_wrong(name: object, *, total_steps: object, overhead: object, first_step: object) -> None:
    """Raise a TypeError or ValueError that names the first argument of a wrong type, or number out of range."""
    if type(name) is not str:
        msg = f"the name of a monitor must be a str, not {type(name).__name__}"
        raise TypeError(msg)
    if not (total_steps is None or (isinstance(total_steps, int) and total_steps > 0)):
        msg = f"total_steps must be a whole number above 0, or None if it is not known, not {total_steps!r}"
        raise ValueError(msg) if isinstance(total_steps, int) else TypeError(msg)
    if not (first_step is None or (isinstance(first_step, int) and first_step >= 0)):
        msg = f"first_step must be a whole number, 0 or more, or None to let the loop's pace decide, not {first_step!r}"
        raise ValueError(msg) if isinstance(first_step, int) else TypeError(msg)
    if not (isinstance(overhead, (int, float)) and 0 < overhead <= 1):
        msg = f"overhead must be a share of the loop's time above 0 and at most 1, such as 0.01, not {overhead!r}"
        raise ValueError(msg) if isinstance(overhead, (int, float)) else TypeError(msg)


_LENGTHS_FACTOR = 1.2
"""The lengths of growing containers are read again when the loop is so much further, and when they decide something."""


def free_memory() -> Free:
    """Return what is free now."""
    return Free(float(free_host_bytes()), float(free_accelerator_bytes()))


class LevelWatch:
    """What is read between the checks.

    Args:
        states: What is known of the loop.

    Attributes:
        history: The levels so far.
        lengths: The containers that grow, as the checks have found them.
    """

    def __init__(self, states: LoopStates) -> None:
        self.history = LevelHistory()
        self.lengths = HolderLengths()
        self._states = states
        self._next_levels = 1
        self._cost = 0.0
        self._next_look = FIRST_LOOK
        self._lengths_read_at = 0

    def next_step(self, *, is_checking: bool) -> int:
        """Return the step after which something is to be read again; no lengths are read while a check is under way."""
        decisive = None if is_checking else self._states.next_reading(self._lengths_read_at)
        return self._next_levels if decisive is None else min(self._next_levels, decisive)

    def read(self, step: int, seconds: float, seconds_per_step: float, own: tuple[int, int] = (0, 0)) -> None:
        """Note the levels after *step*, *seconds* after the loop began, without what the watch itself takes."""
        began = time.perf_counter()
        self.history.note(step, seconds, own)
        cost = time.perf_counter() - began
        # The first reading imports and opens; what is typical comes out over the next ones.
        self._cost = cost if not self._cost else min(self._cost * 1.1, cost)
        self._next_levels = step + steps_between_levels(seconds_per_step, self._cost, self.history.spacing)

    def periods(self) -> tuple[int, ...]:
        """Return the steps after which the loop does something else (validates, saves), as far as they are known."""
        steps, seconds = self.history.seconds()
        return find_periods(steps[1:], np.diff(seconds) / np.maximum(np.diff(steps), 1))

    def read_lengths(self, step: int) -> Mapping[str, int]:
        """Return how long the containers are that grow; not while a check has frozen them."""
        self._lengths_read_at = step
        self.lengths.keep({place.fingerprint for place in self._states.standing})
        return self.lengths.read()

    def judge(
        self, step: int, total_steps: int | None, free: Free, checked_at: int, *, is_checking: bool, is_last: bool
    ) -> list[StateChange]:
        """Return what the levels say: what rises that no check has found, what stands still, what matters by now.

        Args:
            step: Steps so far.
            total_steps: Of the whole loop; None if not given.
            free: What is free.
            checked_at: The step at which the last check ended; 0 before that.
            is_checking: Whether a check is under way.
            is_last: Whether the loop has ended.
        """
        changes: list[StateChange] = []
        # A check under way has memory of its own: the level rises with it, and falls again.
        if is_last or (step >= self._next_look and not is_checking):
            changes += self._look_for_rises(step, total_steps, free, is_last=is_last)
        if not self._states.standing:
            return changes
        wanted = self._states.next_reading(self._lengths_read_at) or int(self._lengths_read_at * _LENGTHS_FACTOR) + 1
        if not is_checking and (step >= wanted or is_last):
            lengths = self.read_lengths(step)
            if is_last:  # what dies with the function that had the loop has grown until then
                lengths = {place: length for place, length in lengths.items() if length != DEAD}
            changes += self._states.take_lengths(step, lengths, total_steps, free, is_last=is_last)
        if is_last:  # and what it gave back says nothing of the loop
            return changes + self._states.weigh(step, total_steps, free)
        levels = {HOST: (self.history.heap(), self.history.rss()), ACCELERATOR: (self.history.accelerator(),)}
        changes += self._states.take_standstill(step, checked_at, levels, total_steps, free)
        changes += self._states.weigh(step, total_steps, free)
        return changes

    def _look_for_rises(self, step: int, total_steps: int | None, free: Free, *, is_last: bool) -> list[StateChange]:
        changes: list[StateChange] = []
        is_rising = False
        for memory, series in ((HOST, self.history.heap()), (ACCELERATOR, self.history.accelerator())):
            rise = find_rise(*series)
            # At its latest pace, too: the first steps fill caches, and what comes after them may be far less.
            is_small = rise is None or min(rise.risen, rise.per_step * (step - rise.since_step)) < _LEAST_RISE
            found = None if rise is None or is_small else (rise.since_step, rise.per_step)
            if found is None and is_last:
                continue  # what the end of the loop gave back has risen until then
            changes += self._states.take_level(memory, step, found, total_steps, free)
            is_rising |= found is not None
        self._next_look = next_look(step, is_rising=is_rising)
        return changes
