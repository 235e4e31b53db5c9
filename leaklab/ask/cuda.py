"""Open CUDA memory snapshots and compare them: files, the running process, before and after a stretch of code."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from leaklab.cuda.judging import judge_snapshots
from leaklab.cuda.live_blocks import Identity, match
from leaklab.cuda.reading import ReadingProgress, read_pickle
from leaklab.cuda.recording import recorded_history, take
from leaklab.cuda.schema import Memory, memory_of
from leaklab.cuda.survivors import (
    Summary,
    ascending,
    first_strangers,
    in_order,
    is_shown_to_be_one_run,
    summary_of,
    survival_of,
    with_survival,
)
from leaklab.errors import SnapshotError
from leaklab.model import Outcome
from leaklab.model.cuda import SnapshotSeries, StackKey
from leaklab.reports.cuda import CudaSnapshot
from leaklab.reports.cuda_series import SnapshotComparison
from leaklab.runtime.gc_control import gc_paused

FilePath = str | os.PathLike[str]
_LEAST = 2
_WHOLE = 1000


def load_cuda_snapshot(
    path: FilePath, *, audited: bool | None = None, progress: ReadingProgress | None = None
) -> CudaSnapshot:
    """Open a file that ``torch.cuda.memory._dump_snapshot`` wrote, without running anything that it holds.

    Works without torch and without a GPU.

    Args:
        path: The file.
        audited: True looks at every opcode of the file before anything is built from it, whatever its size, at two
            to three times the time; None does so for files up to 32 MiB. Say True for a large file you do not trust.
        progress: Called with the bytes read and the bytes in all.

    Raises:
        SnapshotError: if the file cannot be read, is damaged or hostile, or holds no snapshot.
    """
    with gc_paused():
        return CudaSnapshot(_memory(path, audited=audited, progress=progress))


def live_snapshot(name: str = "now") -> CudaSnapshot:
    """Return the state of the CUDA allocator of this process.

    Blocks have call stacks only as far as recording was on: see `leaklab.record_cuda`.

    Raises:
        SnapshotError: if torch has no CUDA here.
    """
    return CudaSnapshot(memory_of(take(), name))


def compare_cuda_snapshots(
    snapshots: Sequence[CudaSnapshot | FilePath],
    *,
    key: str = "auto",
    card_bytes: int | None = None,
    audited: bool | None = None,
    progress: ReadingProgress | None = None,
) -> SnapshotComparison:
    """Compare two or more snapshots by call stack.

    Args:
        snapshots: Files, or snapshots that are open already, oldest first. Those of one process are put in order by
            the times in their traces, else by their steps or the numbers in their names; a note says so. Of a file
            only what is compared stays in memory.
        key: ``"exact"``, ``"project"`` or ``"auto"``: see `leaklab.model.cuda.StackKey`.
        card_bytes: Memory of the card, for the projection; None takes it from the files where they tell it.
        audited: As in `load_cuda_snapshot`.
        progress: Called with what is done and what is to be done, in thousandths of a snapshot.

    Raises:
        SnapshotError: if there are fewer than two, or one of them cannot be opened.
        ValueError: if the key is unknown, or the size of the card is no positive number.
    """
    wanted = _known_key(key)
    if card_bytes is not None and not card_bytes > 0:
        msg = f"the memory of the card must be a positive number of bytes, not {card_bytes}"
        raise ValueError(msg)
    if len(snapshots) < _LEAST:
        msg = f"a comparison needs two or more snapshots, not {len(snapshots)}"
        raise SnapshotError(msg)
    read = []
    numbers: dict[Identity, int] = {}
    with gc_paused():
        for number, snapshot in enumerate(snapshots):
            inner = None if progress is None else _part(progress, number, len(snapshots))
            memory = _opened(snapshot, audited=audited, progress=inner)
            read.append(summary_of(memory, numbers))
        return SnapshotComparison(_series(read, numbers, wanted, card_bytes))


def _part(progress: ReadingProgress, number: int, n_parts: int) -> ReadingProgress:
    """Return what is told the progress of one of several files."""

    def report(done: int, total: int) -> None:
        progress(number * _WHOLE + _WHOLE * done // max(total, 1), n_parts * _WHOLE)

    return report


def _series(
    given: Sequence[Summary], numbers: Mapping[Identity, int], key: StackKey | None, card_bytes: int | None
) -> SnapshotSeries:
    read, order_notes = in_order(given, numbers)
    names = _distinct([summary.name for summary in read])
    strangers = first_strangers(read, numbers)
    series = judge_snapshots(
        names=names,
        steps=ascending([summary.step_or_number for summary in read]),
        matching=with_survival(
            match([summary.stacks for summary in read], key),
            [summary.stacks for summary in read],
            survival_of([summary.blocks for summary in read], numbers),
        ),
        devices=[summary.devices for summary in read],
        card_bytes=card_bytes,
        cards={device: size for summary in read for device, size in summary.cards.items()},
        strangers="" if strangers is None else _strangers_words(names, *strangers),
        notes=[*order_notes, *_notes(read)],
    )
    if series.verdict.outcome is Outcome.LEAK and not is_shown_to_be_one_run(read):
        series = replace(series, notes=(*series.notes, _ONE_RUN))
    return series


_ONE_RUN = (
    "the traces do not prove that all files come from one run, and growth between runs is not a leak: record with a "
    "larger max_entries"
)


def _strangers_words(names: Sequence[str], number: int, why: str) -> str:
    return (
        f"{names[number]} and {names[number + 1]} may come from different runs: {why}; a difference between runs "
        "is not a leak, so compare snapshots of one run"
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names of the files alone, or their paths where two of them have the same name."""
    short = [Path(name).name or name for name in names]
    if len(set(short)) == len(short):
        return short
    return [f"{number}: {name}" for number, name in enumerate(names)]


