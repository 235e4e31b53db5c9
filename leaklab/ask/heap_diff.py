"""Take snapshots of the heap and compare them, from Python."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np

from leaklab.decide.heap_diff import compare_heap_snapshots, unpack
from leaklab.decide.pairing import kinds_gone, still_there
from leaklab.explain.heaps.new_objects import name_holders
from leaklab.files import FilePath
from leaklab.heap.borrow import borrow_heap
from leaklab.heap.saved.taking import take_heap
from leaklab.heap.view import Births
from leaklab.measure.census import BirthWindow
from leaklab.measure.heap_snapshot import NotebookContext, notebook_context
from leaklab.model.heap_diff import Changed, Difference, HeapSnapshotRecord
from leaklab.reports.heap_diff import HeapSnapshot, MemDiff
from leaklab.reports.heap_snapshot_file import load_heap_snapshot
from leaklab.reports.saved_heap import SavedHeap
from leaklab.runtime.addresses import Addresses
from leaklab.runtime.gc_control import collect_quietly


@overload
def snapshot(name: str = "", *, references: Literal[False] = False) -> HeapSnapshot: ...


@overload
def snapshot(name: str = "", *, references: Literal[True]) -> SavedHeap: ...


def snapshot(name: str = "", *, references: bool = False) -> HeapSnapshot | SavedHeap:
    """Note everything that is alive now.

    Garbage is collected first, unless the user has switched the collector off. In one process the moment can be
    compared with any later one; `HeapSnapshot.save` keeps it for another.

    Args:
        name: For the reader.
        references: Whether to note who refers to whom as well, and by which names. The answer is then a `SavedHeap`,
            which can be asked like the living heap, also elsewhere; `diff` compares snapshots without references.

    Raises:
        TypeError: if *name* is no text.
    """
    if type(name) is not str:
        msg = f"the name of a snapshot must be a str, not {type(name).__name__}"
        raise TypeError(msg)
    around = notebook_context(sys._getframe(1).f_globals)  # noqa: SLF001 - the caller's variables
    if not references:
        return HeapSnapshot(around.take(name))
    if gc.isenabled():
        collect_quietly()
    return SavedHeap(take_heap(name, around.namespace))


def diff(a: HeapSnapshot | FilePath, b: HeapSnapshot | FilePath | None = None) -> MemDiff:
    """Return what was born, died, grew and was replaced between two moments.

    Args:
        a: The earlier snapshot, or the file it was saved to.
        b: The later one; by default now.

    Raises:
        TypeError: if one of them is no heap snapshot.
        ReportError: if a file holds no heap snapshot.
    """
    around = notebook_context(sys._getframe(1).f_globals)  # noqa: SLF001 - the caller's variables
    earlier = _moment(a)
    if b is None:
        return compare_now(earlier, around.take("now"), around)
    return compare_past(earlier, _moment(b), around)


def compare_now(a: HeapSnapshotRecord, b: HeapSnapshotRecord, around: NotebookContext, failure: str = "") -> MemDiff:
    """Compare *a* with *b*, which was taken this very moment, and say who holds what is new.

    Args:
        a: The earlier moment.
        b: The moment that it is now.
        around: Where to look for holders.
        failure: What the code in between raised.
    """
    difference, changed = compare_heap_snapshots(a, b)
    return MemDiff(_named(replace(difference, failure=failure), changed, b, around.namespace))


def compare_past(a: HeapSnapshotRecord, b: HeapSnapshotRecord, around: NotebookContext) -> MemDiff:
    """Compare two past moments, the earlier first; holders are named for what is still alive."""
    if a.taken_at > b.taken_at:
        a, b = b, a
    difference, changed = compare_heap_snapshots(a, b)
    if not difference.same_process or changed.is_empty:
        return MemDiff(difference)
    now = around.take("now", with_places=False)
    if now.process != b.process:
        note = "both snapshots come from another process, so holders cannot be looked up"
        return MemDiff(replace(difference, notes=(*difference.notes, note)))
    # An array's address alone does not tell whether it is still that array.
    alive = changed.only(still_there(b, now), np.empty(0, np.int64))
    return MemDiff(_named(difference, alive, b, around.namespace, changed.born))


def _without_gone(difference: Difference, gone: Counter[str]) -> Difference:
    """Set aside what was born and is gone again by now: nobody can be asked any more whose it was.

    Most of it belongs to the very cell in which the later moment was taken. Tensors are told all the same.
    """
    tensors = {row.what.kind for row in difference.tensors}
    aside = Counter({kind: count for kind, count in gone.items() if kind not in tensors})
    if not aside:
        return difference
    note = f"{aside.total():,} of the new objects died before their holders were looked up"
    rows = tuple(replace(row, n_aside=row.n_aside + aside[row.kind]) for row in difference.objects)
    return replace(difference, objects=rows, notes=(*difference.notes, note))


class Stretch:
    """A stretch of code in which every birth is seen: from `start` to `finish` or `abandon`, one of which must follow.

    Args:
        around: Where the code runs.
    """

    def __init__(self, around: NotebookContext) -> None:
        self._around = around
        self._window = BirthWindow()
        self._before: HeapSnapshotRecord | None = None

    def start(self, name: str) -> None:
        """Take the moment before the code, called *name*, and begin to watch."""
        self._before = self._around.take(name)
        self._window.open()

    def finish(self, name: str, error: BaseException | None = None) -> MemDiff:
        """Return what was made since; *name* is the moment after the code, *error* what the code raised."""
        before, self._before = self._before, None
        if before is None:
            msg = "finish() compares with start(), which was not called"
            raise RuntimeError(msg)
        failure = type(error).__name__ if error is not None else ""
        born = self._window.close()
        if self._window.code_froze:
            return self._finish_frozen(before, name, failure)
        after = self._around.take(name, born=born, exact_since="" if born is None else before.token)
        return compare_now(before, after, self._around, failure)

    def _finish_frozen(self, before: HeapSnapshotRecord, name: str, failure: str) -> MemDiff:
        """Thaw what the code has frozen for as long as it takes to look; its garbage stays, as frozen garbage does."""
        gc.unfreeze()
        try:
            return compare_now(before, self._around.take(name, collects=False), self._around, failure)
        finally:
            gc.freeze()

    def abandon(self) -> None:
        """Give up: what was frozen is thawed. Does nothing after `finish`."""
        self._window.close()


def _named(
    difference: Difference,
    changed: Changed,
    later: HeapSnapshotRecord,
    namespace: dict[str, Any] | None,
    all_born: Addresses | None = None,
) -> Difference:
    """Ask the heap who holds what is new, and set aside what is gone by now; no automatic collection runs meanwhile.

    Args:
        difference: What was found by comparing.
        changed: What is known to be alive of what changed.
        later: The later moment.
        namespace: The user's variables.
        all_born: Addresses of all that was born before *later*; by default those of *changed*.
    """
    if changed.is_empty or not difference.same_process:
        return difference
    births = Births(changed.born, np.zeros(len(changed.born), np.int64), 1)
    with borrow_heap(births, namespace, (difference, changed)) as view:
        named = name_holders(view, difference, changed)
        alive = changed.born[view.index.vertices_of(changed.born) >= 0]
    names = unpack(later.words).kinds
    return _without_gone(named, kinds_gone(later, names, changed.born if all_born is None else all_born, alive))


def _moment(given: object) -> HeapSnapshotRecord:
    if type(given) is HeapSnapshot:
        return given.record
    if isinstance(given, (str, os.PathLike)):
        return load_heap_snapshot(given)
    msg = f"diff compares snapshots of leaklab.snapshot(), or the files they were saved to, not {type(given).__name__}"
    raise TypeError(msg)
