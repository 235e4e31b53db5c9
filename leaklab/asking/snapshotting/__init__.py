"""Open memory snapshots of torch and compare them: what the front ends call."""

from leaklab.asking.snapshotting.comparison import SnapshotComparison
from leaklab.asking.snapshotting.opening import compare_snapshots, find_snapshots, live_snapshot, load_snapshot
from leaklab.asking.snapshotting.snapshot import CudaSnapshot

__all__ = [
    "CudaSnapshot",
    "SnapshotComparison",
    "compare_snapshots",
    "find_snapshots",
    "live_snapshot",
    "load_snapshot",
]
