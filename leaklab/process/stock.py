"""Take stock of this process, and keep the reports on it: memory, objects by type, who holds the largest tensors.

It is made for moments at which memory is short. What needs little comes first; what finds no memory is left out, and a
note says so. The reports lie in a folder, can be read at any time, and are of bounded size.
"""

from __future__ import annotations

import gc
import linecache
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import psutil

from leaklab.errors import LeaklabError, ReportError
from leaklab.explain.heaps.largest_tensors import (
    Storage,
    buffers_by_size,
    held_by,
    storages_by_path,
    storages_by_size,
    tensor_text,
)
from leaklab.files import FilePath, replacing
from leaklab.heap.borrow import borrow_heap, heap_view, view_for_path
from leaklab.heap.roots import find_starts
from leaklab.heap.running import empty_snapshots
from leaklab.heap.shortest_paths import Start
from leaklab.heap.source_lines import running_cell_name
from leaklab.heap.view import NO_BIRTHS
from leaklab.loop.running import last_words, running_monitors
from leaklab.measure.cheap_counts import native_heap_bytes
from leaklab.measure.checkpoint import whole_heap
from leaklab.measure.gauges import accelerator_levels, nearest_limit, rss_bytes
from leaklab.model.paths import path_of_script
from leaklab.model.process import HeldTensors, KindCount, ProcessLevels, ProcessRecord
from leaklab.reports.process import ProcessReport
from leaklab.runtime.addresses import KindTable, kinds_of
from leaklab.runtime.objects import is_script, is_tensor_type, module_dict
from leaklab.runtime.ours import Origin, is_own_kind, origin_of
from leaklab.version import environment

if TYPE_CHECKING:
    from leaklab.model.loop import MonitorRecord


_N_HOLDERS = 10
_N_KINDS = 20
_N_PATHS_AT_LIMIT = 3
_N_CALLS = 40
_N_CHANGES = 5
_COST_OF_ENDED_FUNCTION = 8  # as much as a path from a running function costs
_BYTES_PER_OBJECT = 300
"""Of memory, which looking at the heap takes for each of its objects: 220 to 260 were measured."""
_NO_HEAP = "there was too little memory to look at the objects: the report has memory levels only"
_NOT_ALL_ARRAYS = "the program holds very many objects: arrays far from any variable were not searched for"
_NO_HOLDERS = "there was too little memory to find every holder: the report lists only the largest tensors"


@dataclass(slots=True)
class _Heap:
    """What was found out about the objects so far; numbers and words only."""

    n_objects: int = 0
    kinds: tuple[KindCount, ...] = ()
    n_tensors: int = 0
    tensor_bytes: int = 0
    tensors: tuple[HeldTensors, ...] = ()
    notes: list[str] = field(default_factory=list)


def take_stock(
    occasion: str,
    *,
    stack: Sequence[str] = (),
    ended: Sequence[FrameType] = (),
    notes: Iterable[str] = (),
    files: Iterable[str] = (),
    looks: bool = True,
) -> ProcessReport:
    """Return what the process holds at this moment.

    Args:
        occasion: Why that is asked, one sentence.
        stack: Where the process is, as `calls_of` has it.
        ended: Frames of functions that an error has ended: their variables hold things as well.
        notes: What is to be said beside.
        files: Names of files that belong to the report.
        looks: Whether to look at the objects; it takes about 3 microseconds for each.
    """
    began = time.perf_counter()
    levels = read_levels()
    loops = (*last_words(), *(monitor.record for monitor in running_monitors()))
    heap = _look(main_variables(), ended) if looks else _Heap()
    if is_script(main_variables()):
        heap.tensors = tuple(_of_script(held) for held in heap.tensors)
    return ProcessReport(
        ProcessRecord(
            occasion=occasion,
            made_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            pid=os.getpid(),
            program=" ".join(sys.orig_argv),
            levels=levels,
            stack=tuple(stack),
            n_objects=heap.n_objects,
            kinds=heap.kinds,
            n_tensors=heap.n_tensors,
            tensor_bytes=heap.tensor_bytes,
            tensors=heap.tensors,
            monitors=tuple(loop.status for loop in loops),
            notes=(*notes, *heap.notes, *_last_changes(loops)),
            files=tuple(files),
            seconds=time.perf_counter() - began,
            environment=environment(),
        )
    )


def _of_script(held: HeldTensors) -> HeldTensors:
    return held if held.path is None else replace(held, path=path_of_script(held.path))


def _last_changes(loops: Iterable[MonitorRecord]) -> Iterator[str]:
    """Yield what was said last of each place that grows; of a loop without one, what was said last."""
    for loop in loops:
        growing = {place.fingerprint for place in loop.places}
        latest = {change.fingerprint: change for change in loop.changes}
        told = [change for key, change in latest.items() if key in growing] or loop.changes[-1:]
        for change in told[-_N_CHANGES:]:
            yield f"{loop.status.name or 'the monitor'} at step {change.step:,}: {change.words}"


