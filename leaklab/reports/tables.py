"""Turn records into DataFrames with units in the names of their columns, and some of those into CSV.

The columns of a table and their types do not depend on how many rows there are.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leaklab.model import Check
from leaklab.model.alive import WhyAliveRecord
from leaklab.model.autograd import AutogradRecord, GraphPart
from leaklab.model.cuda import CallFrame, LiveStack, PoolUse, SnapshotSeries
from leaklab.text import cell_text

if TYPE_CHECKING:
    import pandas as pd

_Types = Mapping[str, str]
_Computed = Mapping[str, Callable[[Any], object]]

_OBJECTS: _Types = {
    "kind": "string", "outcome": "string", "count_per_run": "float64", "bytes_per_run": "int64", "n_kept": "int64",
    "kept_by_run": "string", "n_before": "int64", "n_after": "int64",
}  # fmt: skip
_TENSORS: _Types = {
    "kind": "string", "shape": "string", "dtype": "string", "device": "string", "has_graph": "bool",
    "outcome": "string", "count_per_run": "float64", "bytes_per_run": "int64", "bytes_kept": "int64",
    "n_kept": "int64", "kept_by_run": "string",
}  # fmt: skip
_CONTAINERS: _Types = {
    "holder": "string", "kind": "string", "content": "string", "outcome": "string", "unit": "string",
    "per_run": "float64", "bytes_per_run": "int64", "first_length": "int64", "last_length": "int64",
    "lengths": "string", "at_runs": "string",
}  # fmt: skip
_RUNS: _Types = {
    "run": "int64", "seconds": "float64", "n_born": "int64", "n_kept": "int64", "n_tensors_kept": "int64",
    "tensor_bytes_kept": "int64", "heap_bytes": "Int64", "python_blocks": "Int64", "accelerator_bytes": "Int64",
    "rss_bytes": "int64",
}  # fmt: skip
_LEAKS: _Types = {
    "leak": "int64", "what": "string", "cause": "string", "holder": "string", "bytes_per_run": "int64",
    "count_per_run": "float64", "unit": "string", "retained_bytes": "Int64", "kept_by_run": "string",
    "path": "string", "sites": "string", "advice": "string", "fingerprint": "string",
}  # fmt: skip
_PATHS: _Types = {
    "path": "int64", "root": "string", "step": "int64", "reference": "string", "kind": "string", "summary": "string",
    "status": "string", "is_cut": "bool", "note": "string",
}  # fmt: skip
_REFERENCES: _Types = {
    "holder": "string", "reference": "string", "kind": "string", "count": "int64", "from_cpp": "bool",
    "is_reached": "bool",
}  # fmt: skip
_PARTS: _Types = {
    "n_nodes": "int64", "n_saved": "int64", "n_freed": "int64", "n_packed": "int64", "bytes": "int64",
    "own_bytes": "int64",
}  # fmt: skip
_SAVED_TENSORS: _Types = {
    "kind": "string", "shape": "string", "dtype": "string", "device": "string", "count": "int64", "bytes": "Int64",
    "saved_by": "string", "sharing": "string", "shared_with": "string", "is_packed": "bool", "lines": "string",
}  # fmt: skip
_STACKS: _Types = {
    "stack": "string", "device": "string", "n_blocks": "int64", "active_bytes": "int64", "requested_bytes": "int64",
    "pending_bytes": "int64", "share": "float64", "pool": "string", "frames": "string",
}  # fmt: skip
_ALLOCATIONS: _Types = {
    "stack": "string", "leak": "Int64", "bytes_per_run": "int64", "share": "float64", "frames": "string",
}  # fmt: skip
_DEVICE_USES: _Types = {
    "device": "string", "n_segments": "int64", "reserved_bytes": "int64", "active_bytes": "int64",
    "requested_bytes": "int64", "pending_bytes": "int64", "inactive_split_bytes": "int64", "releasable_bytes": "int64",
    "largest_free_bytes": "int64", "fragmentation": "float64",
}  # fmt: skip
_POOLS: _Types = {"device": "string", "pool": "string", **_DEVICE_USES}


def frame_of(
    rows: Iterable[object], types: _Types, index: str | None = None, computed: _Computed | None = None
) -> pd.DataFrame:
    """Return a frame with a row for each of *rows*.

    Args:
        rows: Records.
        types: Type of each column, in their order. A cell is the attribute of that name; of a member of an enum its
            value.
        index: The column to index by.
        computed: For columns of another name or form: what makes the cell of a row.
    """
    import pandas as pd  # noqa: PLC0415 - pandas costs more than all of leaklab

    listed, made = list(rows), computed or {}
    data = {}
    for name, dtype in types.items():
        cells = [made[name](row) if name in made else getattr(row, name) for row in listed]
        plain = [cell_text(cell.value if isinstance(cell, enum.Enum) else cell) for cell in cells]
        data[name] = pd.array(plain, dtype=dtype)  # type: ignore[call-overload]  # the stubs want each name spelt out
    frame = pd.DataFrame(data)
    return frame if index is None else frame.set_index(index)


def csv_of(frame: pd.DataFrame, *, index: bool = True) -> str:
    """Return *frame* as CSV in which no spreadsheet finds a formula: a text that begins like one follows a quote."""
    shown = frame.copy()
    for name, dtype in shown.dtypes.items():
        if dtype == "string":
            shown[name] = shown[name].map(_harmless)
    shown.columns = shown.columns.map(cell_text).map(_harmless)
    return shown.to_csv(index=index, lineterminator="\n")


def _harmless(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_SIGNS) else cell


_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also as wide letters


def _of_item(position: int, name: str) -> Callable[[Any], object]:
    return lambda row: getattr(row[position], name)


def _of_record(name: str) -> Callable[[Any], object]:
    return lambda row: getattr(row.record, name)


def _level_at(number: int) -> Callable[[Any], object]:
    return lambda stack: stack.live_bytes[number]


def _blanks(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


def _whole_bytes(row: Any) -> int:
    """Return the bytes per run as a whole number: pandas would write 2.031321e+06."""
    return bounded_bytes(row.bytes_per_run)


def bounded_bytes(n_bytes: float) -> int:
    """Return *n_bytes* as a whole number that fits a column."""
    return round(min(max(n_bytes, -_MOST_BYTES), _MOST_BYTES))


_MOST_BYTES = float(1 << 62)
_RATE: _Computed = {"bytes_per_run": _whole_bytes}
_KEPT: _Computed = {**_RATE, "n_kept": lambda row: sum(row.kept), "kept_by_run": lambda row: _blanks(row.kept)}


def object_table(check: Check) -> pd.DataFrame:
    """Return what the runs left behind by type, indexed by the type's name.

    ``kept_by_run`` holds, for each measured run, how many of its objects are still alive, separated by blanks.
    """
    return frame_of(check.objects, _OBJECTS, "kind", _KEPT)


def tensor_table(check: Check) -> pd.DataFrame:
    """Return the tensors that the runs left behind, one row for each shape, dtype and device."""
    return frame_of(check.tensors, _TENSORS, computed={**_KEPT, "shape": lambda row: str(row.shape)})


def container_table(check: Check) -> pd.DataFrame:
    """Return the containers that grew in place, indexed by the expression that holds them.

    ``per_run`` and the lengths are counted in ``unit``; ``lengths`` were taken after the runs in ``at_runs``.
    """
    computed: _Computed = {
        **_RATE,
        "first_length": lambda row: row.lengths[0] if row.lengths else 0,
        "last_length": lambda row: row.lengths[-1] if row.lengths else 0,
        "lengths": lambda row: _blanks(row.lengths),
        "at_runs": lambda row: _blanks(row.at_runs),
    }
    return frame_of(check.containers, _CONTAINERS, "holder", computed)


def run_table(check: Check) -> pd.DataFrame:
    """Return the measured runs, indexed by their number; levels that could not be read are missing values."""
    return frame_of(check.runs, _RUNS, "run", {"run": lambda row: row.number})


def leak_table(check: Check) -> pd.DataFrame:
    """Return the leaks, largest first, indexed from 1 as in the text of the report."""
    numbers = iter(range(1, len(check.leaks) + 1))
    computed: _Computed = {
        **_RATE,
        "leak": lambda _: next(numbers),
        "kept_by_run": _KEPT["kept_by_run"],
        "path": lambda row: str(row.path),
        "sites": lambda row: "; ".join(row.sites),
    }
    return frame_of(check.leaks, _LEAKS, "leak", computed)


def leaks_csv(check: Check) -> str:
    """Return the table of leaks as CSV with a header line; only the header where nothing leaks."""
    return csv_of(leak_table(check))


def path_table(alive: WhyAliveRecord) -> pd.DataFrame:
    """Return one row for each step of each path; ``path`` and ``step`` are numbered from 0."""
    rows = [
        (number, path, position, step)
        for number, path in enumerate(alive.paths)
        for position, step in enumerate(path.path.steps)
    ]
    computed: _Computed = {
        **{name: _of_item(3, name) for name in _PATHS},
        "path": lambda row: row[0],
        "root": lambda row: row[1].path.root,
        "step": lambda row: row[2],
        "is_cut": lambda row: row[2] in row[1].cut_at,
    }
    return frame_of(rows, _PATHS, computed=computed)


def reference_table(alive: WhyAliveRecord) -> pd.DataFrame:
    """Return one row for each direct reference to the object."""
    return frame_of(alive.references, _REFERENCES)


def part_table(parts: Sequence[GraphPart], index: str) -> pd.DataFrame:
    """Return operations or lines with their figures, most bytes first.

    ``bytes`` counts a storage at every part that saved it; ``own_bytes`` are those that nobody else holds.
    """
    computed: _Computed = {index: lambda part: part.name, "bytes": lambda part: part.n_bytes}
    return frame_of(parts, {index: "string", **_PARTS}, index, computed)


def kept_table(retention: AutogradRecord) -> pd.DataFrame:
    """Return the saved tensors, largest first; those that are alike in everything make one row."""
    computed: _Computed = {
        "shape": lambda row: str(row.shape),
        "bytes": lambda row: row.n_bytes,
        "saved_by": lambda row: ", ".join(row.saved_by),
        "lines": lambda row: "; ".join(row.lines),
    }
    return frame_of(retention.tensors, _SAVED_TENSORS, computed=computed)


def kept_csv(retention: AutogradRecord) -> str:
    """Return the saved tensors as CSV with a header line."""
    return csv_of(kept_table(retention), index=False)


def stack_table(stacks: Sequence[LiveStack]) -> pd.DataFrame:
    """Return live bytes by call stack; ``frames`` holds the whole stack, innermost first, one frame per line.

    ``share`` is of the active bytes of all stacks.
    """
    total = sum(stack.active_bytes for stack in stacks) or 1
    return frame_of(stacks, _STACKS, computed={**_STACK_WORDS, "share": lambda stack: stack.active_bytes / total})


def allocation_table(check: Check) -> pd.DataFrame:
    """Return what the leaks leave per run, by call stack; ``frames`` holds the whole stack, innermost first.

    ``leak`` is the number of the leak, ``share`` is of the bytes per run of all leaks with stacks.
    """
    numbers = {leak.fingerprint: number for number, leak in enumerate(check.leaks)}
    frames = check.stacks.frames_of
    total = sum(stack.bytes_per_run for stack in check.stacks.stacks) or 1
    computed: _Computed = {
        "leak": lambda stack: numbers.get(stack.fingerprint),
        "share": lambda stack: stack.bytes_per_run / total,
        "bytes_per_run": _whole_bytes,
        "stack": lambda stack: " <- ".join([frame.label for frame in frames(stack) if frame.is_yours][:2]),
        "frames": lambda stack: "\n".join(frame.label for frame in frames(stack)),
    }
    return frame_of(check.stacks.stacks, _ALLOCATIONS, computed=computed)


def pool_table(pools: Sequence[PoolUse]) -> pd.DataFrame:
    """Return the use of each pool; ``fragmentation`` is the share of its reserved bytes that is split free."""
    return frame_of(pools, _POOLS)


def series_table(series: SnapshotSeries) -> pd.DataFrame:
    """Return each stack with one column of live (requested) bytes for each snapshot, named as the snapshot."""
    types = {
        "stack": "string", "device": "string", "change": "string", "outcome": "string", "growth_bytes": "int64",
        "bytes_per_step": "float64", **dict.fromkeys(series.names, "int64"), "n_blocks_first": "int64",
        "n_blocks_last": "int64", "frames": "string",
    }  # fmt: skip
    computed: _Computed = {
        **{name: _level_at(number) for number, name in enumerate(series.names)},
        **_STACK_WORDS,
        "n_blocks_first": lambda stack: stack.n_blocks[0],
        "n_blocks_last": lambda stack: stack.n_blocks[-1],
    }
    return frame_of(series.stacks, types, computed=computed)


def series_device_table(series: SnapshotSeries) -> pd.DataFrame:
    """Return the use of each device in each snapshot, as in `pool_table`."""
    rows = [
        (name, step, use)
        for name, step, uses in zip(series.names, series.at_steps, series.devices, strict=True)
        for use in uses
    ]
    computed: _Computed = {
        **{name: _of_item(2, name) for name in _DEVICE_USES},
        "snapshot": lambda row: row[0],
        "step": lambda row: row[1],
    }
    return frame_of(rows, {"snapshot": "string", "step": "int64", **_DEVICE_USES}, computed=computed)


def series_csv(series: SnapshotSeries) -> str:
    """Return the stacks as CSV with a header line."""
    return csv_of(series_table(series))


def _frames_text(frames: Sequence[CallFrame]) -> str:
    """Return a whole stack, innermost first, one frame per line."""
    return "\n".join(f"{frame.filename}:{frame.line} {frame.name}" for frame in frames)


_STACK_WORDS: _Computed = {"stack": lambda row: row.label, "frames": lambda row: _frames_text(row.frames)}
