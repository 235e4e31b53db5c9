"""STAGE 2: is it a leak, of what, how fast, how sure. Pure functions on numbers."""

from __future__ import annotations

from leaklab.decide.checkpoint_levels import judge_checkpoints
from leaklab.decide.per_run_level import judge_per_run_bytes
from leaklab.decide.survivors import judge_backlog, judge_survivors
from leaklab.decide.trend import Growth
from leaklab.lazy import lazy_names

__all__ = ["Growth", "judge_backlog", "judge_checkpoints", "judge_per_run_bytes", "judge_survivors"]
__getattr__ = lazy_names(
    __name__,
    {
        "checkpoint_levels": "judge_habit judge_slowdown",
        "heap_diff": "compare_heap_snapshots compare_places",
        "loop_period": "find_periods run_length",
        "loop_states": "LoopStates",
        "rising_level": "find_rise next_look",
        "trend": "kendall_tau mann_kendall_z",
        "verdict": "conclude next_phase",
    },
)