def _notes(read: Sequence[Summary]) -> list[str]:
    """Return what is to be said of the blocks of each snapshot; traces are not compared."""
    return [f"{Path(one.name).name}: {note}" for one in read for note in one.notes if "trace" not in note]


def _known_key(key: str) -> StackKey | None:
    if key == "auto":
        return None
    try:
        return StackKey(key)
    except ValueError:
        msg = f"the key must be 'auto', 'exact' or 'project', not {key!r}"
        raise ValueError(msg) from None


def _opened(snapshot: CudaSnapshot | FilePath, *, audited: bool | None, progress: ReadingProgress | None) -> Memory:
    if isinstance(snapshot, CudaSnapshot):
        return snapshot._blocks  # noqa: SLF001 - it says what is wrong where there are none
    return _memory(snapshot, audited=audited, progress=progress)


def _memory(path: FilePath, *, audited: bool | None, progress: ReadingProgress | None) -> Memory:
    return memory_of(read_pickle(path, audited=audited, progress=progress), os.fspath(path))


def find_snapshots(patterns: Iterable[FilePath]) -> list[Path]:
    """Return the files that *patterns* name: paths as they are, globs in the order of the numbers in their names.

    Raises:
        SnapshotError: if there is no such file.
    """
    found: list[Path] = []
    for entry in patterns:
        pattern = os.fspath(entry)
        if Path(pattern).exists() or not glob.has_magic(pattern):
            matches = [pattern]
        else:
            matches = sorted(glob.glob(pattern), key=_natural)  # noqa: PTH207 - a pattern may be absolute
        files = [Path(match) for match in matches if Path(match).is_file()]
        if not files:
            msg = f"there is no file {pattern!r}; give a snapshot written by torch.cuda.memory._dump_snapshot(path)"
            raise SnapshotError(msg)
        found += files
    return found


def _natural(path: str) -> list[tuple[int, int | str]]:
    """Return what sorts ``snap_9`` before ``snap_10``."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.findall(r"\d+|\D+", path)]


class CudaStretch:
    """A stretch of code whose allocations are recorded with their call stacks, from `start` to `finish`."""

    def __init__(self) -> None:
        self._recording = ExitStack()
        self._before: CudaSnapshot | None = None

    def start(self, name: str) -> None:
        """Begin recording, unless somebody records already, and note what is allocated now.

        Raises:
            SnapshotError: if torch has no CUDA device here.
        """
        self._recording.enter_context(recorded_history())
        self._before = live_snapshot(name)

    def finish(self, name: str, error: BaseException | None = None) -> SnapshotComparison:
        """Return what is allocated now against what was at the start; *error* of the code in between changes nothing.

        Raises:
            RuntimeError: if `start` was not called.
        """
        del error
        if self._before is None:
            msg = "finish() compares with start(), which was not called"
            raise RuntimeError(msg)
        comparison = compare_cuda_snapshots([self._before, live_snapshot(name)])
        self.abandon()
        return comparison

    def abandon(self) -> None:
        """Stop recording, if it was this stretch that began it."""
        self._recording.close()
        self._before = None
