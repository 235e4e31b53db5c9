"""Judge the rule on the level of a long loop: many kinds of harmless loops and of leaks, simulated, truth first.

What is harmless has come to rest by step 80,000, is given back, or slows down as a square root does or faster: of what
still fills, no rule can tell that it will be full.

Usage: ``python benchmarks/level_rule.py [SEED ...]`` (three seeds by default). A series has 100,000 steps, one sample
about every 200, as many of them kept as a monitor keeps, and noise of three objects on each. The rule is asked at the
steps that a monitor asks it at, and once at the end. Prints a row for each kind and one line per bar for each seed;
the exit status is the number of bars missed.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from measuring import Bars

from leaklab.decide.rising_level import find_rise, next_look
from leaklab.measure.level_history import N_KEPT

N_STEPS = 100_000
CADENCE = 200
NOISE = 3.0
N_HARMLESS = 500
N_LEAKS = 300
SEEDS = (1, 2, 3)

Series = np.ndarray[Any, np.dtype[np.float64]]
Random = np.random.Generator
Maker = Callable[[Random], Series]

STEPS = np.arange(N_STEPS + 1, dtype=np.float64)


def between(random: Random, low: float, high: float) -> float:
    """Return a number between *low* and *high*, as often in each octave."""
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


def flat(random: Random) -> Series:
    """Nothing happens."""
    return np.full_like(STEPS, random.uniform(0, 10_000))


def periodic(random: Random) -> Series:
    """The level swings, as it does with batches that get longer and shorter over an epoch."""
    period, height = between(random, 300, 30_000), between(random, 20, 2_000)
    return height * (1 + np.sin(2 * np.pi * (STEPS / period + random.random())))


def saw(random: Random) -> Series:
    """Cyclic garbage that is collected at a fixed distance, or a log that is flushed."""
    period, rate = between(random, 500, 25_000), between(random, 0.01, 2)
    return rate * ((STEPS + random.uniform(0, period)) % period)


def uneven_saw(random: Random) -> Series:
    """Garbage that is collected when there is about so much of it: no two teeth are alike."""
    mean, rate = between(random, 500, 12_000), between(random, 0.01, 2)
    cuts = np.cumsum(mean * random.uniform(0.6, 1.4, size=int(N_STEPS / mean * 3) + 3))
    last_cut = np.concatenate([[0.0], cuts])[np.searchsorted(cuts, STEPS, side="right")]
    return rate * (STEPS - last_cut)


def warm_up(random: Random) -> Series:
    """Much is made once, in the first steps."""
    return between(random, 100, 50_000) * (1 - np.exp(-STEPS / between(random, 50, 5_000)))


def late_steps(random: Random) -> Series:
    """A few things are made, or dropped, once, whenever that is."""
    level = np.zeros_like(STEPS)
    for at in random.uniform(1_000, 99_000, size=random.integers(1, 5)):
        level[int(at) :] += between(random, 20, 5_000) * random.choice([1, 1, 1, -0.5])
    return level


def chance_cache(random: Random) -> Series:
    """A cache that is full when each of its keys came once, by chance."""
    n_keys = between(random, 100, 12_000)
    return n_keys * (1 - np.exp(-STEPS * between(random, 0.5, 2) / n_keys))


def replay_buffer(random: Random) -> Series:
    """A buffer that takes one entry a step until it is full."""
    return between(random, 0.05, 5) * np.minimum(STEPS, random.uniform(3_000, 80_000))


def late_buffer(random: Random) -> Series:
    """A buffer that begins to fill late, and is full later."""
    start = random.uniform(10_000, 50_000)
    return between(random, 0.05, 5) * np.clip(STEPS - start, 0, random.uniform(1_000, 30_000))


def lru(random: Random) -> Series:
    """An LRU cache of entries of unequal size: it fills, and wavers."""
    size = random.uniform(500, 20_000)
    wave = np.cumsum(random.normal(0, 0.02, STEPS.size))
    return np.minimum(STEPS, size) * random.uniform(0.1, 2) + wave - STEPS / N_STEPS * wave[-1]


def random_walk(random: Random) -> Series:
    """A level that goes up and down by chance and has no memory."""
    return np.cumsum(random.normal(0, between(random, 0.05, 2), STEPS.size))


def slow_returns(random: Random) -> Series:
    """A level that wanders and comes back, over thousands of steps (autoregressive)."""
    pull = 1 / between(random, 500, 5_000)
    shocks = random.normal(0, between(random, 0.1, 2), STEPS.size)
    level, levels = 0.0, np.empty_like(STEPS)
    for i, shock in enumerate(shocks.tolist()):
        level += shock - pull * level
        levels[i] = level
    return levels


def curriculum(random: Random) -> Series:
    """Batches get larger in stages, the last of them in the first two thirds."""
    level = np.zeros_like(STEPS)
    for at in np.sort(random.uniform(2_000, 66_000, size=random.integers(2, 8))):
        level[int(at) :] += between(random, 50, 500)
    return level


def jit_buckets(random: Random) -> Series:
    """A compiled variant for each length that comes, rare lengths come late."""
    n_buckets = int(random.integers(10, 60))
    chances = 1 / np.arange(1, n_buckets + 1) ** random.uniform(0.8, 2.0)
    first_seen = random.exponential(1 / (chances / chances.sum() * between(random, 0.002, 1)))
    first_seen = first_seen[first_seen < 80_000]
    return between(random, 10, 200) * np.searchsorted(np.sort(first_seen), STEPS, side="right")


def three_caches(random: Random) -> Series:
    """Caches that fill one after the other, each in its phase of the training."""
    level = np.zeros_like(STEPS)
    for start in (random.uniform(0, 15_000), random.uniform(25_000, 40_000), random.uniform(55_000, 70_000)):
        level += between(random, 0.05, 2) * np.clip(STEPS - start, 0, random.uniform(1_000, 12_000))
    return level


def fragmentation(random: Random) -> Series:
    """An allocator that takes another arena ever more rarely, and gives a part back now and then."""
    level, at = np.zeros_like(STEPS), between(random, 100, 1_000)
    while at < N_STEPS:
        level[int(at) :] += between(random, 50, 500)
        if random.random() < 0.3:
            level[int(at) + 400 :] -= between(random, 20, 200)
        at *= random.uniform(1.3, 2.2)
    return level


def growing_spikes(random: Random) -> Series:
    """Evaluations that take more each time and give everything back."""
    period, length = int(between(random, 1_000, 10_000)), int(between(random, 50, 800))
    return np.where(STEPS % period >= period - length, STEPS * between(random, 0.005, 0.2), 0.0)


def square_root(random: Random) -> Series:
    """What grows as a square root does, like the keys of an average over words that came already."""
    start = random.choice([0.0, random.uniform(0, 30_000)])
    return between(random, 1, 30) * np.sqrt(np.maximum(STEPS - start, 0))


def logarithm(random: Random) -> Series:
    """What grows as a logarithm does."""
    return between(random, 10, 1_000) * np.log1p(STEPS / between(random, 1, 2_000))


def two_phases(random: Random) -> Series:
    """Half way the frozen part is thawed: more is alive from then on, after a short warm-up."""
    start = random.uniform(20_000, 85_000)
    return between(random, 100, 10_000) * (1 - np.exp(-np.maximum(STEPS - start, 0) / between(random, 5, 800)))


def pause_and_resume(random: Random) -> Series:
    """The model goes to the disk now and then and comes back."""
    level = np.full_like(STEPS, between(random, 500, 10_000)) + warm_up(random)
    for at in random.uniform(5_000, 90_000, size=random.integers(1, 4)):
        level[int(at) : int(at + between(random, 200, 8_000))] *= random.uniform(0.05, 0.6)
    return level


def heavy_tails(random: Random) -> Series:
    """Every sample finds a batch of another length alive, some very long ones among them."""
    return between(random, 20, 500) * random.lognormal(0, random.uniform(0.3, 1.0), STEPS.size)


def long_epochs(random: Random) -> Series:
    """A list of the epoch's results, dropped at its end; epochs are of unequal length."""
    cuts = np.cumsum(random.uniform(8_000, 20_000, size=20))
    start = np.concatenate([[0.0], cuts])[np.searchsorted(cuts, STEPS, side="right")]
    return warm_up(random) + between(random, 0.05, 1) * (STEPS - start)


