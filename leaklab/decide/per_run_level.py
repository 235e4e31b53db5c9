"""Judge a level read after every run, in bytes: noisy, in steps, with falls that mean nothing.

Counted is what was never given back: the smallest level of all later readings. Transient peaks and the teeth of a
saw vanish in it, the steps of a leak do not. Those steps are then asked for their rhythm, as cohorts are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import accumulate, pairwise
from statistics import median

from leaklab.decide.growth import IMPROBABLE, MIN_SILENCE, Growth, Rhythm, mann_kendall_z, noise_of
from leaklab.model import MIN_RUNS, Outcome
from leaklab.text import format_bytes

MIN_LEVELS = 8

FEW_STEPS = 10
"""With fewer confirmed steps, a leak must show in every one of them, and no pause is called an end."""

N_CONFIRMING = 2
"""A step counts once so many later readings show it too."""

SLOWING_Z = -2.0
SLOWING_RATIO = 0.75
STOPPING_RATIO = 0.15
MIN_STEPS = 3
DOUBTFUL = 0.05
ONE_OFF, ONE_OFF_SHARE = 8.0, 0.25
"""A step so many times as high as any other, and of this share of the growth, is no part of a rate: it came once."""


@dataclass(frozen=True, slots=True)
class _Series:
    """A series of levels and what is left of it once noise and releases are out.

    Attributes:
        levels: As read, single outliers removed.
        kept: Level that no later reading falls below, without the last readings, which nothing confirms.
        noise: Typical distance of a reading from its neighbours beyond the steady change.
        floor: Growth per run that matters.
        n_warm: Readings that may belong to the warm-up.
        swing: From the smallest reading to the largest, outliers included.
    """

    levels: tuple[float, ...]
    kept: tuple[float, ...]
    noise: float
    floor: float
    n_warm: int
    swing: float

    @property
    def steps(self) -> tuple[float, ...]:
        return tuple(later - earlier for earlier, later in pairwise(self.kept))

    @property
    def least_step(self) -> float:
        return max(self.floor / 2, 2 * self.noise)

    @property
    def rhythm(self) -> Rhythm:
        """Steps after the first run; it may be a warm-up whatever its size."""
        return Rhythm.of(self.steps[1:], self.least_step)

    @property
    def settled_growth(self) -> float:
        return self.kept[-1] - self.kept[self.n_warm]

    @property
    def least_growth(self) -> float:
        """Half of what the floor makes in the settled runs, and more than noise can rise by."""
        return max(self.floor / 2 * (len(self.kept) - 1 - self.n_warm), 5 * self.noise)

    @property
    def halves(self) -> tuple[float, float]:
        middle = (self.n_warm + len(self.kept) - 1) // 2
        return self.kept[middle] - self.kept[self.n_warm], self.kept[-1] - self.kept[middle]

    @property
    def mean_rate(self) -> float:
        """Growth per run of all settled runs."""
        return self.settled_growth / (len(self.kept) - 1 - self.n_warm)

    @property
    def rate(self) -> float:
        """Growth per run of the second half, from its first step to its last."""
        steps = self.steps[len(self.steps) // 2 :]
        hits = Rhythm.of(steps, self.least_step).hits
        if len(hits) < 2 or self.rhythm.widest > len(steps) // 2:  # noqa: PLR2004 - steps too rare to time by half
            return self.mean_rate
        return sum(steps[hits[0] + 1 : hits[-1] + 1]) / (hits[-1] - hits[0])


def judge_per_run_bytes(levels: Sequence[float], *, floor_per_run: float) -> Growth:
    """Judge a level that was read after every run.

    Args:
        levels: Bytes; the first reading is before run 1.
        floor_per_run: A leak of so many bytes per run must be found, far less is noise.

    Returns:
        The judgement; its rate is in bytes per run.
    """
    if len(levels) < MIN_LEVELS:
        n_runs = max(0, len(levels) - 1)
        least = min((later - earlier for earlier, later in pairwise(levels[1:])), default=0.0)
        if n_runs >= MIN_RUNS and least >= floor_per_run / 2:  # what counts as a step where there are more levels
            reason = f"rose by {format_bytes(least)} or more in each run but the first"
            return Growth(Outcome.INCONCLUSIVE, least, f"{reason}: {n_runs} runs are too few for a noisy level")
        return Growth(Outcome.INCONCLUSIVE, 0.0, f"{n_runs} runs are too few for a noisy level")
    series = _series_of(levels, floor_per_run)
    growth = next(growth for rule in _RULES if (growth := rule(series)) is not None)
    if growth.outcome is not Outcome.LEAK or not (run := _one_off(series)):
        return growth
    step = series.steps[run - 1]
    rest = judge_per_run_bytes([*levels[:run], *(level - step for level in levels[run:])], floor_per_run=floor_per_run)
    return replace(rest, reason=f"{rest.reason}; apart from that, {format_bytes(step)} once, in run {run}")


def _one_off(series: _Series) -> int:
    """Return the run whose step is no part of a steady growth, for its height; 0 where there is none."""
    first, second = nlargest(2, range(series.n_warm, len(series.steps)), key=series.steps.__getitem__)
    highest = series.steps[first]
    is_alone = highest > ONE_OFF * max(series.steps[second], series.noise)
    return first + 1 if is_alone and highest > ONE_OFF_SHARE * series.settled_growth else 0


def _series_of(levels: Sequence[float], floor_per_run: float) -> _Series:
    inner = [median(levels[i - 1 : i + 2]) for i in range(1, len(levels) - 1)]
    smooth = [levels[0], *inner, levels[-1]]
    lowest_later = list(accumulate(reversed(smooth), min))[::-1]
    return _Series(
        levels=tuple(smooth),
        kept=tuple(lowest_later[:-N_CONFIRMING]),
        noise=noise_of(levels),
        floor=floor_per_run,
        n_warm=max(1, len(levels) // 6),
        swing=max(levels) - min(levels),
    )


def _flat(series: _Series) -> Growth | None:
    if series.settled_growth >= series.least_growth:
        return None
    early = series.kept[series.n_warm] - series.levels[0]
    if early >= series.least_growth:
        return Growth(
            Outcome.BOUNDED, 0.0, f"grew by {format_bytes(early)} in the first {series.n_warm} runs, then stopped"
        )
    return Growth(
        Outcome.CLEAN, 0.0, f"the level kept {format_bytes(max(0.0, series.settled_growth))} in {_n_runs(series)} runs"
    )


def _sawtooth(series: _Series) -> Growth | None:
    """Judge a level that fell back: what it rose by since is a tooth unless the level passes its old peak."""
    peaks = list(accumulate(series.levels, max))
    falls = [i for i, level in enumerate(series.levels) if peaks[i] - level >= series.least_growth]
    if not falls or series.kept[-1] > peaks[falls[-1]] + series.least_step:
        return None
    top = format_bytes(series.swing)
    if max(series.steps[: falls[-1]], default=0.0) > series.least_step and _grows_from_tooth_to_tooth(series):
        return Growth(
            Outcome.INCONCLUSIVE,
            series.rate,
            f"rises and falls by up to {top}, and each low is higher than the one before",
        )
    return Growth(Outcome.BOUNDED, 0.0, f"rises and falls back, by up to {top}")


def _grows_from_tooth_to_tooth(series: _Series) -> bool:
    first, second = series.halves
    return min(first, second) >= series.least_growth / 2


def _few_steps(series: _Series) -> Growth | None:
    rhythm = series.rhythm
    if len(rhythm.hits) >= MIN_STEPS:
        return None
    growth = format_bytes(series.settled_growth)
    least_silence = MIN_SILENCE if not rhythm.gaps else max(MIN_SILENCE, 2 * rhythm.widest + 1)  # a dict doubles
    if rhythm.length >= FEW_STEPS and rhythm.tail >= least_silence:
        reason = f"{_steps(len(rhythm.hits))} of {growth} in all, flat for the last {rhythm.tail} runs"
        return Growth(Outcome.BOUNDED, 0.0, reason)
    return Growth(
        Outcome.INCONCLUSIVE, series.rate, f"{_steps(len(rhythm.hits))} of {growth} in all: no regular pattern yet"
    )


def _few_runs(series: _Series) -> Growth | None:
    rhythm = series.rhythm
    if rhythm.length >= FEW_STEPS or len(rhythm.hits) == rhythm.length:
        return None
    reason = f"{_steps(len(rhythm.hits))} in {_n_runs(series)} runs: too few runs to see a regular pattern"
    return Growth(Outcome.INCONCLUSIVE, series.rate, reason)


def _stopped(series: _Series) -> Growth | None:
    rhythm = series.rhythm
    if rhythm.tail <= rhythm.widest:
        return None
    chance = rhythm.chance_of_silence(rhythm.tail)
    growth = format_bytes(series.kept[-1] - series.kept[0])
    grew = f"grew by {growth} in the first {rhythm.hits[-1] + 2} of {_n_runs(series)} runs"
    if rhythm.tail >= MIN_SILENCE and chance < IMPROBABLE:
        return Growth(Outcome.BOUNDED, 0.0, f"{grew}, then stopped")
    if chance < DOUBTFUL:
        return Growth(
            Outcome.INCONCLUSIVE, series.rate, f"{grew}, flat for {rhythm.tail} runs since: the growth may have stopped"
        )
    return None


def _one_pause(series: _Series) -> Growth | None:
    rhythm = series.rhythm
    if not rhythm.is_one_pause():
        return None
    return Growth(Outcome.INCONCLUSIVE, series.rate, f"grew in bursts with {rhythm.widest - 1} flat runs between")


def _late_start(series: _Series) -> Growth | None:
    rhythm = series.rhythm
    if (
        rhythm.lead <= rhythm.widest
        or rhythm.chance_of_silence(rhythm.lead) >= DOUBTFUL
        or rhythm.lead <= series.n_warm
    ):
        return None
    return Growth(Outcome.INCONCLUSIVE, series.rate, f"flat for {rhythm.lead} runs, growing since")


def _slowing(series: _Series) -> Growth | None:
    first, second = series.halves
    steps = series.steps[series.n_warm :]
    if second > SLOWING_RATIO * first or mann_kendall_z(steps) > SLOWING_Z:
        return None
    reason = f"slowing down: {format_bytes(first)} in the first half, {format_bytes(second)} in the second"
    if second <= STOPPING_RATIO * first and len(series.rhythm.hits) > series.rhythm.length // 2:
        return Growth(Outcome.BOUNDED, 0.0, reason)
    return Growth(Outcome.INCONCLUSIVE, series.rate, reason)


def _weak_half(series: _Series) -> Growth | None:
    first, second = series.halves
    if min(first, second) >= series.least_growth / 4:
        return None
    reason = f"{format_bytes(first)} in the first half, {format_bytes(second)} in the second: no steady growth"
    return Growth(Outcome.INCONCLUSIVE, series.rate, reason)


def _grows(series: _Series) -> Growth | None:
    growth = format_bytes(series.settled_growth)
    reason = f"{_steps(len(series.rhythm.hits))} in {_n_runs(series)} runs, {growth} never given back"
    return Growth(Outcome.LEAK, series.rate, reason, series.mean_rate)


_RULES: tuple[Callable[[_Series], Growth | None], ...] = (
    _flat,
    _sawtooth,
    _few_steps,
    _few_runs,
    _stopped,
    _one_pause,
    _late_start,
    _slowing,
    _weak_half,
    _grows,  # what is left is a leak: no rule after this one
)


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def _n_runs(series: _Series) -> int:
    return len(series.levels) - 1
