"""STAGE 2: is it a leak, of what, how fast, how sure. Pure functions on numbers."""

from __future__ import annotations

from leaklab.decide.growth import Growth, judge_checkpoints
from leaklab.decide.per_run_level import judge_per_run_bytes
from leaklab.decide.survivors import judge_backlog, judge_survivors
from leaklab.lazy import lazy_names

__all__ = ["Growth", "judge_backlog", "judge_checkpoints", "judge_per_run_bytes", "judge_survivors"]
__getattr__ = lazy_names(
    __name__,
    {
        "growth": "NATIVE_FLOOR_BYTES judge_habit judge_slowdown kendall_tau mann_kendall_z",
        "heap_diff": "compare_heap_snapshots compare_places",
        "loop_period": "find_periods run_length",
        "loop_states": "LoopStates",
        "rising_level": "find_rise next_look",
        "verdict": "conclude next_phase",
    },
)
