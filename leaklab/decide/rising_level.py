"""Judge the level of a loop that goes on: does it rise, and since when?

Trend tests are useless here, because everything harmless trends: warm-ups, caches, swings. What a leak does and they
do not is to rise at the same pace over times that double, to the very end, for longer and by more than anything was
ever given back. No rule on a series can tell a buffer that fills from a leak before it is full: such an answer is
taken back when the level rests.

What a loop does at fixed distances, such as validations, shows as spikes of its times or of a level. A run of a check
holds whole distances, so that every run does the same.

What the growth leads to is what it takes until the loop ends, of what is free, and when nothing is left.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from leaklab.decide.growth import noise_of
from leaklab.model.loop import ACCELERATOR
from leaklab.text import format_bytes

Column = npt.NDArray[np.float64]

MIN_SAMPLES = 20
"""Fewer samples are too few for windows that double."""

LOOK_FACTOR, WITHDRAWAL_FACTOR = 1.4, 1.1
FIRST_LOOK = 500

LONG = 1 / 8
"""A flat stretch is long if it lasts for this share of the run so far, ..."""

FLAT = 1 / 8
"""... and flat if the level rises at less than this share of its later pace."""

MORE, LONGER = 1.5, 1.2
"""A rise lasts so many times as long as the longest excursion, and is so many times as high as the deepest fall."""

MATTERS = 1 / 5
"""What is given back matters beside a rise from this share of it on."""

N_DEVIATIONS = 8.0
"""A rise is at least so many times as high as the noise of one reading."""

N_WINDOWS = 3
SLOWEST = 0.6
"""The latest window keeps this share of the pace of each earlier one: a square root comes down to a half."""

FASTEST = 5.0
"""The latest window has at most so many times the pace of an earlier one: a square comes up to four times."""

FLOOR_NOISE = 0.5
"""The smallest of many readings wavers by about this share of the noise of one."""

PORTION, OVERDUE = 1 / 16, 2.0
"""A rise has stopped if its last portion, this share of it, is so many times as long ago as any took before."""


@dataclass(frozen=True, slots=True)
class RisingLevel:
    """A level that rises, and goes on rising.

    Attributes:
        since_step: It rises from this step on; the first one that was read where it always did.
        per_step: What it rises by per step, over the latest half of that time.
        risen: By so much since then.
    """

    since_step: int
    per_step: float
    risen: float


def next_look(step: int, *, is_rising: bool) -> int:
    """Return the step after *step* at which to ask again.

    The looks are spread over times that grow by a factor, which keeps the chances of a false alarm few. While an alarm
    stands it is asked more often whether it still does.
    """
    return max(FIRST_LOOK, int(step * (WITHDRAWAL_FACTOR if is_rising else LOOK_FACTOR)) + 1)


def find_rise(steps: npt.ArrayLike, levels: npt.ArrayLike) -> RisingLevel | None:
    """Judge the levels of a loop so far. Nothing is kept from one call to the next.

    Args:
        steps: Ascending, evenly spread to about a factor of two.
        levels: After these steps, in any unit.

    Returns:
        None unless the level rises, and has risen for long enough to tell.
    """
    at, readings = np.asarray(steps, np.float64), np.asarray(levels, np.float64)
    if len(readings) < MIN_SAMPLES:
        return None
    level, noise = _without_outliers(readings), noise_of(readings)
    # No later reading is below the floor. That of the last ones is confirmed by too few to count.
    n_confirmed = len(readings) - max(2, len(readings) // 32)
    floor = np.minimum.accumulate(level[::-1])[::-1][:n_confirmed]
    clock = _end_of_rest(at[:n_confirmed], floor)
    since, kept = at[clock:n_confirmed], floor[clock:]
    if len(since) < MIN_SAMPLES // 2:
        return None
    risen = float(kept[-1] - kept[0])
    fall, excursion = _given_back(at, level, MATTERS * risen)
    if risen <= max(MORE * fall, N_DEVIATIONS * noise) or since[-1] - since[0] <= LONGER * excursion:
        return None
    if not _keeps_pace(since, kept, noise) or _has_stopped(since, kept, noise):
        return None
    half = _middle(since)
    return RisingLevel(int(since[0]), float((kept[-1] - kept[half]) / (since[-1] - since[half])), risen)


def _without_outliers(levels: Column) -> Column:
    inner = np.median(np.stack([levels[:-2], levels[1:-1], levels[2:]]), axis=0)
    return np.concatenate([levels[:1], inner, levels[-1:]])


def _middle(at: Column) -> int:
    return int(np.searchsorted(at, (at[0] + at[-1]) / 2))


def _end_of_rest(at: Column, floor: Column) -> int:
    """Return the sample from which on the rise is judged: the end of the last long flat stretch, else the first."""
    length = (at[-1] - at[0]) * LONG
    ends = np.arange(int(np.searchsorted(at, at[0] + length)), len(at) - 1)
    begins = np.searchsorted(at, at[ends] - length, side="right") - 1
    pace = (floor[ends] - floor[begins]) / (at[ends] - at[begins])
    # The few samples after a late stretch tell no pace, so at least that of the latest half is asked.
    after = np.minimum(ends, _middle(at))
    later_pace = (floor[-1] - floor[after]) / (at[-1] - at[after])
    is_flat = pace < FLAT * later_pace
    return int(ends[is_flat][-1]) if is_flat.any() else 0


def _given_back(at: Column, level: Column, matters: float) -> tuple[float, float]:
    """Return the deepest fall ever, and the longest time after which as much as *matters* was given back."""
    peaks = np.maximum.accumulate(level)
    falls = peaks - level
    returned = np.flatnonzero(falls >= max(matters, np.finfo(float).tiny))
    left = np.searchsorted(peaks, level[returned] + matters)
    return float(falls.max()), float(np.max(at[returned] - at[left], initial=0.0))


def _keeps_pace(at: Column, floor: Column, noise: float) -> bool:
    """Tell whether the latest of windows that double has the pace of the others, or more.

    Where the rise comes in unequal portions, an early window may have got one too many, or too few, by chance.
    """
    edges = at[0] + (at[-1] - at[0]) * 2.0 ** np.arange(-N_WINDOWS, 1)
    widths, rises = np.diff(edges), np.diff(np.interp(edges, at, floor))
    error = FLOOR_NOISE * noise
    bounds = np.searchsorted(at, edges).tolist()
    chances = np.array([_deviation_of_sum(np.diff(floor[begin:end]), noise) for begin, end in pairwise(bounds)])
    latest = (rises[-1] - error) / widths[-1]
    highest = ((rises - chances + error) / widths)[:-1].max()
    lowest = ((rises - chances - error) / widths)[:-1].min()
    return bool(latest > 0 and SLOWEST * highest <= latest <= FASTEST * lowest)


def _deviation_of_sum(portions: Column, noise: float) -> float:
    """Return the standard deviation of the sum of *portions* that come by chance; that of the readings is left out."""
    return float(max(0.0, portions.var() - noise**2) * len(portions)) ** 0.5 if len(portions) else 0.0


def _has_stopped(at: Column, floor: Column, noise: float) -> bool:
    """Tell whether the level rests for longer than it ever did while it rose."""
    portion = max((floor[-1] - floor[0]) * PORTION, 2 * noise)
    reached = np.searchsorted(floor, floor + portion)
    is_reached = reached < len(at)
    waits = at[reached[is_reached]] - at[is_reached]
    silence = at[-1] - at[~is_reached][0]
    return bool(silence > OVERDUE * waits.max(initial=0.0))


PERIOD_SAMPLES = 16
MIN_HITS = 4
"""A period was seen so many times at least."""

MIN_SHARE = 0.8
"""So many of the spikes that a period promises are there: one may be missed, or be small."""

IMPROBABLE = 1e-6
"""The chance that spikes at random make such a series, with room for all the periods that are tried."""

N_TALLEST = 24
"""Candidates for a period are the distances of so many of the tallest spikes."""

HALF_WINDOW = 12
PERIOD_DEVIATIONS = 6.0
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
    if len(at) < PERIOD_SAMPLES:
        return ()
    heights = _above_neighbours(raw)
    spread = float(np.median(np.abs(heights))) * 1.4826
    least = max(PERIOD_DEVIATIONS * spread, 1e-9 * float(np.abs(raw).max()))
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


SHARE_THAT_MATTERS = 0.01
"""Of the free memory. A log of numbers takes some MiB in a run of days; what takes a hundredth of a machine is noticed
when a larger model, a longer run or a second process shares that machine."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """What growth leads to.

    Attributes:
        n_bytes: What it takes until the loop ends; where nobody told how long the loop is, until it is twice as long.
        free_bytes: What is free now, of host or accelerator.
        full_at_step: The step at which nothing is left; None if that is later than the end of the loop, or never.
        matters: Whether somebody has to know.
    """

    n_bytes: float
    free_bytes: float
    full_at_step: int | None
    matters: bool

    def words(self, total_steps: int | None) -> str:
        """Return it as a clause: ``memory is full at step 310,000``; empty where nobody knows when the loop ends."""
        if self.full_at_step is not None and self.matters:
            return f"memory is full at step {self.full_at_step:,}"
        if not self.n_bytes:
            return "the loop has ended"
        if total_steps is None:
            return ""
        taken, free = format_bytes(self.n_bytes), format_bytes(self.free_bytes)
        return f"by step {total_steps:,} it will take {taken} of the {free} now free"


def consequence_of(bytes_per_step: float, step: int, total_steps: int | None, free_bytes: float) -> Consequence:
    """Return what growth by *bytes_per_step* from *step* on leads to.

    Args:
        bytes_per_step: The rate; 0.0 or less leads to nothing.
        step: Steps made so far.
        total_steps: Steps of the whole loop; None if not given: as many as so far are expected to come.
        free_bytes: What is free now.
    """
    remaining = max(step if total_steps is None else total_steps - step, 0)
    n_bytes = max(bytes_per_step, 0.0) * remaining
    steps_left = free_bytes / bytes_per_step if bytes_per_step > 0 else math.inf
    is_full = math.isfinite(steps_left) and (total_steps is None or steps_left < remaining)
    full_at = step + math.floor(steps_left) if is_full else None
    return Consequence(n_bytes, free_bytes, full_at, n_bytes > SHARE_THAT_MATTERS * free_bytes)


@dataclass(frozen=True, slots=True)
class Free:
    """Free memory in bytes: of the host, and of the accelerator that has least, 0 without one."""

    host: float
    accelerator: float = 0.0

    def of(self, memory: str) -> float:
        """Return that of `HOST` or `ACCELERATOR`."""
        return self.accelerator if memory == ACCELERATOR else self.host
