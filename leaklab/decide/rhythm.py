"""When something grew: the hits of a series, the silence before, between and after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


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
