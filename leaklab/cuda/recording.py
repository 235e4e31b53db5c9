"""Record the history of the CUDA allocator of this process, and take snapshots of it.

The only module of this package that touches torch, and only when it is asked to record.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from leaklab.cuda.schema import NOTE_KEY
from leaklab.errors import ReportError, SnapshotError
from leaklab.files import replacing

MAX_EVENTS = 100_000
"""Events kept in the ring: torch says several KB each, so some hundred MB at most."""
_LOADED_NS = time.time_ns()
_PROTOCOL = 4  # torch's own viewer in the browser refuses 5
Item = TypeVar("Item")


def _memory_module() -> Any:
    """Return ``torch.cuda.memory``.

    Raises:
        SnapshotError: if torch is missing, or has no CUDA device here.
    """
    try:
        import torch  # noqa: PLC0415 - reading snapshots needs none
    except ImportError as error:
        msg = "recording needs torch, which cannot be imported here; load_cuda_snapshot opens files without it"
        raise SnapshotError(msg) from error
    memory: Any = torch.cuda.memory
    if not torch.cuda.is_available() or not hasattr(torch._C, "_cuda_memorySnapshot"):  # noqa: SLF001 - its only home
        msg = "recording needs a CUDA device, and torch sees none here; load_cuda_snapshot opens files without one"
        raise SnapshotError(msg)
    return memory


def is_recording() -> bool:
    """Return whether the history of the allocator is being recorded already, by whomever.

    False where torch does not tell (before 2.1).

    Raises:
        SnapshotError: as `take`.
    """
    _memory_module()
    import torch  # noqa: PLC0415 - it is there: the line above asked

    ask = getattr(torch._C, "_cuda_isHistoryEnabled", None)  # noqa: SLF001 - torch has no public name for it
    return bool(ask()) if ask is not None else False


@contextmanager
def recorded_history(max_events: int = MAX_EVENTS) -> Iterator[bool]:
    """Record call stacks of allocations inside the block; yield whether it was leaklab that switched recording on.

    Python stacks only (C++ stacks make a dump a hundred times slower), in a ring of *max_events*. A recording that is
    on already is somebody's: it is used as it is, and left on.

    Raises:
        SnapshotError: as `take`.
        ValueError: if *max_events* is not positive.
    """
    if max_events < 1:
        msg = f"max_events must be 1 or more, not {max_events}"
        raise ValueError(msg)
    memory = _memory_module()
    if is_recording():
        yield False
        return
    memory._record_memory_history(  # noqa: SLF001 - documented under this name
        enabled="all", context="all", stacks="python", max_entries=max_events
    )
    try:
        yield True
    finally:
        memory._record_memory_history(enabled=None)  # noqa: SLF001 - as above


def take(step: int | None = None) -> dict[str, Any]:
    """Return a snapshot of the allocator as torch gives it, with a note of the *step*, the cards and the process.

    Raises:
        SnapshotError: if torch is missing, or has no CUDA device here.
    """
    memory = _memory_module()
    import torch  # noqa: PLC0415 - it is there: the line above asked

    snapshot: dict[str, Any] = memory._snapshot()  # noqa: SLF001 - documented under this name
    cards = {
        f"cuda:{number}": int(torch.cuda.get_device_properties(number).total_memory)
        for number in range(torch.cuda.device_count())
    }
    note: dict[str, Any] = {"card_bytes": cards, "run": f"{os.getpid()}-{_LOADED_NS}"}
    if step is not None:
        note["step"] = step
    return {**snapshot, NOTE_KEY: note}


class CudaRecorder:
    """Takes a snapshot every so many steps of a training loop; made by `leaklab.record_cuda`."""

    def __init__(self, every: int, keep: int, folder: Path, max_events: int) -> None:
        self._every, self._keep, self._folder, self._max_events = every, keep, folder, max_events
        self._n_steps = 0
        self._files: list[Path] = []
        self._history: Any = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The snapshots that are kept, oldest first."""
        return tuple(self._files)

    def __enter__(self) -> CudaRecorder:  # noqa: PYI034 - Self is younger than Python 3.10
        _memory_module()  # where nothing can be recorded, no folder is left behind
        _make(self._folder)
        history = recorded_history(self._max_events)
        history.__enter__()
        self._history = history
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        history, self._history = self._history, None
        history.__exit__(kind, error, traceback)

    def step(self) -> Path | None:
        """Count one step; every so many, write a snapshot and return its file, and delete the oldest beyond *keep*.

        Raises:
            SnapshotError: outside the ``with`` block, or if the file cannot be written.
        """
        if self._history is None:
            msg = "nothing is recorded here: call step() inside `with leaklab.record_cuda(...) as recorder:`"
            raise SnapshotError(msg)
        self._n_steps += 1
        if self._n_steps % self._every:
            return None
        path = self._folder / f"snapshot_{os.getpid()}_{self._n_steps:06d}.pickle"
        _write(path, take(self._n_steps))
        self._files.append(path)
        while len(self._files) > self._keep:
            self._files.pop(0).unlink(missing_ok=True)
        return path

    def follow(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield *items*, and count a step after each: ``for batch in recorder.follow(loader):``."""
        for item in items:
            yield item
            self.step()


def record_cuda(
    every: int = 50,
    keep: int = 4,
    dir: str | os.PathLike[str] = ".",  # noqa: A002 - what one would type
    *,
    max_events: int = MAX_EVENTS,
) -> CudaRecorder:
    """Record a training loop: one snapshot every *every* steps, the newest *keep* of them on disk.

    ::

        with leaklab.record_cuda(every=50, keep=4, dir="snapshots") as recorder:
            for batch in loader:
                train(batch)
                recorder.step()
        leaklab.compare_cuda_snapshots(recorder.files)

    Args:
        every: Steps between two snapshots.
        keep: Files kept, at least 2; older ones of this recorder are deleted.
        dir: Folder for the files; made on entering if it is missing.
        max_events: Length of the ring of events.

    Raises:
        ValueError: if a number is too small.
        SnapshotError: if the folder cannot be made; on entering, if torch has no CUDA device, and then no folder is
            made.
    """
    for name, number, least in (("every", every, 1), ("keep", keep, 2), ("max_events", max_events, 1)):
        if number < least:
            msg = f"{name} must be {least} or more, not {number}"
            raise ValueError(msg)
    folder = Path(dir)
    _refuse_unusable(folder)
    return CudaRecorder(every, keep, folder, max_events)


def _refuse_unusable(folder: Path) -> None:
    """Find out before anything is recorded whether *folder* could be made and written to; make nothing."""
    try:
        nearest = next(place for place in (folder, *folder.resolve().parents) if place.exists())
        reason = "" if nearest.is_dir() else f"{str(nearest)!r} is a file"
        reason = reason or ("" if os.access(nearest, os.W_OK) else f"{str(nearest)!r} cannot be written to")
    except (OSError, ValueError) as error:  # a name that is too long, or none of this system
        reason = getattr(error, "strerror", None) or str(error)
    if reason:
        raise SnapshotError(_folder_words(folder, reason))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapshotError(_folder_words(folder, error.strerror or str(error))) from error


def _folder_words(folder: Path, reason: str) -> str:
    return f"cannot make the folder {os.fspath(folder)!r}: {reason}; give one that can be written"


def _write(path: Path, snapshot: dict[str, Any]) -> None:
    try:
        with replacing(path) as file:
            pickle.dump(snapshot, file, protocol=_PROTOCOL)
    except ReportError as error:
        raise SnapshotError(str(error)) from error