def slow_decay(random: Random) -> Series:
    """A level that rises fast, then falls slowly, and rises a little again at validations."""
    level = between(random, 500, 5_000) * np.exp(-STEPS / between(random, 20_000, 200_000))
    return level + 20 * (STEPS % 5_000 > 4_500)


def window(random: Random) -> Series:
    """A window of the latest results, a hundred or ten thousand of them."""
    return between(random, 0.5, 3) * np.minimum(STEPS, between(random, 100, 20_000)) + periodic(random) / 10


def every_step(random: Random) -> Series:
    """A leak of about one object a step."""
    return between(random, 0.3, 5) * STEPS


def every_hundredth(random: Random) -> Series:
    """One object in a hundred steps."""
    return np.floor(STEPS / 100) * random.uniform(0.7, 3)


def every_epoch(random: Random) -> Series:
    """A handler, or a list of results, for each epoch."""
    return between(random, 5, 500) * np.floor(STEPS / between(random, 300, 6_000))


def late_leak(random: Random) -> Series:
    """A leak that begins late, when another branch of the program is taken."""
    return between(random, 0.02, 2) * np.maximum(STEPS - random.uniform(30_000, 60_000), 0)


def leak_under_waves(random: Random) -> Series:
    """Swings of five times what leaks in one of them."""
    period, rate = between(random, 500, 3_000), between(random, 0.02, 1)
    return rate * STEPS + 2.5 * rate * period * (1 + np.sin(2 * np.pi * STEPS / period))


