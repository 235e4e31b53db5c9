"""Judge whether runs get slower, as they do when each one walks what the ones before it left behind."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from leaklab.decide.trend import mann_kendall_z

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
