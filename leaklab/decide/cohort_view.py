"""The survivors per run in the views that the rules for cohorts ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from leaklab.decide.rhythm import Rhythm
from leaklab.words import format_rate

LEAST_HALF = 4
"""A rate is never read from fewer cohorts."""


@dataclass(frozen=True, slots=True)
class Cohorts:
    """The complete cohorts: the newest is not among them.

    Attributes:
        counts: Survivors of each; halves where two cohorts share what was counted with one.
        hits: Positions of those that have survivors.
        settled: Their rhythm after the warm-up, which is the first eighth, at least one cohort.
        n_slips: Silent cohorts that got a share of the one before them.
    """

    counts: tuple[float, ...]
    hits: tuple[int, ...]
    settled: Rhythm
    n_slips: int

    @classmethod
    def of(cls, kept: Sequence[int]) -> Cohorts:
        """Take *kept*, the survivors of each complete cohort; what is below zero counts as none."""
        raw = [max(0, count) for count in kept]
        counts = _undo_slips(raw)
        hits = tuple(i for i, count in enumerate(counts) if count)
        n_warm = max(1, len(counts) // 8)
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

        One amount more than three times the next largest is a one-off and counts as the typical one.
        """
        amounts = list(self.counts[-max(LEAST_HALF, (self.n + 1) // 2) :])
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
