"""STAGE 2: is it a leak, of what, how fast, how sure. Pure functions on numbers."""

from __future__ import annotations

from leaklab.decide.checkpoint_levels import judge_levels
from leaklab.decide.per_run_level import judge_series
from leaklab.decide.survivors import judge_cohorts
from leaklab.decide.trend import Growth

# Judge whether a series of numbers grows without end: the door to stage 2.


__all__ = ["Growth", "judge_cohorts", "judge_levels", "judge_series"]
