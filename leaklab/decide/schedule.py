"""Decide how many runs come next: enough to be sure, no more than the question needs."""

from __future__ import annotations

import math

# Lengths without a common pattern: a list that is flushed every few runs would look as if it grew if every phase ended
# at the same place of its period. (8, 7, 9) tells every period up to 25 from growth.
_FAST_PHASES = (8, 7, 9, 16)
_SLOW_PHASES = (4, 3, 5, 8)
_FAST_SECONDS_PER_RUN = 0.6
_CHEAP_SECONDS = 2.0
"""As long as a clean check has cost less than this, a third phase is run all the same: it finds rarer leaks."""


def next_phase(
    *, phases_done: int, runs_left: int, seconds_per_run: float, seconds_left: float, growing: bool, is_open: bool
) -> int:
    """Return the number of runs of the next phase, 0 if the check is over.

    Args:
        phases_done: Phases measured so far.
        runs_left: Runs that the user's limit still allows.
        seconds_per_run: What a run costs, estimated from those before; 0.0 if unknown.
        seconds_left: Seconds until the time limit.
        growing: Whether anything seems to grow.
        is_open: Whether any question is still without an answer.
    """
    phases = _FAST_PHASES if seconds_per_run <= _FAST_SECONDS_PER_RUN else _SLOW_PHASES
    if runs_left <= 0 or seconds_left <= 0:
        return 0
    length = phases[min(phases_done, len(phases) - 1)]
    cheap = seconds_per_run * sum(phases[:phases_done]) < _CHEAP_SECONDS
    if phases_done == 2 and not (growing or cheap):  # noqa: PLR2004 - two phases are the least that shows growth
        return 0
    if phases_done > 2 and not is_open:  # noqa: PLR2004
        return 0
    wanted = min(length, _share(runs_left, phases_done))
    affordable = math.floor(seconds_left / seconds_per_run) if seconds_per_run else wanted
    return max(1, min(wanted, affordable))


def _share(runs_left: int, phases_done: int) -> int:
    """Split few runs so that at least two phases can be compared, three if there are enough."""
    if phases_done == 0 and runs_left < sum(_FAST_PHASES[:3]):
        return math.ceil(runs_left / 2) if runs_left < sum(_SLOW_PHASES[:3]) else math.ceil(runs_left / 3)
    if phases_done == 1 and runs_left > _FAST_PHASES[1]:
        return math.ceil(runs_left / 2) if runs_left < sum(_FAST_PHASES[1:3]) else runs_left
    return runs_left
