"""leaklab finds memory leaks in PyTorch notebooks and proves where they come from.

In a notebook, ``%load_ext leaklab``, then ``%%leakcheck`` above a cell. From Python, `leaklab.leakcheck`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leaklab.api import leakcheck
    from leaklab.asking.cutting import cut_cycles
    from leaklab.asking.moments import Moment, diff, snapshot
    from leaklab.asking.retaining import AutogradReport, autograd
    from leaklab.asking.runs import run
    from leaklab.asking.snapshotting import CudaSnapshot, SnapshotComparison, compare_snapshots, load_snapshot
    from leaklab.asking.watching import watch
    from leaklab.asking.why import WhyAlive, whyalive
    from leaklab.errors import LeakFound, LeaklabError, MissingExtraError, ReportError, SnapshotError
    from leaklab.model import Leak, Outcome, RootPath, Settings, Verdict
    from leaklab.notebooks.journal import NotebookReport, load_report
    from leaklab.render.moment_report import MemDiff
    from leaklab.report import LeakReport
    from leaklab.snapshots.recording import record
    from leaklab.widgets.exploring import Explorer, explore

__version__ = "0.1.0"

_HOMES = {
    "leakcheck": "leaklab.api",
    **dict.fromkeys(("WhyAlive", "whyalive"), "leaklab.asking.why"),
    "LeakReport": "leaklab.report",
    **dict.fromkeys(("NotebookReport", "load_report"), "leaklab.notebooks.journal"),
    **dict.fromkeys(("Moment", "diff", "snapshot"), "leaklab.asking.moments"),
    "MemDiff": "leaklab.render.moment_report",
    **dict.fromkeys(("Explorer", "explore"), "leaklab.widgets.exploring"),
    "watch": "leaklab.asking.watching",
    "run": "leaklab.asking.runs",
    "cut_cycles": "leaklab.asking.cutting",
    **dict.fromkeys(("AutogradReport", "autograd"), "leaklab.asking.retaining"),
    **dict.fromkeys(
        ("CudaSnapshot", "SnapshotComparison", "compare_snapshots", "load_snapshot"), "leaklab.asking.snapshotting"
    ),
    "record": "leaklab.snapshots.recording",
    **dict.fromkeys(
        ("LeakFound", "LeaklabError", "MissingExtraError", "ReportError", "SnapshotError"), "leaklab.errors"
    ),
    **dict.fromkeys(("Leak", "Outcome", "RootPath", "Settings", "Verdict"), "leaklab.model"),
}

__all__ = [
    "AutogradReport",
    "CudaSnapshot",
    "Explorer",
    "Leak",
    "LeakFound",
    "LeakReport",
    "LeaklabError",
    "MemDiff",
    "MissingExtraError",
    "Moment",
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
