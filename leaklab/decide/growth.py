"""Judge whether a series of numbers grows without end: the door to stage 2."""

from __future__ import annotations

from leaklab.decide.cohorts import judge_cohorts
from leaklab.decide.finding import Growth
from leaklab.decide.levels import judge_levels
from leaklab.decide.series import judge_series

__all__ = ["Growth", "judge_cohorts", "judge_levels", "judge_series"]