def leak_under_warm_up(random: Random) -> Series:
    """A warm-up that is as large as the leak becomes, or larger, hides its beginning."""
    rate = between(random, 0.02, 1)
    warm = rate * N_STEPS * random.uniform(0.5, 2) * (1 - np.exp(-STEPS / between(random, 300, 3_000)))
    return warm + rate * STEPS


def slow_leak(random: Random) -> Series:
    """One object in a thousand steps: as much as the noise of one sample in 3,000 of them."""
    return STEPS / 1_000 * random.uniform(1, 2)


def bursts(random: Random) -> Series:
    """Many at once, at times that nobody knows, a hundred times or more: the pace of fewer is a matter of chance."""
    times = np.cumsum(random.exponential(between(random, 100, 1_000), size=3_000))
    return between(random, 10, 100) * np.searchsorted(times, STEPS, side="right")


def leak_under_saw(random: Random) -> Series:
    """Garbage is collected at its distance, and a part of it stays."""
    period, rate = between(random, 500, 4_000), between(random, 0.05, 2)
    return rate * (STEPS % period) + random.uniform(0.1, 0.6) * rate * STEPS


def leak_under_spikes(random: Random) -> Series:
    """Evaluations take much and give nearly everything back."""
    period, rate = int(between(random, 500, 4_000)), between(random, 0.02, 1)
    spike = np.where(STEPS % period >= period * 0.9, rate * period * random.uniform(2, 8), 0.0)
    return spike + rate * period * np.floor(STEPS / period)


def leak_with_pause(random: Random) -> Series:
    """The loop leaks; once, a part of what is alive goes to the disk and comes back."""
    rate = between(random, 0.05, 2)
    level = rate * STEPS + random.uniform(0, 0.3) * rate * N_STEPS
    at = random.uniform(10_000, 60_000)
    level[int(at) : int(at + between(random, 500, 5_000))] *= random.uniform(0.3, 0.8)
    return level


def partly_given_back(random: Random) -> Series:
    """Three of ten things that are kept go again, a while later."""
    period, rate = between(random, 2_000, 8_000), between(random, 0.05, 2)
    return rate * (STEPS - 0.3 * period * np.floor(STEPS / period))


def growing_leak(random: Random) -> Series:
    """A leak that gets faster: every step keeps a list that is longer than the one before."""
    return between(random, 0.02, 1) * STEPS * (1 + STEPS / N_STEPS)


def longer_copies(random: Random) -> Series:
    """Every step keeps a copy of a list that is one longer than before."""
    return between(random, 0.1, 5) * STEPS**2 / N_STEPS


def leak_and_noise(random: Random) -> Series:
    """Batches of unequal length lie over the leak."""
    rate = between(random, 0.05, 1)
    return rate * STEPS + rate * 2_000 * random.lognormal(0, 0.5, STEPS.size)


HARMLESS: tuple[Maker, ...] = (
    flat, periodic, saw, uneven_saw, warm_up, late_steps, chance_cache, replay_buffer, late_buffer, lru, random_walk,
    slow_returns, curriculum, jit_buckets, three_caches, fragmentation, growing_spikes, square_root, logarithm,
    two_phases, pause_and_resume, heavy_tails, long_epochs, slow_decay, window,
)  # fmt: skip
LEAKS: tuple[Maker, ...] = (
    every_step, every_hundredth, every_epoch, late_leak, leak_under_waves, leak_under_warm_up, slow_leak, bursts,
    leak_under_saw, leak_under_spikes, leak_with_pause, partly_given_back, growing_leak, longer_copies,
    leak_and_noise,
)  # fmt: skip


