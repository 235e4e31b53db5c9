"""What the user holds: one report class for each question, around a frozen record."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "autograd": "AutogradReport",
        "check": "Comparison LeakReport SUFFIXES compare_checks",
        "cuda": "CudaSnapshot",
        "heap_diff": "HeapSnapshot MemDiff",
        "saved_heap": "render_heap_page",
        "training_run": "TrainingRun memory_rows run_text",
        "notebook": "Journal NotebookReport compare_reports load_report",
    },
)
