"""Find what a loop does at fixed distances, such as validations: it shows as spikes of its times or of a level."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]

MIN_SAMPLES = 16
MIN_HITS = 4
"""A period was seen so many times at least."""

MIN_SHARE = 0.8
"""So many of the spikes that a period promises are there: one may be missed, or be small."""

IMPROBABLE = 1e-6
"""The chance that spikes at random make such a series, with room for all the periods that are tried."""

N_TALLEST = 24
"""Candidates for a period are the distances of so many of the tallest spikes."""

HALF_WINDOW = 12
N_DEVIATIONS = 6.0
TALLER = 1.5
"""What happens at a longer period, beside a shorter one, has spikes so many times as tall."""

MAX_STRETCH = 4
"""One period may make a run so many times as long as was wanted."""


def find_periods(steps: npt.ArrayLike, values: npt.ArrayLike) -> tuple[int, ...]:
    """Return the distances, in steps, at which *values* have spikes, shortest first; nothing where none is sure.

    Args:
        steps: Ascending. A period is found if it is a few samples long, and as exactly as samples are close.
        values: Of each step, or of the steps since the sample before: a level, or seconds per step.
    """
    at, raw = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    if len(at) < MIN_SAMPLES:
        return ()
    heights = _above_neighbours(raw)
    spread = float(np.median(np.abs(heights))) * 1.4826
    least = max(N_DEVIATIONS * spread, 1e-9 * float(np.abs(raw).max()))
    periods: list[int] = []
    while (period := _period_of_spikes(at, heights, least)) is not None:
        if periods and period <= periods[-1]:
            break
        periods.append(period)
        least = TALLER * float(np.median(heights[heights > least]))
    return tuple(periods)


def run_length(n_wanted: int, periods: Sequence[int]) -> int:
    """Return how many steps make one run of a check, if about *n_wanted* would do.

    A run holds whole periods, so that every run does the same; of the periods that are too long for that, it is no
    part: else what happens at them would come at the same run of every phase.
    """
    fitting = [period for period in periods if period <= MAX_STRETCH * n_wanted]
    unit = max(fitting, default=1)
    shortest = -(-n_wanted // unit) * unit
    longer = [period for period in periods if period > shortest]
    candidates = range(shortest, 2 * shortest + 1, unit)
    return next((n for n in candidates if not any(_is_part(n, period) for period in longer)), shortest)


def _is_part(n: int, period: int) -> bool:
    runs = period / n
    return abs(runs - round(runs)) < 1 / 5


def _above_neighbours(values: Column) -> Column:
    """Return by how much each value is above the median of those around it: a trend is no spike."""
    padded = np.pad(values, HALF_WINDOW, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * HALF_WINDOW + 1)
    return values - np.median(windows, axis=1)


def _period_of_spikes(at: Column, heights: Column, least: float) -> int | None:
    """Return the shortest period of the spikes above *least*; None if they have none, or may have it by chance."""
    is_spike = heights > least
    starts = np.flatnonzero(is_spike & ~np.concatenate([[False], is_spike[:-1]]))
    if len(starts) < MIN_HITS:
        return None
    spikes = at[starts].tolist()
    slack = float(np.diff(at).max())
    tolerance = slack if slack > 1 else 0.0
    chance = min(len(spikes) * (2 * tolerance + 1) / (at[-1] - at[0]), 0.99)
    n_needed = max(MIN_HITS, math.log(IMPROBABLE) / math.log(chance))
    tallest = at[np.sort(starts[np.argsort(heights[starts])[-N_TALLEST:]])].tolist()
    pairs = sorted((later - one, one) for i, one in enumerate(tallest) for later in tallest[i + 1 : i + 4])
    for distance, first in pairs:
        if distance <= 2 * tolerance:  # the next spike could not be told from the same one
            continue
        hits, n_promised = _followed(spikes, first, distance, tolerance, (at[0], at[-1]))
        if len(hits) >= n_needed and len(hits) >= MIN_SHARE * n_promised:
            begin, end = min(hits), max(hits)
            return round((hits[end] - hits[begin]) / (end - begin))
    return None


def _followed(
    spikes: list[float], first: float, distance: float, tolerance: float, ends: tuple[float, float]
) -> tuple[dict[int, float], int]:
    """Go from spike to spike by *distance*, both ways.

    Where the next one is not, the one after it is looked for. Every spike that is found corrects the way.

    Returns:
        The spikes that are there, by their number as seen from *first*, and how many there should be.
    """
    hits, n_promised = {0: first}, 1
    for way in (1, -1):
        position, number = first, 0
        while ends[0] <= position + way * distance <= ends[1]:
            position, number, n_promised = position + way * distance, number + way, n_promised + 1
            i = bisect_left(spikes, position - tolerance)
            if i < len(spikes) and spikes[i] <= position + tolerance:
                hits[number] = position = spikes[i]
    return hits, n_promised
