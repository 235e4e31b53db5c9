"""Open memory snapshots of torch and compare them: what the front ends call."""

from leaklab.snapshotting.comparison import SnapshotComparison
from leaklab.snapshotting.opening import compare_snapshots, find_snapshots, live_snapshot, load_snapshot
from leaklab.snapshotting.snapshot import CudaSnapshot

__all__ = [
    "CudaSnapshot",
    "SnapshotComparison",
    "compare_snapshots",
    "find_snapshots",
    "live_snapshot",
    "load_snapshot",
]
