"""Open any file that leaklab wrote, and compare two things of one kind, before and after.

What kind a file is of is seen by what is in it, not by its name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeAlias

from leaklab.ask.cuda import compare_cuda_snapshots
from leaklab.ask.heap_diff import diff
from leaklab.cuda.reading import read_pickle
from leaklab.cuda.schema import memory_of
from leaklab.errors import ReportError
from leaklab.files import FilePath
from leaklab.heap.saved.file import MAGIC
from leaklab.render.base import Report, read_bytes
from leaklab.render.json import find_embedded, format_of
from leaklab.reports.alive import WhyAlive
from leaklab.reports.autograd import AutogradReport
from leaklab.reports.check import LeakReport
from leaklab.reports.cuda import CudaSnapshot, SnapshotComparison
from leaklab.reports.found import FoundObjects
from leaklab.reports.heap_diff import HeapSnapshot, MemDiff
from leaklab.reports.loop import MonitorReport
from leaklab.reports.notebook import NotebookComparison, NotebookReport, compare_reports, load_report
from leaklab.reports.process import ProcessReport
from leaklab.reports.ranks import RanksReport
from leaklab.reports.saved_heap import HeapComparison, SavedHeap
from leaklab.reports.side_by_side import SideBySide, side_by_side
from leaklab.reports.training_run import TrainingRun
from leaklab.runtime.gc_control import gc_paused

_ZIP, _PICKLE = b"PK", b"\x80"
_PICKLE_SUFFIXES = (".pickle", ".pkl")

KINDS: dict[str, type[Any]] = {
    "leaklab autograd": AutogradReport,
    "leaklab before and after": SideBySide,
    "leaklab check": LeakReport,
    "leaklab checks": NotebookReport,
    "leaklab difference": MemDiff,
    "leaklab found": FoundObjects,
    "leaklab heap comparison": HeapComparison,
    "leaklab monitor": MonitorReport,
    "leaklab process": ProcessReport,
    "leaklab ranks": RanksReport,
    "leaklab snapshot": CudaSnapshot,
    "leaklab snapshot series": SnapshotComparison,
    "leaklab training run": TrainingRun,
    "leaklab whyalive": WhyAlive,
}
"""The report behind the ``format`` that a JSON file says it has; `load` reads it by the class's ``from_json``."""


def load(path: FilePath) -> Any:
    """Open a file that leaklab wrote, of whatever kind it is.

    Args:
        path: A report that `save` or `to_json` wrote (``.json``), the page of a check, a notebook or many ranks
            (``.html``), a `HeapSnapshot` (``.npz``), a `SavedHeap` (``.heap``), or a file of
            ``torch.cuda.memory._dump_snapshot`` (``.pickle``).
            What is in the file decides, not its name, but for ``.pickle`` and ``.pkl``.

    Returns:
        What was saved: a `LeakReport`, `NotebookReport`, `WhyAlive`, `AutogradReport`, `MemDiff`, `TrainingRun`,
        `MonitorReport`, `ProcessReport`, `RanksReport`, `FoundObjects`, `HeapSnapshot`, `SavedHeap`,
        `HeapComparison`, `SideBySide`, `CudaSnapshot` or `SnapshotComparison`.

    Raises:
        ReportError: if the file cannot be read, or holds nothing that this version of leaklab can read.
        SnapshotError: if it is a damaged or hostile CUDA snapshot.
    """
    head = _first_bytes(path)
    if head == MAGIC[: len(_ZIP)]:
        return SavedHeap.load(path)
    if head.startswith(_ZIP):
        return HeapSnapshot.load(path)
    if head.startswith(_PICKLE) or Path(path).suffix.lower() in _PICKLE_SUFFIXES:
        with gc_paused():
            return CudaSnapshot(memory_of(read_pickle(path, audited=None, progress=None), os.fspath(path)))
    data = read_bytes(path)
    is_page = data.lstrip()[:1] == b"<"
    record = find_embedded(data) if is_page else data
    form = "" if record is None else format_of(record)
    if form in ("leaklab check", "leaklab checks"):
        return load_report(path)
    if form in KINDS and (not is_page or form == "leaklab ranks"):
        return KINDS[form].load(path)
    raise ReportError(_refusal(path, is_page=is_page))


def _first_bytes(path: FilePath) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_ZIP))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        msg = f"cannot read {os.fspath(path)!r}: {reason}; give a file that leaklab wrote"
        raise ReportError(msg) from error


def _refusal(path: FilePath, *, is_page: bool) -> str:
    name = os.fspath(path)
    if is_page:
        return f"{name!r} is a page without a record: give a page of %leakreport, leaklab run or LeakReport, or JSON"
    return f"{name!r} is no file of leaklab: give a report (.json, .html), a heap snapshot (.npz) or a CUDA snapshot"


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
        return compare_reports(first, second)
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
        msg = (
            f"{_kind_words(first)} cannot be compared: it is a comparison itself, or has no rows; give the reports "
            "it was made from"
        )
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
    name = type(thing).__name__
    return f"{'an' if name[:1] in 'AEIOU' else 'a'} {name}"
