"""Judge survivors per cohort: how many of the objects born in each run are alive at the end of the check.

The counts are exact, so one survivor is a fact and silence is a fact. What is asked is whether the facts keep a
rhythm to the end: something that grew and fell silent is full, something that keeps only the newest is a window, and
something that still grows at the pace of its settled part is a leak. Between those lies ``INCONCLUSIVE``, which more
runs resolve. No mean over all runs is taken anywhere: a large warm-up says nothing about run 1,000.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median

from leaklab.decide.growth import IMPROBABLE, MIN_SILENCE, SURE_RUNS, Growth, Rhythm, kendall_tau, mann_kendall_z
from leaklab.model import Outcome
from leaklab.text import format_rate

_LONGEST_WARMUP = 5
LEAST_HALF = 4
"""A rate is never read from fewer cohorts."""


@dataclass(frozen=True, slots=True)
class SurvivorCounts:
    """The complete cohorts: the newest is not among them.

    Attributes:
        counts: Survivors of each; halves where two cohorts share what was counted with one.
        hits: Positions of those that have survivors.
        settled: Their rhythm after the warm-up, which is the first eighth, one to five cohorts.
        n_slips: Silent cohorts that got a share of the one before them.
    """

    counts: tuple[float, ...]
    hits: tuple[int, ...]
    settled: Rhythm
    n_slips: int

    @classmethod
    def of(cls, kept: Sequence[int]) -> SurvivorCounts:
        """Take *kept*, the survivors of each complete cohort; what is below zero counts as none."""
        raw = [max(0, count) for count in kept]
        counts = _undo_slips(raw)
        hits = tuple(i for i, count in enumerate(counts) if count)
        n_warm = min(max(1, len(counts) // 8), _LONGEST_WARMUP)
        return cls(counts, hits, Rhythm.of(counts[n_warm:]), len(hits) - sum(1 for count in raw if count))

    @property
    def n(self) -> int:
        """Number of complete cohorts: one less than the runs."""
        return len(self.counts)

    @property
    def later_hits(self) -> tuple[int, ...]:
        """Hits after the first run, which may be a warm-up."""
        return tuple(i for i in self.hits if i > 0)

    @property
    def first_settled(self) -> int:
        """Position of the first hit after the warm-up."""
        return self.n - self.settled.length + self.settled.lead

    @property
    def rate(self) -> float:
        """Survivors per run of the last half, from its first hit to its last so that no rhythm is cut.

        One amount more than three times the next largest is a one-off and counts as the typical one. Where all but the
        last are the same, the last run left as many: one of its objects was in use when it was counted.
        """
        amounts = list(self.counts[-max(LEAST_HALF, (self.n + 1) // 2) :])
        if len(amounts) > LEAST_HALF and len(set(amounts[:-1])) == 1 and 0 < amounts[-1] < amounts[0]:
            return amounts[0]
        hits = [i for i, amount in enumerate(amounts) if amount]
        if len(hits) < 2:  # noqa: PLR2004
            return sum(amounts) / len(amounts)
        *_, second, largest = sorted(amounts)
        if len(hits) >= 4 and largest > 3 * second:  # noqa: PLR2004
            amounts[amounts.index(largest)] = median([amounts[i] for i in hits])
        return sum(amounts[hits[0] + 1 : hits[-1] + 1]) / (hits[-1] - hits[0])

    @property
    def words(self) -> str:
        """How many runs left something behind, and how much."""
        return f"{len(self.hits)} of {self.n} runs left something behind ({format_rate(sum(self.counts))} in all)"


def _undo_slips(raw: Sequence[int]) -> tuple[float, ...]:
    """Give a silent cohort its share of a doubled one before it: an id can be attributed to the run before its own."""
    counts: list[float] = list(raw)
    typical = median([count for count in counts if count] or [0])
    for i in range(1, len(counts) - 1):
        if counts[i] == 0 and counts[i + 1] > 0 and counts[i - 1] >= 2 * typical:
            counts[i - 1] = counts[i] = counts[i - 1] / 2
    return tuple(counts)


MIN_COHORTS = 4
"""Complete cohorts (the newest is never one) below which nothing is said."""

FEW_COHORTS = 7
"""Below this, a leak must show in every cohort, and only where nothing is left is nothing said to be."""

ENOUGH_COHORTS = 10
"""From here on one silent cohort at the end is no reason to go on."""

SURE_COHORTS = SURE_RUNS - 1
"""From here on one lone survivor is a one-off, though not so many runs have passed since as before it."""

DOUBTFUL = 0.05
"""A silence less probable than this keeps the question open; below `IMPROBABLE` it closes it."""

SLOWING_Z = -2.0
"""Mann-Kendall statistic of the settled part below which it slows down; 2.3 % of steady random series are below."""

FADING_Z = (-1.6, -2.5)
"""The same, of the settled part and of the whole series together: neither alone would do."""

STARTING_Z = 2.3

MIN_HITS = 3

ENOUGH_HITS = 5
"""Survivors in so many runs are growth without any regularity; fewer must come at equal distances."""


def judge_survivors(kept: Sequence[int]) -> Growth:
    """Judge the survivors of each run.

    Args:
        kept: For each measured run, how many of the objects born in it are alive at the end of the check. The last
            entry is ignored: a cell may hold its newest values.

    Returns:
        The judgement; its rate is in objects per run.
    """
    cohorts = SurvivorCounts.of(kept[:-1])
    if cohorts.n < MIN_COHORTS:
        return Growth(Outcome.INCONCLUSIVE, 0.0, f"{len(kept)} runs are too few to tell a leak from a warm-up")
    return next(growth for rule in _RULES if (growth := rule(cohorts)) is not None)


def longest_pause(kept: Sequence[int]) -> int:
    """Return the most runs from one that left something to the next; 0 where that is not known."""
    hits = [run for run, count in enumerate(kept) if count]
    return max((after - before for before, after in pairwise(hits)), default=0)


def survivors_of_level(levels: Sequence[int]) -> tuple[int, ...]:
    """Return by how much each run raised an exact level for good, as if that were survivors of the run.

    Args:
        levels: How many there were before the first run and after each. What rises and falls again is in none of them:
            what counts is the smallest of all later levels.
    """
    lowest_later = list(accumulate(reversed(levels), min))[::-1]
    return tuple(after - before for before, after in pairwise(lowest_later))


def judge_backlog(kept: Sequence[int], levels: Sequence[float], n_bytes: float) -> Growth | None:
    """Judge whether what keeps only the newest keeps more and more of them: a queue that is emptied too slowly.

    As many runs as left nothing is a window of fixed size full when the check ends, and takes no more; and so many runs
    did what starts late take nothing. A backlog takes memory in the first runs as in the last, and never gives much of
    it back: what is let go in batches does, and what the first batch takes once does not make a backlog of them.

    Args:
        kept: As for `judge_survivors`.
        levels: Bytes taken before the first run and after each, of what the survivors are part of.
        n_bytes: What the survivors take.

    Returns:
        The judgement; None where this is no backlog, or the levels do not show one.
    """
    cohorts = SurvivorCounts.of(kept[:-1])
    is_newest = bool(cohorts.hits) and len(cohorts.hits) == cohorts.n - cohorts.hits[0]
    if not is_newest or cohorts.hits[0] < MIN_SILENCE or len(levels) != len(kept) + 1 or n_bytes <= 0:
        return None
    lasting = list(accumulate(reversed(levels), min))[::-1]
    stretch = min(cohorts.hits[0], len(kept) // 2)
    rise, first, last = lasting[-1] - lasting[0], lasting[stretch] - lasting[0], lasting[-1] - lasting[-1 - stretch]
    is_steady = min(first, last) >= _STEADY * rise * stretch / len(kept)
    fall = max(highest - level for highest, level in zip(accumulate(levels, max), levels, strict=True))
    if not is_steady or fall > _MOST_FALL * rise or not _STEADY <= rise / n_bytes <= 1 / _STEADY:
        return None
    n_alive = len(kept) - cohorts.hits[0]
    reason = (
        f"more objects are added than removed: those of the last {n_alive} of {len(kept)} runs are alive, and "
        "more after each run"
    )
    return Growth(Outcome.LEAK, sum(kept) / len(kept), reason)


_STEADY = 0.6
"""Of the mean pace; a window and a late start show none of it in their silent stretch."""
_MOST_FALL = 0.5
"""Of the whole rise, given back at once: more than that is a batch that was let go."""


def _nothing(cohorts: SurvivorCounts) -> Growth | None:
    if cohorts.hits:
        return None
    reason = f"nothing piled up in {cohorts.n + 1} runs: only the latest run's objects are alive"
    return Growth(Outcome.CLEAN, 0.0, reason)


def _warm_up_only(cohorts: SurvivorCounts) -> Growth | None:
    if cohorts.hits != (0,) or cohorts.n < FEW_COHORTS:
        return None
    return Growth(
        Outcome.CLEAN,
        0.0,
        f"only the first of {cohorts.n + 1} runs left anything behind ({format_rate(cohorts.counts[0])})",
    )


def _newest_two(cohorts: SurvivorCounts) -> Growth | None:
    if cohorts.hits != (cohorts.n - 1,) or cohorts.n < FEW_COHORTS:
        return None
    reason = f"nothing piled up in {cohorts.n + 1} runs: only the latest two runs' objects are alive"
    return Growth(Outcome.CLEAN, 0.0, reason)


def _every_run(cohorts: SurvivorCounts) -> Growth | None:
    if len(cohorts.hits) < cohorts.n:
        return None
    if _is_falling(cohorts.counts):
        first, last = cohorts.counts[0], cohorts.counts[-1]
        reason = f"each run left less and less behind, {format_rate(first)} at first, {format_rate(last)} at last"
        return Growth(Outcome.INCONCLUSIVE, float(last), reason)
    slips = f" ({cohorts.n_slips} of them counted with the run before)" if cohorts.n_slips else ""
    return Growth(
        Outcome.LEAK,
        cohorts.rate,
        f"each of {cohorts.n} runs left at least {format_rate(min(cohorts.counts))} behind{slips}",
    )


def _is_falling(counts: Sequence[float]) -> bool:
    """Whether *counts* fall nearly without exception and have not settled: a cache that still fills."""
    third = max(1, len(counts) // 3)
    last, middle = sum(counts[-third:]), sum(counts[-2 * third : -third])
    return kendall_tau(counts) <= -0.8 and last <= 0.75 * middle  # noqa: PLR2004 - a decay of 10 % per run reads 0.48


def _few_runs(cohorts: SurvivorCounts) -> Growth | None:
    if cohorts.n >= FEW_COHORTS:
        return None
    return _open(cohorts, f"{cohorts.words}: too few runs to see a regular pattern")


def _one_hit(cohorts: SurvivorCounts) -> Growth | None:
    """Judge a single survivor after the first run: a one-off, unless the silence on both sides is too short to say."""
    later = cohorts.later_hits
    if len(later) != 1:
        return None
    silence = cohorts.n - 1 - later[0]
    if later == (1,) and cohorts.counts[0] and silence >= MIN_SILENCE:
        return _stopped_after(cohorts)
    if cohorts.n < SURE_COHORTS and silence <= later[0]:
        return _open(cohorts, f"{cohorts.words}: once is no regular pattern")
    return Growth(Outcome.CLEAN, 0.0, f"{cohorts.words}, the others left nothing")


def _two_hits(cohorts: SurvivorCounts) -> Growth | None:
    later = cohorts.later_hits
    if len(later) != 2:  # noqa: PLR2004
        return None
    silence = cohorts.n - 1 - later[1]
    if later == (1, 2) and cohorts.counts[0] and silence >= MIN_SILENCE:
        return _stopped_after(cohorts)
    if later == (cohorts.n - 2, cohorts.n - 1):
        return _window_from(cohorts, later[0])
    if silence > later[1] - later[0] and silence >= MIN_SILENCE:
        return Growth(Outcome.CLEAN, 0.0, f"{cohorts.words}, but the last {silence + 1} left nothing except the newest")
    return _open(cohorts, f"{cohorts.words}: twice is no regular pattern")


def _stopped(cohorts: SurvivorCounts) -> Growth | None:
    """Judge the silence at the end: full if it is longer than every pause before it and improbable at that pace."""
    settled = cohorts.settled
    if not settled.hits and settled.length > 2 * (cohorts.n - settled.length) and settled.length >= ENOUGH_COHORTS:
        return _stopped_after(cohorts)  # nothing since the warm-up
    chance = settled.chance_of_silence(settled.tail)
    if settled.tail >= MIN_SILENCE and settled.tail > settled.widest and chance < IMPROBABLE:
        return _stopped_after(cohorts)
    if settled.tail > settled.widest and chance < DOUBTFUL:
        return _open(cohorts, f"{cohorts.words}, but the last {settled.tail} left nothing: the growth may have stopped")
    if settled.tail == settled.widest == 1 and cohorts.n < ENOUGH_COHORTS:
        return _open(cohorts, f"{cohorts.words}, but the last but one left nothing: the growth may have stopped")
    return None


def _window(cohorts: SurvivorCounts) -> Growth | None:
    """Judge the silence at the beginning: a window if the old are gone and only the newest are kept."""
    settled = cohorts.settled
    chance = settled.chance_of_silence(settled.lead)
    if settled.lead <= settled.widest or chance >= DOUBTFUL:
        return None
    first = cohorts.first_settled
    if settled.lead >= max(MIN_SILENCE, settled.length // 3) and chance < IMPROBABLE:
        return _window_from(cohorts, first)
    return _open(
        cohorts,
        f"only the last {cohorts.n + 1 - first} of {cohorts.n + 1} runs' objects are alive: a window, or a late start",
    )


def _bursts(cohorts: SurvivorCounts) -> Growth | None:
    if not cohorts.settled.is_one_pause():
        return None
    return _open(cohorts, f"{cohorts.words}, in bursts, with {cohorts.settled.widest - 1} empty runs between")


def _slowing(cohorts: SurvivorCounts) -> Growth | None:
    """Judge amounts that fade in the last two thirds; the first third may have been a warm-up."""
    third = cohorts.n // 3
    settled_z, whole_z = mann_kendall_z(cohorts.counts[third:]), mann_kendall_z(cohorts.counts)
    is_fading = settled_z <= FADING_Z[0] and whole_z <= FADING_Z[1]
    if settled_z > SLOWING_Z and not is_fading:
        return None
    last, total = sum(cohorts.counts[-third:]), sum(cohorts.counts)
    reason = f"slowing down: the last {third} of {cohorts.n} runs left {format_rate(last)} of {format_rate(total)}"
    if is_fading and last <= 0.1 * total:
        return Growth(Outcome.BOUNDED, 0.0, reason)
    return _open(cohorts, reason)


def _mostly_newest(cohorts: SurvivorCounts) -> Growth | None:
    """Judge survivors that thin out towards the past: a cache that evicts at random keeps mostly the newest."""
    if mann_kendall_z([count > 0 for count in cohorts.counts]) < STARTING_Z:
        return None
    return _open(cohorts, f"{cohorts.words}, mostly late ones: a limit, or a late start")


def _too_thin(cohorts: SurvivorCounts) -> Growth | None:
    """Keep the question open where a few scattered one-offs would look the same."""
    if sum(1 for count in cohorts.counts[cohorts.n // 2 :] if count) < 2:  # noqa: PLR2004
        return _open(cohorts, f"{cohorts.words}, fewer than 2 of them in the second half")
    beat = Rhythm(cohorts.later_hits, cohorts.n)
    longest_lead = beat.widest if len(beat.hits) == MIN_HITS else 2 * beat.widest  # a warm-up may be out of step
    is_regular = beat.widest - min(beat.gaps) <= 1 and beat.lead <= longest_lead and beat.tail <= beat.widest
    if len(beat.hits) < ENOUGH_HITS and not is_regular:
        return _open(cohorts, f"{cohorts.words}, at uneven distances")
    return None


def _some_runs(cohorts: SurvivorCounts) -> Growth | None:
    hits = cohorts.hits if cohorts.hits[0] else cohorts.hits[1:]  # the first run may be a warm-up out of step
    gaps = set(Rhythm(hits, cohorts.n).gaps)
    if len(gaps) == 1 and (gap := gaps.pop()) > 1:
        amounts = {cohorts.counts[i] for i in hits}
        what = format_rate(amounts.pop()) if len(amounts) == 1 else "something"
        reason = f"{'one' if what == '1' else what} left behind every {gap} runs, {len(hits)} times in {cohorts.n} runs"
        return Growth(Outcome.LEAK, cohorts.rate, reason)
    return Growth(Outcome.LEAK, cohorts.rate, f"{cohorts.words}, at the same pace to the end")


_RULES: tuple[Callable[[SurvivorCounts], Growth | None], ...] = (
    _nothing,
    _warm_up_only,
    _newest_two,
    _every_run,
    _few_runs,
    _one_hit,
    _two_hits,
    _stopped,
    _window,
    _bursts,
    _slowing,
    _mostly_newest,
    _too_thin,
    _some_runs,  # what is left is a leak: no rule after this one
)


def _stopped_after(cohorts: SurvivorCounts) -> Growth:
    n_grew = cohorts.hits[-1] + 1
    return Growth(Outcome.BOUNDED, 0.0, f"grew in the first {n_grew} of {cohorts.n + 1} runs, then stopped")


def _window_from(cohorts: SurvivorCounts, first: int) -> Growth:
    return Growth(Outcome.BOUNDED, 0.0, f"it keeps only what the last {cohorts.n + 1 - first} runs made")


def _open(cohorts: SurvivorCounts, reason: str) -> Growth:
    return Growth(Outcome.INCONCLUSIVE, cohorts.rate, reason)
