"""Read levels of memory and lengths of containers while the loop runs, and let them speak on its states."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from leaklab.collect.holder_lengths import HolderLengths
from leaklab.collect.level_history import LevelHistory
from leaklab.decide.loop_period import find_periods
from leaklab.decide.loop_states import Free, LoopStates
from leaklab.decide.rising_level import FIRST_LOOK, find_rise, next_look
from leaklab.model.monitor import ACCELERATOR, HOST, StateChange
from leaklab.monitoring.schedule import steps_between_levels

_LENGTHS_FACTOR = 1.1
"""The lengths of growing containers are read again when the loop is so much further."""


class LevelWatch:
    """What is read between the checks.

    Args:
        states: What is known of the loop.

    Attributes:
        history: The levels so far.
        lengths: The containers that grow, as the checks have found them.
        next_step: The step after which levels are to be read again.
    """

    def __init__(self, states: LoopStates) -> None:
        self.history = LevelHistory()
        self.lengths = HolderLengths()
        self.next_step = 1
        self._states = states
        self._cost = 0.0
        self._next_look = FIRST_LOOK
        self._next_lengths = 0

    def read(self, step: int, seconds: float, seconds_per_step: float) -> None:
        """Note the levels after *step*, *seconds* after the loop began."""
        began = time.perf_counter()
        self.history.note(step, seconds)
        cost = time.perf_counter() - began
        # The first reading imports and opens; what is typical comes out over the next ones.
        self._cost = cost if not self._cost else min(self._cost * 1.1, cost)
        self.next_step = step + steps_between_levels(seconds_per_step, self._cost, self.history.spacing)

    def periods(self) -> tuple[int, ...]:
        """Return the steps after which the loop does something else (validates, saves), as far as they are known."""
        steps, seconds = self.history.seconds()
        return find_periods(steps[1:], np.diff(seconds) / np.maximum(np.diff(steps), 1))

    def read_lengths(self, step: int) -> Mapping[str, int]:
        """Return how long the containers are that grow; not while a check has frozen them."""
        self._next_lengths = int(step * _LENGTHS_FACTOR) + 1
        self.lengths.keep({place.fingerprint for place in self._states.standing})
        return self.lengths.read()

    def judge(
        self, step: int, total_steps: int | None, free: Free, checked_at: int, *, is_checking: bool, is_last: bool
    ) -> list[StateChange]:
        """Return what the levels say: what rises that no check has found, what stands still, what matters by now.

        Args:
            step: Steps so far.
            total_steps: Of the whole loop; None where nobody told.
            free: What is free.
            checked_at: The step at which the last check ended; 0 before that.
            is_checking: Whether a check is under way.
            is_last: Whether the loop has ended.
        """
        changes: list[StateChange] = []
        # A check under way has memory of its own: the level rises with it, and falls again.
        if is_last or (step >= self._next_look and not is_checking):
            changes += self._look_for_rises(step, total_steps, free)
        if not self._states.standing:
            return changes
        if not is_checking and (step >= self._next_lengths or is_last):
            changes += self._states.take_lengths(step, self.read_lengths(step), total_steps, free)
        levels = {HOST: (self.history.heap(), self.history.rss()), ACCELERATOR: (self.history.accelerator(),)}
        changes += self._states.take_standstill(step, checked_at, levels, total_steps, free)
        changes += self._states.weigh(step, total_steps, free)
        return changes

    def _look_for_rises(self, step: int, total_steps: int | None, free: Free) -> list[StateChange]:
        changes: list[StateChange] = []
        is_rising = False
        for memory, series in ((HOST, self.history.heap()), (ACCELERATOR, self.history.accelerator())):
            rise = find_rise(*series)
            found = None if rise is None else (rise.since_step, rise.per_step)
            changes += self._states.take_level(memory, step, found, total_steps, free)
            is_rising |= rise is not None
        self._next_look = next_look(step, is_rising=is_rising)
        return changes