@dataclass
class Outcome:
    """What the rule said about one series.

    Attributes:
        first_alarm: Step of the first alarm; None without one.
        n_alarms: How often an alarm was raised, withdrawn ones included.
        stands: Whether one stood at the end.
    """

    first_alarm: int | None = None
    n_alarms: int = 0
    stands: bool = False


def sampled(random: Random, level: Series) -> tuple[Series, Series]:
    """Return steps and readings: one about every 200 steps, with noise."""
    steps = np.arange(CADENCE, N_STEPS, CADENCE) + random.integers(-60, 60, size=N_STEPS // CADENCE - 1)
    steps = np.append(steps, N_STEPS).astype(np.float64)
    return steps, np.round(level[steps.astype(int)] + random.normal(0, NOISE, steps.size))


def kept_until(steps: Series, values: Series, step: float) -> tuple[Series, Series]:
    """Return the samples that a monitor still has at *step*: every other one goes whenever there are too many."""
    n = int(np.searchsorted(steps, step, side="right"))
    stride = 1
    while n / stride > N_KEPT:
        stride *= 2
    kept = np.arange(0, n, stride)
    if kept[-1] != n - 1:
        kept = np.append(kept, n - 1)
    return steps[kept], values[kept]


def watched(steps: Series, values: Series) -> Outcome:
    """Ask the rule whenever a monitor does, and at the end."""
    outcome, look = Outcome(), next_look(0, is_rising=False)
    while True:
        at = min(look, N_STEPS)
        is_rising = find_rise(*kept_until(steps, values, at)) is not None
        if is_rising and not outcome.stands:
            outcome.n_alarms += 1
            outcome.first_alarm = outcome.first_alarm or at
        outcome.stands = is_rising
        if at == N_STEPS:
            return outcome
        look = next_look(at, is_rising=is_rising)


def outcomes(makers: tuple[Maker, ...], n_series: int, seed: int) -> Iterator[tuple[str, list[Outcome]]]:
    """Return the outcomes of *n_series* series, as many of each kind."""
    for number, make in enumerate(makers):
        n = n_series // len(makers) + (number < n_series % len(makers))
        random = np.random.default_rng([seed, number, makers is LEAKS])
        yield make.__name__, [watched(*sampled(random, make(random))) for _ in range(n)]


def row(kind: str, found: list[Outcome]) -> None:
    """Print what became of one kind."""
    firsts = [one.first_alarm for one in found if one.first_alarm is not None]
    first = f"{statistics.median(firsts):>9,.0f}" if firsts else "        -"
    n_standing = sum(one.stands for one in found)
    n_alarms = sum(one.n_alarms for one in found)
    print(f"  {kind:<20} {len(found):>4} series {n_standing:>4} standing {n_alarms:>4} alarms   first at {first}")


def judge(seed: int, bars: Bars) -> None:
    """Print the rows and the bars of one seed."""
    print(f"seed {seed}: harmless")
    harmless = dict(outcomes(HARMLESS, N_HARMLESS, seed))
    for kind, found in harmless.items():
        row(kind, found)
    print(f"seed {seed}: leaks")
    leaks = dict(outcomes(LEAKS, N_LEAKS, seed))
    for kind, found in leaks.items():
        row(kind, found)
    standing = sum(one.stands for found in harmless.values() for one in found)
    ever = sum(one.n_alarms > 0 for found in harmless.values() for one in found)
    missed = sum(not one.stands for found in leaks.values() for one in found)
    print(f"  harmless loops that ever got an alarm: {ever} of {N_HARMLESS}")
    bars.at_most(f"seed {seed}: harmless loops, of {N_HARMLESS}, in alarm at the end", standing, 0)
    bars.at_most(f"seed {seed}: leaks, of {N_LEAKS}, not in alarm at the end", missed, 0)


def main() -> int:
    """Judge the seeds of the command line."""
    bars = Bars()
    for seed in [int(argument) for argument in sys.argv[1:]] or SEEDS:
        judge(seed, bars)
    return bars.n_missed


if __name__ == "__main__":
    sys.exit(main())
