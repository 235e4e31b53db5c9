"""Rank statistics that need no library and ask nothing of the shape of the noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations


def concordance(values: Sequence[float]) -> int:
    """Return the pairs of *values* that rise minus the pairs that fall; ties count for neither."""
    return sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))


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
