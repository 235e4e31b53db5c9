"""Turn the records of snapshots into DataFrames with units in the names of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leaklab.model.snapshots import CallFrame, LiveStack, PoolUse, SnapshotSeries
from leaklab.render.texts import cell_text

if TYPE_CHECKING:
    import pandas as pd

_STACK_TYPES = {
    "stack": "string",
    "device": "string",
    "n_blocks": "int64",
    "active_bytes": "int64",
    "requested_bytes": "int64",
    "pending_bytes": "int64",
    "share": "float64",
    "pool": "string",
    "frames": "string",
}
_POOL_TYPES = {
    "device": "string",
    "pool": "string",
    "n_segments": "int64",
    "reserved_bytes": "int64",
    "active_bytes": "int64",
    "requested_bytes": "int64",
    "pending_bytes": "int64",
    "inactive_split_bytes": "int64",
    "releasable_bytes": "int64",
    "largest_free_bytes": "int64",
    "fragmentation": "float64",
}


def stack_table(stacks: Sequence[LiveStack]) -> pd.DataFrame:
    """Return live bytes by call stack; ``frames`` holds the whole stack, innermost first, one frame per line.

    ``share`` is of the active bytes of all stacks.
    """
    total = sum(stack.active_bytes for stack in stacks) or 1
    rows = [
        (
            stack.label, stack.device, stack.n_blocks, stack.active_bytes, stack.requested_bytes, stack.pending_bytes,
            stack.active_bytes / total, stack.pool, frames_text(stack.frames),
        )
        for stack in stacks
    ]  # fmt: skip
    return _table(rows, _STACK_TYPES)


def pool_table(pools: Sequence[PoolUse]) -> pd.DataFrame:
    """Return the use of each pool; ``fragmentation`` is the share of its reserved bytes that nothing can give back."""
    return _table([tuple(getattr(pool, name) for name in _POOL_TYPES) for pool in pools], _POOL_TYPES)


def series_table(series: SnapshotSeries) -> pd.DataFrame:
    """Return each stack with one column of live (requested) bytes for each snapshot, named as the snapshot."""
    types = {
        "stack": "string",
        "device": "string",
        "change": "string",
        "outcome": "string",
        "growth_bytes": "int64",
        "bytes_per_step": "float64",
        **dict.fromkeys(series.names, "int64"),
        "n_blocks_first": "int64",
        "n_blocks_last": "int64",
        "frames": "string",
    }
    rows = [
        (
            stack.label, stack.device, stack.change.value, stack.outcome.value, stack.growth_bytes,
            stack.bytes_per_step, *stack.live_bytes, stack.n_blocks[0], stack.n_blocks[-1], frames_text(stack.frames),
        )
        for stack in series.stacks
    ]  # fmt: skip
    return _table(rows, types)


def series_device_table(series: SnapshotSeries) -> pd.DataFrame:
    """Return the use of each device in each snapshot, as in `pool_table`."""
    types = {"snapshot": "string", "step": "int64", **{k: v for k, v in _POOL_TYPES.items() if k != "pool"}}
    names = list(types)[2:]
    rows = [
        (name, step, *(getattr(use, field) for field in names))
        for name, step, uses in zip(series.names, series.at_steps, series.devices, strict=True)
        for use in uses
    ]
    return _table(rows, types)


def frames_text(frames: Sequence[CallFrame]) -> str:
    """Return a whole stack, innermost first, one frame per line."""
    return "\n".join(f"{frame.filename}:{frame.line} {frame.name}" for frame in frames)


def _table(rows: Sequence[tuple[object, ...]], types: Mapping[str, str]) -> pd.DataFrame:
    """Return a frame whose columns and types do not depend on how many rows there are."""
    import pandas as pd  # noqa: PLC0415 - pandas costs more than all of leaklab

    columns = [[cell_text(cell) for cell in column] for column in zip(*rows)]  # noqa: B905 - rows are of one length
    data = {
        name: pd.array(column, dtype=dtype)  # type: ignore[call-overload]  # the stubs want each name spelt out
        for (name, dtype), column in zip(types.items(), columns or [[]] * len(types), strict=True)
    }
    return pd.DataFrame(data)
