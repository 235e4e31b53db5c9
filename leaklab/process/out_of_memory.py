"""``leaklab.on_oom``: a process that runs out of memory, or dies in another way, leaves a report on who held it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from leaklab.cuda.recording import take as take_snapshot
from leaklab.files import FilePath
from leaklab.loop.running import add_room, remove_room
from leaklab.measure.gauges import MemoryLimit
from leaklab.process.last_moments import (
    ErrorHooks,
    ignore_devices,
    in_main_thread,
    is_of_device,
    is_out_of_memory,
    limit_threads,
    observe_devices,
    traceback_of,
    words_of,
)
from leaklab.process.signal_hook import SignalHook, refuse_uncatchable, signal_name
from leaklab.process.stock import ReportFiles, bytes_of_a_look, calls_in, calls_of, rehearse, take_stock
from leaklab.reports.process import ProcessReport
from leaklab.runtime.sparse_graphs import private_memory
from leaklab.text import format_bytes

if TYPE_CHECKING:
    import mmap
    from collections.abc import Sequence

    from typing_extensions import Self

_PREFIX, _PREFIX_OF_ANY = "out_of_memory", "post_mortem"
_RESERVE_BYTES = 128 << 20
_OWN_SHARE = 0.05
"""Looking at the heap may take no more than this part of the time: some programs try until a batch fits."""
_MAIN_THREAD_SECONDS = 0.2
"""So long the report waits for the main thread to come to its next instruction."""
_KILLED = "the process died before its objects could be read"


def on_oom(
    folder: FilePath = ".",
    *,
    share: float = 0.9,
    keep: int = 3,
    snapshot: bool = True,
    reserve_bytes: int = _RESERVE_BYTES,
    any_death: bool = False,
) -> OutOfMemoryWatch:
    """Write a report into *folder* when this process runs out of memory: who held it, where the program was.

    From this call on, or inside of ``with leaklab.on_oom(folder):``. What counts is an error that nobody caught and
    that says that there is no memory, on the host or on a device; every allocation that fails on a CUDA device, whether
    the program survives it or not; and that the memory of the container is nearly used up, after which the kernel
    kills without a word. The report is a text and a page, ``out_of_memory_<start>_<process>.txt`` and ``.html``, and
    for CUDA a memory snapshot; of one process the latest report stays. What the monitors of loops knew is in it, also
    of those whose ``with`` block has ended by then.

    Args:
        folder: Where the files are written; made if it is missing.
        share: Part of the container's limit at which the report is written, above 0 and below 1; earlier where the rest
            would be too little to look at the objects.
        keep: Of so many processes the reports stay in the folder; older ones are removed.
        snapshot: Whether to write a snapshot of the CUDA allocator, of 256 MiB at most.
        reserve_bytes: Address space set aside to report with; it takes no memory until then.
        any_death: Whether every error that ends the program counts as well, and Ctrl-C and SIGTERM: for a job that
            grows and is ended before it runs out. The files are then named ``post_mortem_...``.

    Returns:
        The watch; its ``stop()`` ends it and brings all hooks back.

    Raises:
        LeaklabError: with *any_death* outside of the main thread, which alone may set handlers of signals.
        ReportError: if the folder cannot be made.
        ValueError: if a number makes no sense.
    """
    if not 0 < share < 1:
        msg = f"share must be above 0 and below 1, not {share}"
        raise ValueError(msg)
    if reserve_bytes < 0:
        msg = f"reserve_bytes must be 0 or more, not {reserve_bytes}"
        raise ValueError(msg)
    if any_death:
        refuse_uncatchable(signal.SIGTERM, "on_oom(any_death=True)")
    files = ReportFiles(folder, _PREFIX_OF_ANY if any_death else _PREFIX, keep)
    return OutOfMemoryWatch(files, share, reserve_bytes, takes_snapshots=snapshot, any_death=any_death)


class OutOfMemoryWatch:
    """What `leaklab.on_oom` returns; also a context manager, which stops at its end."""

    def __init__(
        self, files: ReportFiles, share: float, reserve_bytes: int, *, takes_snapshots: bool, any_death: bool = False
    ) -> None:
        rehearse()  # what is imported and compiled now needs no memory then
        self._reporter = _Reporter(files, reserve_bytes, takes_snapshots=takes_snapshots)
        self._folder = files.folder
        self._any_death = any_death
        self._hooks: ErrorHooks | None = ErrorHooks(self._reporter, any_error=any_death)
        self._at_signal = SignalHook(signal.SIGTERM, self._reporter.on_term) if any_death else None
        observe_devices(self._reporter)
        add_room(self._reporter.reserve)
        self._threads = list(limit_threads(self._reporter, share, bytes_of_a_look))
        for thread in self._threads:
            thread.start()

    @property
    def file(self) -> Path | None:
        """The text of the latest report; None before the first."""
        return self._reporter.file

    def __repr__(self) -> str:
        state = "stopped" if self._hooks is None else "waiting"
        return f"<leaklab.on_oom({str(self._folder)!r}): {state if self.file is None else self.file.name}>"

    def __enter__(self) -> Self:
        """Return the watch; it has begun already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Report if the block ran out of memory, and stop. The error passes through."""
        del traceback
        counts = self._any_death and kind not in (None, SystemExit, GeneratorExit)
        if self._hooks is not None and error is not None and (counts or is_out_of_memory(error)):
            self._reporter.make_room()
            self._reporter.on_error(error)
        self.stop()

    def stop(self) -> None:
        """Bring all hooks back; what was written stays."""
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.remove()
            if self._at_signal is not None:
                self._at_signal.remove()
            remove_room(self._reporter.reserve)
            ignore_devices(self._reporter)
            for thread in self._threads:
                thread.stop()
            self._reporter.make_room()


class _Reporter:
    """Writes the reports; `leaklab.process.last_moments` tells it when."""

    def __init__(self, files: ReportFiles, reserve_bytes: int, *, takes_snapshots: bool) -> None:
        self.file: Path | None = None
        self._files, self._takes_snapshots = files, takes_snapshots
        self.reserve = _Reserve(reserve_bytes)
        self._lock = threading.RLock()
        self._last: ProcessReport | None = None
        self._is_of_device = False
        self._rests_until = 0.0

    def make_room(self) -> None:
        """Give back what was set aside."""
        self.reserve.free()

    def on_error(self, error: BaseException) -> None:
        """Report on an error that nobody caught."""
        last = self._last
        if is_of_device(error) and self._is_of_device and last is not None and last.record.n_objects:
            self._say()  # written when the allocator failed, and the functions that it ended were still running
            return
        stack, frames = calls_in(traceback_of(error))
        what = "the program ran out of memory" if is_out_of_memory(error) else "an error ended the program"
        self._report(f"{what}: {words_of(error)}", stack, frames)
        self._say()

    def on_term(self, frame: FrameType | None) -> None:
        """Report that somebody ends the process."""
        with suppress(Exception):  # it is to die all the same
            self._report(f"{signal_name(signal.SIGTERM)} ended the program", calls_of(frame))
            self._say()

    def on_device(self, device: int, wanted: int, total: int, free: int) -> None:
        """Report on an allocation that found no memory on a CUDA device."""
        self._report(
            f"cuda:{device} ran out of memory: an allocation of {format_bytes(wanted)} failed with "
            f"{format_bytes(free)} of {format_bytes(total)} free",
            calls_of(sys._getframe(1)),  # noqa: SLF001 - where the program is
            of_device=True,
        )

    def on_limit(self, limit: MemoryLimit, used: int) -> None:
        """Report on a limit that is nearly reached; called in a thread of its own."""
        occasion = (
            f"the {limit.words} is nearly reached: {format_bytes(used)} of {format_bytes(limit.n_bytes)} are used; "
            "beyond it, the kernel kills the process"
        )

        def report() -> None:
            stack = calls_of(sys._current_frames().get(threading.main_thread().ident or 0))  # noqa: SLF001 - of all threads
            self._report(occasion, stack, is_urgent=True)

        in_main_thread(report, _MAIN_THREAD_SECONDS)
        self._say()

    def _report(
        self,
        occasion: str,
        stack: Sequence[str],
        ended: Sequence[FrameType] = (),
        *,
        of_device: bool = False,
        is_urgent: bool = False,
    ) -> None:
        with self._lock:
            self.reserve.free()
            try:
                if is_urgent:  # what costs no time comes first: the process may be killed while it looks at its heap
                    self._files.write(take_stock(occasion, stack=stack, notes=[_KILLED], looks=False))
                self._write(occasion, stack, ended, of_device=of_device)
            finally:
                self.reserve.take()

    def _write(self, occasion: str, stack: Sequence[str], ended: Sequence[FrameType], *, of_device: bool) -> None:
        began = time.monotonic()
        looks = began >= self._rests_until or not of_device
        notes = [] if looks else [_skipped_words(self._rests_until - began)]
        names: list[str] = []
        if of_device and self._takes_snapshots and looks:
            name, problem = self._files.write_snapshot(take_snapshot)
            names += [name] if name else []
            notes += [problem] if problem else []
        report = take_stock(occasion, stack=stack, ended=ended, notes=notes, files=names, looks=looks)
        if looks:
            ended_at = time.monotonic()
            self._rests_until = ended_at + (ended_at - began) / _OWN_SHARE
        self._files.write(report)
        self._last, self._is_of_device, self.file = report, of_device, self._files.text_file

    def _say(self) -> None:
        """Tell on stderr where the report is."""
        with suppress(Exception):
            print(f"leaklab: the report on who held the memory is in {self.file}", file=sys.stderr, flush=True)  # noqa: T201 - the program may be dying


def _skipped_words(seconds: float) -> str:
    return (
        f"the objects were reported a moment ago; the next full report is possible in {seconds:.0f} s, so that a "
        "program that retries smaller batches is not slowed down"
    )


class _Reserve:
    """Address space that is set aside; no page of it is ever touched."""

    def __init__(self, n_bytes: int) -> None:
        self._n_bytes = n_bytes
        self._space: mmap.mmap | None = None
        self.take()

    def take(self) -> None:
        """Set it aside again, where there is room."""
        if self._space is None and self._n_bytes:
            with suppress(OSError, MemoryError):
                self._space = private_memory(self._n_bytes)

    def free(self) -> None:
        """Give it back to the system."""
        space, self._space = self._space, None
        if space is not None:
            space.close()
