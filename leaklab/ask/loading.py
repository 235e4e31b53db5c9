"""Open a file that leaklab wrote, by looking at what is in it; without torch, which the file may not need."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from leaklab.cuda.reading import read_pickle
from leaklab.cuda.schema import memory_of
from leaklab.errors import ReportError
from leaklab.files import FilePath
from leaklab.heap.saved.file import MAGIC
from leaklab.render.base import not_ours, read_bytes
from leaklab.render.json import find_embedded, format_of
from leaklab.reports.alive import WhyAlive
from leaklab.reports.autograd import AutogradReport
from leaklab.reports.check import LeakReport
from leaklab.reports.cuda import CudaSnapshot
from leaklab.reports.cuda_series import SnapshotComparison
from leaklab.reports.found import FoundObjects
from leaklab.reports.heap_diff import HeapSnapshot, MemDiff
from leaklab.reports.kernel import KernelReport
from leaklab.reports.loop import MonitorReport
from leaklab.reports.notebook import NotebookReport, load_report
from leaklab.reports.process import ProcessReport
from leaklab.reports.ranks import RanksReport
from leaklab.reports.saved_heap import HeapComparison, SavedHeap
from leaklab.reports.side_by_side import SideBySide
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
    "leaklab kernel": KernelReport,
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
        path: A report that `save`, `to_json` or `to_html` wrote (``.json``, ``.html``), a `HeapSnapshot` (``.npz``), a
            `SavedHeap` (``.heap``), or a file of ``torch.cuda.memory._dump_snapshot`` (``.pickle``).
            What is in the file decides, not its name, but for ``.pickle`` and ``.pkl``.

    Returns:
        What was saved: a `LeakReport`, `NotebookReport`, `WhyAlive`, `AutogradReport`, `MemDiff`, `TrainingRun`,
        `MonitorReport`, `ProcessReport`, `KernelReport`, `RanksReport`, `FoundObjects`, `HeapSnapshot`,
        `SavedHeap`, `HeapComparison`, `SideBySide`, `CudaSnapshot` or `SnapshotComparison`.

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
    if form in KINDS:
        return KINDS[form].load(path)
    raise ReportError(_refusal(path, data, is_page=is_page))


def _first_bytes(path: FilePath) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_ZIP))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        msg = f"cannot read {os.fspath(path)!r}: {reason}; give a file that leaklab wrote"
        raise ReportError(msg) from error


_OWN = b'{"format":"leaklab'
_PAGE_END = b"</html>"


def _refusal(path: FilePath, data: bytes, *, is_page: bool) -> str:
    name = os.fspath(path)
    if (is_page and _PAGE_END not in data) or data.startswith(_OWN):
        return f"{name!r} is cut off or damaged: copy it again, or save it again where it was made"
    if is_page:
        return f"{name!r} is a page without a record: give a page that a report was saved to, or its JSON"
    return not_ours(path)
