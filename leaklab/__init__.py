"""leaklab finds memory leaks in PyTorch notebooks and proves where they come from.

In a notebook, ``%load_ext leaklab``, then ``%%leakcheck`` above a cell. From Python, `leaklab.leakcheck`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaklab.version import __version__ as __version__

if TYPE_CHECKING:
    from leaklab.ask.alive import whyalive
    from leaklab.ask.autograd import autograd
    from leaklab.ask.cuda import compare_snapshots, load_snapshot
    from leaklab.ask.cut_cycles import cut_cycles
    from leaklab.ask.heap_diff import diff, snapshot
    from leaklab.ask.training_run import run
    from leaklab.ask.watching import watch
    from leaklab.check.api import leakcheck
    from leaklab.cuda.recording import record
    from leaklab.errors import LeakFound, LeaklabError, MissingExtraError, ReportError, SnapshotError
    from leaklab.explorer.widget import Explorer, explore
    from leaklab.model import Leak, Outcome, RootPath, Settings, Verdict
    from leaklab.reports.alive import WhyAlive
    from leaklab.reports.autograd import AutogradReport
    from leaklab.reports.check import LeakReport
    from leaklab.reports.cuda import CudaSnapshot, SnapshotComparison
    from leaklab.reports.heap_diff import HeapSnapshot, MemDiff
    from leaklab.reports.notebook import NotebookReport, load_report

_OLD_NAMES = {"Moment": "HeapSnapshot"}
_HOMES = {
    "leakcheck": "leaklab.check.api",
    "LeakReport": "leaklab.reports.check",
    "whyalive": "leaklab.ask.alive",
    "WhyAlive": "leaklab.reports.alive",
    "NotebookReport": "leaklab.reports.notebook",
    "load_report": "leaklab.reports.notebook",
    **dict.fromkeys(("diff", "snapshot"), "leaklab.ask.heap_diff"),
    **dict.fromkeys(("MemDiff", "HeapSnapshot"), "leaklab.reports.heap_diff"),
    **dict.fromkeys(("Explorer", "explore"), "leaklab.explorer.widget"),
    "watch": "leaklab.ask.watching",
    "run": "leaklab.ask.training_run",
    "cut_cycles": "leaklab.ask.cut_cycles",
    "autograd": "leaklab.ask.autograd",
    "AutogradReport": "leaklab.reports.autograd",
    **dict.fromkeys(("compare_snapshots", "load_snapshot"), "leaklab.ask.cuda"),
    **dict.fromkeys(("CudaSnapshot", "SnapshotComparison"), "leaklab.reports.cuda"),
    "record": "leaklab.cuda.recording",
    **dict.fromkeys(
        ("LeakFound", "LeaklabError", "MissingExtraError", "ReportError", "SnapshotError"), "leaklab.errors"
    ),
    **dict.fromkeys(("Leak", "Outcome", "RootPath", "Settings", "Verdict"), "leaklab.model"),
}

__all__ = [
    "AutogradReport",
    "CudaSnapshot",
    "Explorer",
    "HeapSnapshot",
    "Leak",
    "LeakFound",
    "LeakReport",
    "LeaklabError",
    "MemDiff",
    "MissingExtraError",
    "NotebookReport",
    "Outcome",
    "ReportError",
    "RootPath",
    "Settings",
    "SnapshotComparison",
    "SnapshotError",
    "Verdict",
    "WhyAlive",
    "autograd",
    "compare_snapshots",
    "cut_cycles",
    "diff",
    "explore",
    "leakcheck",
    "load_ipython_extension",
    "load_report",
    "load_snapshot",
    "record",
    "run",
    "snapshot",
    "unload_ipython_extension",
    "watch",
    "whyalive",
]


def __getattr__(name: str) -> Any:
    """Import a public name where it is first used: ``import leaklab`` alone stays cheap."""
    import importlib

    name = _OLD_NAMES.get(name, name)
    if name not in _HOMES:
        msg = f"module 'leaklab' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(_HOMES[name]), name)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext leaklab``."""
    from leaklab.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext leaklab``: nothing of it stays in the shell."""
    from leaklab.magics import unload

    unload(shell)
