"""STAGE 2: is it a leak, of what, how fast, how sure. Pure functions on numbers."""

from __future__ import annotations

from leaklab.decide.checkpoint_levels import judge_checkpoints
from leaklab.decide.per_run_level import judge_per_run_bytes
from leaklab.decide.survivors import judge_survivors
from leaklab.decide.trend import Growth

# Judge whether a series of numbers grows without end: the door to stage 2.


__all__ = ["Growth", "judge_checkpoints", "judge_per_run_bytes", "judge_survivors"]
