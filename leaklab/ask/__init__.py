"""Questions beside the check: about one object, two moments, one training run, the living heap."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "alive": "GoneError at_address evaluate expressions_of look_at modules_of",
        "cuda": "compare_cuda_snapshots find_snapshots live_snapshot load_cuda_snapshot",
        "heap_diff": "Stretch compare_now snapshot",
        "watching": "CellWatcher watch",
    },
)
