"""Compare two things of one kind, before and after: reports, snapshots, saved heaps, or the files of them."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

from leaklab.ask.cuda import compare_cuda_snapshots
from leaklab.ask.heap_diff import diff
from leaklab.ask.loading import load
from leaklab.errors import ReportError
from leaklab.render.base import Report
from leaklab.reports.check import LeakReport
from leaklab.reports.comparison import NotebookComparison, compare_notebooks
from leaklab.reports.cuda import CudaSnapshot
from leaklab.reports.cuda_series import SnapshotComparison
from leaklab.reports.heap_diff import HeapSnapshot, MemDiff
from leaklab.reports.notebook import NotebookReport
from leaklab.reports.saved_heap import HeapComparison, SavedHeap
from leaklab.reports.side_by_side import SideBySide, side_by_side
from leaklab.text import with_article

Compared: TypeAlias = NotebookComparison | MemDiff | HeapComparison | SnapshotComparison | SideBySide
_OF_CHECKS = (LeakReport, NotebookReport)


def compare(before: Any, after: Any) -> Compared:
    """Return what became of what *before* has in *after*: new, still there, gone or fixed.

    Args:
        before: A report, a heap snapshot, a saved heap, a CUDA snapshot, or the file of one.
        after: Another one of the same kind. A check and the checks of a notebook are of one kind.

    Returns:
        A `NotebookComparison` of checks, a `MemDiff` of moments, a `HeapComparison` of saved heaps, a
        `SnapshotComparison` of CUDA snapshots, and of everything else a `SideBySide`. Each shows itself in a notebook,
        and ``to_html(path)`` writes it as a page.

    Raises:
        ReportError: if the two are of different kinds, of a kind that cannot be compared, or a file cannot be read.
        SnapshotError: if a file is a damaged or hostile CUDA snapshot.
    """
    names = [os.fspath(thing) if _is_path(thing) else "" for thing in (before, after)]
    first, second = (load(thing) if _is_path(thing) else thing for thing in (before, after))
    if isinstance(first, _OF_CHECKS) and isinstance(second, _OF_CHECKS):
        return compare_notebooks(first.record, second.record)
    if type(first) is not type(second):
        named = [
            f"{name!r} is" if name else f"the {place} is"
            for name, place in zip(names, ("first", "second"), strict=True)
        ]
        msg = (
            f"{named[0]} {_kind_words(first)}, {named[1]} {_kind_words(second)}: only two files of one kind can be "
            "compared; save both with the same command"
        )
        raise ReportError(msg)
    compared = _compared(first, second)
    if compared is None:
        if isinstance(first, Report):
            msg = f"{_kind_words(first)} is itself a comparison, or has no rows: give the two reports that it compares"
        else:
            msg = f"compare takes two reports, two snapshots, or the names of their files, not {type(first).__name__}"
        raise ReportError(msg)
    return compared


def _compared(first: Any, second: Any) -> Compared | None:
    if isinstance(first, HeapSnapshot):
        return diff(first, second)
    if isinstance(first, SavedHeap):
        return first.compare(second)
    if isinstance(first, CudaSnapshot):
        return compare_cuda_snapshots([first, second])
    return side_by_side(first, second) if isinstance(first, Report) else None


def _is_path(thing: Any) -> bool:
    return isinstance(thing, (str, os.PathLike))


def _kind_words(thing: Any) -> str:
    return with_article(type(thing).__name__)