def rehearse() -> None:
    """Do all of it once on a heap of two objects, so that nothing has to be imported or compiled when it matters."""
    with heap_view([[], {}], NO_BIRTHS, main_variables()) as view:
        held_by(view, [*storages_by_path(view), *buffers_by_size(view)[0]], _N_HOLDERS)
    report = take_stock("a rehearsal", stack=calls_of(sys._getframe()), looks=False)  # noqa: SLF001 - the caller's
    for write in (str, ProcessReport.to_html):
        write(report)


def bytes_of_a_look() -> int:
    """Return how much memory it would take to look at all objects now."""
    return _BYTES_PER_OBJECT * len(gc.get_objects())


def read_levels() -> ProcessLevels:
    """Return the memory of the process now."""
    accelerator = accelerator_levels()
    allocated, reserved = (None, None) if accelerator is None else accelerator
    rss, heap, limit = rss_bytes(), native_heap_bytes(), nearest_limit()
    if limit is None:
        return ProcessLevels(rss, heap, allocated, reserved)
    return ProcessLevels(rss, heap, allocated, reserved, limit.n_bytes, limit.words, limit.used_bytes())


def main_variables() -> dict[str, Any] | None:
    """Return the variables of the program or notebook."""
    return module_dict(sys.modules["__main__"]) if "__main__" in sys.modules else None


