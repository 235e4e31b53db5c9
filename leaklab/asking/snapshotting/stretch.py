"""Compare the CUDA allocator before and after a stretch of code."""

from __future__ import annotations

from contextlib import ExitStack

from leaklab.asking.snapshotting.comparison import SnapshotComparison
from leaklab.asking.snapshotting.opening import compare_snapshots, live_snapshot
from leaklab.asking.snapshotting.snapshot import CudaSnapshot
from leaklab.snapshots.recording import recorded_history


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
        comparison = compare_snapshots([self._before, live_snapshot(name)])
        self.abandon()
        return comparison

    def abandon(self) -> None:
        """Stop recording, if it was this stretch that began it."""
        self._recording.close()
        self._before = None
