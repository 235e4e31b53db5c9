"""Rank statistics that need no library and ask nothing of the shape of the noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from leaklab.model import Outcome


def concordance(values: Sequence[float]) -> int:
    """Return the pairs of *values* that rise minus the pairs that fall; ties count for neither."""
    if len(values) < _FEW_VALUES:
        return sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))
    array = np.asarray(values, np.float64)
    return sum(
        int(np.count_nonzero(array[i + 1 :] > value)) - int(np.count_nonzero(array[i + 1 :] < value))
        for i, value in enumerate(array)
    )


_FEW_VALUES = 100
"""From so many values on, arrays are faster than pairs of numbers."""


def kendall_tau(values: Sequence[float]) -> float:
    """Return how monotone *values* are: 1.0 all pairs rise, -1.0 all fall, 0.0 for fewer than two."""
    n_pairs = len(values) * (len(values) - 1) // 2
    return concordance(values) / n_pairs if n_pairs else 0.0


def mann_kendall_z(*parts: Sequence[float]) -> float:
    """Return the Mann-Kendall statistic, corrected for ties: about standard normal if *parts* have no trend.

    Of several parts, only the trends inside each count: a jump from one part to the next does not.
    """
    score = sum(concordance(part) for part in parts)
    variance = sum(_variance(part) for part in parts)
    if variance <= 0 or score == 0:
        return 0.0
    return (score - math.copysign(1, score)) / math.sqrt(variance)


def _variance(values: Sequence[float]) -> float:
    n = len(values)
    tied = sum(k * (k - 1) * (2 * k + 5) for k in Counter(values).values())
    return (n * (n - 1) * (2 * n + 5) - tied) / 18


@dataclass(frozen=True, slots=True)
class Growth:
    """What a series of numbers says about growth.

    Attributes:
        outcome: ``BOUNDED`` is something that grew and stopped, or a window of the newest; ``INCONCLUSIVE`` is a
            question that more runs can answer.
        rate: Units per run of the settled part; 0.0 unless the outcome is a leak, or inconclusive (then the rate seen).
        reason: One clause with the figure that decided.
        mean_rate: The same rate over all settled runs, where *rate* is that of the later ones; None where it is not
            told apart.
    """

    outcome: Outcome
    rate: float
    reason: str
    mean_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Positions at which a series grew.

    Attributes:
        hits: Positions that grew, ascending.
        length: Number of positions looked at.
    """

    hits: tuple[int, ...]
    length: int

    @classmethod
    def of(cls, amounts: Sequence[float], least: float = 0.0) -> Rhythm:
        """Read the rhythm of *amounts*: an amount above *least* is a hit."""
        return cls(tuple(i for i, amount in enumerate(amounts) if amount > least), len(amounts))

    @property
    def lead(self) -> int:
        """Silent positions before the first hit; the whole length without one."""
        return self.hits[0] if self.hits else self.length

    @property
    def tail(self) -> int:
        """Silent positions after the last hit; the whole length without one."""
        return self.length - 1 - self.hits[-1] if self.hits else self.length

    @property
    def gaps(self) -> tuple[int, ...]:
        """Distances from each hit to the next."""
        return tuple(later - earlier for earlier, later in pairwise(self.hits))

    @property
    def widest(self) -> int:
        """The largest distance between two neighbouring hits, 1 if there are none."""
        return max(self.gaps, default=1)

    def chance_of_silence(self, n_silent: int) -> float:
        """Return how probable *n_silent* silent positions in a row are at the pace of growth seen outside of them.

        The pace is taken one miss lower than seen, so that three hits of three are no proof of "always".
        """
        pace = len(self.hits) / (self.length - n_silent + 1)
        return float((1.0 - pace) ** n_silent)

    def is_one_pause(self) -> bool:
        """Whether one silence between hits stands out so far that the hits are bursts rather than one rhythm."""
        silences = sorted([gap - 1 for gap in self.gaps])
        if len(silences) < 2:  # noqa: PLR2004 - one gap has nothing to stand out from
            return False
        longest, next_longest = silences[-1], max(silences[-2], self.lead, self.tail)
        if longest < MIN_SILENCE or longest <= 2 * next_longest + 1:
            return False
        return len(self.hits) * self.chance_of_silence(longest) < IMPROBABLE


MIN_SILENCE = 3
"""Shorter silences are never called an end: an object's id may be attributed to the run before its own."""

IMPROBABLE = 0.005