def calls_of(frame: FrameType | None) -> tuple[str, ...]:
    """Return the calls that led to *frame*, outermost first, without leaklab's own."""
    calls: list[str] = []
    while frame is not None and len(calls) < _N_CALLS:
        calls += _call(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return tuple(reversed(calls))


def calls_in(traceback: TracebackType | None) -> tuple[tuple[str, ...], list[FrameType]]:
    """Return the calls that *traceback* leads through, outermost first, and their frames."""
    calls: list[str] = []
    frames: list[FrameType] = []
    while traceback is not None:
        calls += _call(traceback.tb_frame.f_code, traceback.tb_lineno)
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return tuple(calls[-_N_CALLS:]), frames


def _call(code: CodeType, line: int | None) -> Iterator[str]:
    origin = origin_of(code.co_filename)
    if origin not in (Origin.LEAKLAB, Origin.FRONT_END) and line is not None:
        source = linecache.getline(code.co_filename, line).strip() if origin is Origin.USER else ""
        name = running_cell_name(code.co_filename) or Path(code.co_filename).name
        yield f"{name}:{line} in {code.co_name}{': ' if source else ''}{source}"


def _look(namespace: dict[str, Any] | None, ended: Sequence[FrameType]) -> _Heap:
    heap = _Heap()
    with suppress(MemoryError):
        _look_at_all(heap, namespace, ended)
        return heap
    heap.notes.append(_NO_HEAP)
    with suppress(MemoryError):
        _list_tensors(heap)
        heap.notes[-1] = _NO_HOLDERS
        _find_few_holders(heap, namespace, ended)
    empty_snapshots()
    return heap


def _look_at_all(heap: _Heap, namespace: dict[str, Any] | None, ended: Sequence[FrameType]) -> None:
    starts = [*find_starts(namespace), *_ended_functions(ended)]
    with borrow_heap(NO_BIRTHS, namespace, [ended], starts=starts) as view:
        storages = storages_by_path(view)
        _count(heap, view.n_heap, view.types, len(view.tensors), storages)
        buffers, is_complete = buffers_by_size(view)
        heap.tensors = held_by(view, [*storages, *buffers], _N_HOLDERS)
        heap.notes += [*view.notes, *([] if is_complete else [_NOT_ALL_ARRAYS])]


def _list_tensors(heap: _Heap) -> None:
    """Count objects, and list the largest tensors without their holders."""
    with whole_heap() as objects:
        types = KindTable(kinds_of(objects))
        places = np.flatnonzero(types.mask(is_tensor_type)).tolist()
        storages = storages_by_size(objects, places)
        _count(heap, len(objects), types, len(places), storages)
        heap.tensors = tuple(
            HeldTensors("", tensor_text(objects[storage.place]), 1, storage.n_bytes, storage.n_bytes)
            for storage in storages[:_N_HOLDERS]
        )


def _count(heap: _Heap, n_objects: int, types: KindTable, n_tensors: int, storages: Sequence[Storage]) -> None:
    names, counts = types.names, types.counts.tolist()
    in_order = np.argsort(-types.counts, kind="stable").tolist()
    kinds = [KindCount(names[row], counts[row]) for row in in_order if not is_own_kind(types.types[row])]
    heap.n_objects, heap.kinds = n_objects, tuple(kinds[:_N_KINDS])
    heap.n_tensors, heap.tensor_bytes = n_tensors, sum(storage.n_bytes for storage in storages)


def _find_few_holders(heap: _Heap, namespace: dict[str, Any] | None, ended: Sequence[FrameType]) -> None:
    """Find the holders of the few largest tensors, one by one: the graph of the heap found no memory."""
    found: list[HeldTensors] = []
    for number in range(min(_N_PATHS_AT_LIMIT, len(heap.tensors))):
        with whole_heap() as objects:
            places = np.flatnonzero(KindTable(kinds_of(objects)).mask(is_tensor_type)).tolist()
            storage = storages_by_size(objects, places)[number]
            address = id(objects[storage.place])
            starts = _ended_functions(ended)
            with view_for_path(objects, address, namespace, [ended], more_starts=starts) as view:
                vertex = view.index.vertex_of(address)
                found += held_by(view, [Storage(vertex, storage.n_bytes)], 1)
        heap.tensors = (*found, *heap.tensors[len(found) :])


def _ended_functions(ended: Sequence[FrameType]) -> list[Start]:
    """Return the functions that an error has ended: their frames live in its traceback, with their variables."""
    return [
        Start(
            id(frame),
            f"function {frame.f_code.co_name} that the error ended",
            "",
            _COST_OF_ENDED_FUNCTION,
            is_place=True,
        )
        for frame in ended
        if origin_of(frame.f_code.co_filename) is not Origin.LEAKLAB
    ]


_MOST_SNAPSHOT_BYTES = 256 << 20
_PICKLE_PROTOCOL = 4  # torch's own viewer in the browser refuses 5
_SUFFIXES = (".txt", ".html")


class ReportFiles:
    """The files of one process: a text and a page, each written as a whole; a later report replaces them.

    Args:
        folder: Where they are written; made if it is missing.
        prefix: What their names begin with.
        keep: Of so many processes the files stay in the folder, those of this one included; older ones are removed.

    Raises:
        ReportError: if the folder cannot be made.
        ValueError: if *keep* is less than 1.
    """

    def __init__(self, folder: FilePath, prefix: str, keep: int) -> None:
        if keep < 1:
            msg = f"keep must be 1 or more, not {keep}"
            raise ValueError(msg)
        self.folder = Path(folder).absolute()  # the program may change its folder later
        self._prefix, self._keep = prefix, keep
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or error
            msg = f"cannot make the folder {os.fspath(folder)!r}: {reason}; give one that can be written"
            raise ReportError(msg) from error
        self._began = time.strftime("%Y%m%dT%H%M%S", time.gmtime(psutil.Process().create_time()))

    @property
    def text_file(self) -> Path:
        """The text; a process that was forked off has its own."""
        return self._file(".txt")

    def _file(self, ending: str) -> Path:
        return self.folder / f"{self._prefix}_{self._began}_{os.getpid()}{ending}"

    def write(self, report: ProcessReport) -> None:
        """Write *report*; where there is no memory left for the page, the text stands alone.

        Raises:
            ReportError: if the text cannot be written.
        """
        report.save(self.text_file)
        with suppress(MemoryError, ReportError):
            report.save(self._file(".html"))
        self._remove_older()

    def write_snapshot(self, take: Callable[[], dict[str, Any]]) -> tuple[str, str]:
        """Write the memory snapshot that *take* returns; return the name of its file, and why there is none."""
        file = self._file("_cuda.pickle")
        try:
            with replacing(file) as target:
                pickle.dump(take(), _Limited(target), protocol=_PICKLE_PROTOCOL)
        except (LeaklabError, OSError, RuntimeError, MemoryError) as error:
            return "", f"there is no snapshot of the accelerator: {error}"
        return file.name, ""

    def _remove_older(self) -> None:
        """Remove the files of processes before the latest; their names say when each of these began."""
        with suppress(OSError):
            names = {file.name for file in self.folder.glob(f"{self._prefix}_*") if file.is_file()}
            stems = sorted({"_".join(name.split(".")[0].removesuffix("_cuda").rsplit("_", 2)[1:]) for name in names})
            for stem in stems[: -self._keep]:
                for ending in (*_SUFFIXES, "_cuda.pickle"):
                    (self.folder / f"{self._prefix}_{stem}{ending}").unlink(missing_ok=True)


class _Limited:
    """A file that takes so many bytes and no more: the history of a long run may be many gigabytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, _MOST_SNAPSHOT_BYTES

    def write(self, data: bytes) -> int:
        """Write *data*.

        Raises:
            ReportError: if the file would get too large.
        """
        self._left -= memoryview(data).nbytes
        if self._left < 0:
            msg = f"it would be larger than {_MOST_SNAPSHOT_BYTES >> 20} MiB; record fewer events (max_entries)"
            raise ReportError(msg)
        return self._file.write(data)
