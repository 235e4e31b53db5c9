"""leaklab finds memory leaks in PyTorch notebooks and proves where they come from.

In a notebook, ``%load_ext leaklab``, then ``%%leakcheck`` above a cell. From Python, `leaklab.leakcheck`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaklab.version import __version__ as __version__

if TYPE_CHECKING:
    from leaklab import metrics as metrics
    from leaklab import remote as remote
    from leaklab.ask.alive import whyalive
    from leaklab.ask.autograd import autograd
    from leaklab.ask.comparing import compare
    from leaklab.ask.cuda import compare_cuda_snapshots, load_cuda_snapshot
    from leaklab.ask.cut_cycles import cut_cycles
    from leaklab.ask.find import find
    from leaklab.ask.heap_diff import diff, snapshot
    from leaklab.ask.training_run import training_run
    from leaklab.ask.watching import watch
    from leaklab.check.api import leakcheck
    from leaklab.cuda.recording import CudaRecorder, record_cuda
    from leaklab.errors import (
        LeakFound,
        LeaklabError,
        MetricsError,
        MissingExtraError,
        QueryError,
        RankError,
        ReportError,
        SnapshotError,
    )
    from leaklab.explorer.widget import Explorer, explore
    from leaklab.model import Leak, Outcome, RootPath, Settings, Verdict
    from leaklab.model.paths import CutResult
    from leaklab.monitoring.api import WatchedSteps, monitor, steps
    from leaklab.monitoring.listening import Listener, listen
    from leaklab.monitoring.monitor import Monitor
    from leaklab.monitoring.out_of_memory import OutOfMemoryWatch, on_oom
    from leaklab.monitoring.worker_processes import WatchedCalls, watch_calls
    from leaklab.ranks.gathering import merge
    from leaklab.remote import gather
    from leaklab.render.answer_html import AutogradGraph
    from leaklab.render.dot import BackReferenceGraph, PathGraph
    from leaklab.render.figure import ReportFigure
    from leaklab.render.leaks_by_line import LineGroup
    from leaklab.reports.alive import WhyAlive
    from leaklab.reports.autograd import AutogradReport
    from leaklab.reports.check import Comparison, LeakReport
    from leaklab.reports.cuda import CudaSnapshot, SnapshotComparison
    from leaklab.reports.found import FoundObjects
    from leaklab.reports.heap_diff import HeapSnapshot, MemDiff
    from leaklab.reports.loading import load
    from leaklab.reports.monitor import MonitorReport
    from leaklab.reports.notebook import NotebookComparison, NotebookReport, load_report
    from leaklab.reports.process import ProcessReport
    from leaklab.reports.ranks import RanksReport
    from leaklab.reports.saved_heap import HeapComparison, SavedHeap
    from leaklab.reports.side_by_side import SideBySide
    from leaklab.reports.training_run import TrainingRun

_NAMES_OF = {
    "leaklab.ask.alive": ("whyalive",),
    "leaklab.ask.autograd": ("autograd",),
    "leaklab.ask.cuda": ("compare_cuda_snapshots", "load_cuda_snapshot"),
    "leaklab.ask.comparing": ("compare",),
    "leaklab.ask.cut_cycles": ("cut_cycles",),
    "leaklab.ask.find": ("find",),
    "leaklab.ask.heap_diff": ("diff", "snapshot"),
    "leaklab.ask.training_run": ("training_run",),
    "leaklab.ask.watching": ("watch",),
    "leaklab.check.api": ("leakcheck",),
    "leaklab.cuda.recording": ("CudaRecorder", "record_cuda"),
    "leaklab.errors": (
        "LeakFound",
        "LeaklabError",
        "MetricsError",
        "MissingExtraError",
        "RankError",
        "QueryError",
        "ReportError",
        "SnapshotError",
    ),
    "leaklab.explorer.widget": ("Explorer", "explore"),
    "leaklab.model": ("Leak", "Outcome", "RootPath", "Settings", "Verdict"),
    "leaklab.model.paths": ("CutResult",),
    "leaklab.monitoring.api": ("WatchedSteps", "monitor", "steps"),
    "leaklab.monitoring.listening": ("Listener", "listen"),
    "leaklab.monitoring.monitor": ("Monitor",),
    "leaklab.monitoring.out_of_memory": ("OutOfMemoryWatch", "on_oom"),
    "leaklab.ranks.gathering": ("merge",),
    "leaklab.monitoring.worker_processes": ("WatchedCalls", "watch_calls"),
    "leaklab.remote": ("gather",),
    "leaklab.render.answer_html": ("AutogradGraph",),
    "leaklab.render.dot": ("BackReferenceGraph", "PathGraph"),
    "leaklab.render.figure": ("ReportFigure",),
    "leaklab.render.leaks_by_line": ("LineGroup",),
    "leaklab.reports.alive": ("WhyAlive",),
    "leaklab.reports.autograd": ("AutogradReport",),
    "leaklab.reports.check": ("Comparison", "LeakReport"),
    "leaklab.reports.cuda": ("CudaSnapshot", "SnapshotComparison"),
    "leaklab.reports.found": ("FoundObjects",),
    "leaklab.reports.heap_diff": ("HeapSnapshot", "MemDiff"),
    "leaklab.reports.loading": ("load",),
    "leaklab.reports.monitor": ("MonitorReport",),
    "leaklab.reports.notebook": ("NotebookComparison", "NotebookReport", "load_report"),
    "leaklab.reports.process": ("ProcessReport",),
    "leaklab.reports.ranks": ("RanksReport",),
    "leaklab.reports.saved_heap": ("HeapComparison", "SavedHeap"),
    "leaklab.reports.side_by_side": ("SideBySide",),
    "leaklab.reports.training_run": ("TrainingRun",),
}
_HOMES = {name: home for home, names in _NAMES_OF.items() for name in names}
_PACKAGES = frozenset({"metrics", "remote"})
"""Public packages: what is in them is reached by their names."""
_OLD_NAMES = {
    "Moment": "HeapSnapshot",
    "compare_snapshots": "compare_cuda_snapshots",
    "load_snapshot": "load_cuda_snapshot",
    "record": "record_cuda",
    "run": "training_run",
}

__all__ = [
    "AutogradGraph",
    "AutogradReport",
    "BackReferenceGraph",
    "Comparison",
    "CudaRecorder",
    "CudaSnapshot",
    "CutResult",
    "Explorer",
    "FoundObjects",
    "HeapComparison",
    "HeapSnapshot",
    "Leak",
    "LeakFound",
    "LeakReport",
    "LeaklabError",
    "LineGroup",
    "Listener",
    "MemDiff",
    "MetricsError",
    "MissingExtraError",
    "Monitor",
    "MonitorReport",
    "NotebookComparison",
    "NotebookReport",
    "OutOfMemoryWatch",
    "Outcome",
    "PathGraph",
    "ProcessReport",
    "QueryError",
    "RankError",
    "RanksReport",
    "ReportError",
    "ReportFigure",
    "RootPath",
    "SavedHeap",
    "Settings",
    "SideBySide",
    "SnapshotComparison",
    "SnapshotError",
    "TrainingRun",
    "Verdict",
    "WatchedCalls",
    "WatchedSteps",
    "WhyAlive",
    "autograd",
    "compare",
    "compare_cuda_snapshots",
    "cut_cycles",
    "diff",
    "explore",
    "find",
    "gather",
    "leakcheck",
    "listen",
    "load",
    "load_cuda_snapshot",
    "load_ipython_extension",
    "load_report",
    "merge",
    "monitor",
    "on_oom",
    "record_cuda",
    "snapshot",
    "steps",
    "training_run",
    "unload_ipython_extension",
    "watch",
    "watch_calls",
    "whyalive",
]


def __getattr__(name: str) -> Any:
    """Import a public name where it is first used: ``import leaklab`` alone stays cheap."""
    import importlib

    if name in _OLD_NAMES:
        import warnings

        better = _OLD_NAMES[name]
        warnings.warn(f"leaklab.{name} is now called leaklab.{better}", DeprecationWarning, stacklevel=2)
        name = better
    if name in _PACKAGES:
        return importlib.import_module(f"leaklab.{name}")
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
