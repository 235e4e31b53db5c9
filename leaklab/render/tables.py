"""Turn the records of a check into DataFrames with units in the names of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from leaklab.model import Check
from leaklab.model.alive import WhyAliveRecord
from leaklab.model.autograd import AutogradRecord, GraphPart
from leaklab.model.heap_diff import Difference
from leaklab.render.heap_diff import lines_of
from leaklab.text import cell_text

if TYPE_CHECKING:
    import pandas as pd

_Types = Mapping[str, str]

_OBJECT_TYPES: _Types = {
    "kind": "string",
    "outcome": "string",
    "count_per_run": "float64",
    "bytes_per_run": "float64",
    "n_kept": "int64",
    "kept_by_run": "string",
    "n_before": "int64",
    "n_after": "int64",
}
_TENSOR_TYPES: _Types = {
    "kind": "string",
    "shape": "string",
    "dtype": "string",
    "device": "string",
    "has_graph": "bool",
    "outcome": "string",
    "count_per_run": "float64",
    "bytes_per_run": "float64",
    "bytes_kept": "int64",
    "n_kept": "int64",
    "kept_by_run": "string",
}
_CONTAINER_TYPES: _Types = {
    "holder": "string",
    "kind": "string",
    "content": "string",
    "outcome": "string",
    "unit": "string",
    "per_run": "float64",
    "bytes_per_run": "float64",
    "first_length": "int64",
    "last_length": "int64",
    "lengths": "string",
    "at_runs": "string",
}
_RUN_TYPES: _Types = {
    "run": "int64",
    "seconds": "float64",
    "n_born": "int64",
    "n_kept": "int64",
    "n_tensors_kept": "int64",
    "tensor_bytes_kept": "int64",
    "heap_bytes": "Int64",
    "python_blocks": "Int64",
    "accelerator_bytes": "Int64",
    "rss_bytes": "int64",
}
_LEAK_TYPES: _Types = {
    "leak": "int64",
    "what": "string",
    "cause": "string",
    "holder": "string",
    "bytes_per_run": "float64",
    "count_per_run": "float64",
    "unit": "string",
    "retained_bytes": "Int64",
    "kept_by_run": "string",
    "path": "string",
    "sites": "string",
    "advice": "string",
    "fingerprint": "string",
}


def object_table(check: Check) -> pd.DataFrame:
    """Return what the runs left behind by type, indexed by the type's name.

    ``kept_by_run`` holds, for each measured run, how many of its objects are still alive, separated by blanks.
    """
    rows = [
        (
            row.kind, row.outcome.value, row.count_per_run, row.bytes_per_run, sum(row.kept), _joined(row.kept),
            row.n_before, row.n_after,
        )
        for row in check.objects
    ]  # fmt: skip
    return _table(rows, _OBJECT_TYPES, "kind")


def tensor_table(check: Check) -> pd.DataFrame:
    """Return the tensors that the runs left behind, one row for each shape, dtype and device."""
    rows = [
        (
            row.kind, str(row.shape), row.dtype, row.device, row.has_graph, row.outcome.value, row.count_per_run,
            row.bytes_per_run, row.bytes_kept, sum(row.kept), _joined(row.kept),
        )
        for row in check.tensors
    ]  # fmt: skip
    return _table(rows, _TENSOR_TYPES)


def container_table(check: Check) -> pd.DataFrame:
    """Return the containers that grew in place, indexed by the expression that holds them.

    ``per_run`` and the lengths are counted in ``unit``; ``lengths`` were taken after the runs in ``at_runs``.
    """
    rows = [
        (
            row.holder, row.kind, row.content, row.outcome.value, row.unit, row.per_run, row.bytes_per_run,
            row.lengths[0] if row.lengths else 0, row.lengths[-1] if row.lengths else 0, _joined(row.lengths),
            _joined(row.at_runs),
        )
        for row in check.containers
    ]  # fmt: skip
    return _table(rows, _CONTAINER_TYPES, "holder")


def run_table(check: Check) -> pd.DataFrame:
    """Return the measured runs, indexed by their number; levels that could not be read are missing values."""
    rows = [
        (
            run.number, run.seconds, run.n_born, run.n_kept, run.n_tensors_kept, run.tensor_bytes_kept,
            run.heap_bytes, run.python_blocks, run.accelerator_bytes, run.rss_bytes,
        )
        for run in check.runs
    ]  # fmt: skip
    return _table(rows, _RUN_TYPES, "run")


def leak_table(check: Check) -> pd.DataFrame:
    """Return the leaks, largest first, indexed from 1 as in the text of the report."""
    rows = [
        (
            number, leak.what, leak.cause, leak.holder, leak.bytes_per_run, leak.count_per_run, leak.unit,
            leak.retained_bytes, _joined(leak.kept), str(leak.path), "; ".join(leak.sites), leak.advice,
            leak.fingerprint,
        )
        for number, leak in enumerate(check.leaks, 1)
    ]  # fmt: skip
    return _table(rows, _LEAK_TYPES, "leak")


def _table(rows: Sequence[tuple[object, ...]], types: _Types, index: str | None = None) -> pd.DataFrame:
    """Return a frame whose columns and types do not depend on how many rows there are."""
    import pandas as pd  # noqa: PLC0415 - pandas costs more than all of leaklab

    columns = [[cell_text(cell) for cell in column] for column in zip(*rows, strict=True)] or [[]] * len(types)
    data = {
        name: pd.array(column, dtype=dtype)  # type: ignore[call-overload]  # the stubs want each name spelt out
        for (name, dtype), column in zip(types.items(), columns, strict=True)
    }
    frame = pd.DataFrame(data)
    return frame if index is None else frame.set_index(index)


def _joined(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


# Turn the records of a `WhyAliveRecord` into DataFrames.


_PATH_TYPES: Mapping[str, str] = {
    "path": "int64",
    "root": "string",
    "step": "int64",
    "reference": "string",
    "kind": "string",
    "summary": "string",
    "status": "string",
    "is_cut": "bool",
    "note": "string",
}
_REFERENCE_TYPES: Mapping[str, str] = {
    "holder": "string",
    "reference": "string",
    "kind": "string",
    "count": "int64",
    "from_cpp": "bool",
    "is_reached": "bool",
}


def path_table(alive: WhyAliveRecord) -> pd.DataFrame:
    """Return one row for each step of each path; ``path`` and ``step`` are numbered from 0."""
    rows = (
        (number, one.path.root, position, step.reference, step.kind, step.summary, step.status.value,
         position in one.cut_at, step.note)
        for number, one in enumerate(alive.paths)
        for position, step in enumerate(one.path.steps)
    )  # fmt: skip
    return _frame(rows, _PATH_TYPES)


def reference_table(alive: WhyAliveRecord) -> pd.DataFrame:
    """Return one row for each direct reference to the object."""
    rows = ((r.holder, r.reference, r.kind, r.count, r.from_cpp, r.is_reached) for r in alive.references)
    return _frame(rows, _REFERENCE_TYPES)


def _frame(rows: Iterable[Sequence[object]], types: Mapping[str, str]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - paid by those who look at a table

    clean = [[cell_text(cell) for cell in row] for row in rows]
    return pd.DataFrame(clean, columns=list(types)).astype(dict(types))


# Write the leaks of a check as comma separated values, one leak in each line.


def leaks_csv(check: Check) -> str:
    """Return the table of leaks as CSV with a header line; only the header where nothing leaks."""
    return leak_table(check).to_csv(lineterminator="\n")


# Turn a difference between two moments into DataFrames.


_OBJECTS: _Types = {
    "kind": "string", "n_born": "int64", "n_died": "int64", "n_before": "int64", "n_after": "int64",
    "bytes_delta": "int64", "n_aside": "int64", "holders": "string",
}  # fmt: skip
_TENSORS: _Types = {
    "kind": "string", "shape": "string", "dtype": "string", "device": "string", "has_graph": "bool",
    "n_born": "int64", "n_died": "int64", "n_before": "int64", "n_after": "int64", "bytes_born": "int64",
    "bytes_died": "int64", "holders": "string",
}  # fmt: skip
_ARRAYS: _Types = {
    "what": "string", "n_born": "int64", "n_died": "int64", "bytes_born": "int64", "bytes_died": "int64",
    "holders": "string",
}  # fmt: skip
_CONTAINERS: _Types = {
    "holder": "string", "kind": "string", "before": "int64", "after": "int64", "content": "string",
    "content_bytes": "int64",
}  # fmt: skip
_VARIABLES: _Types = {
    "expression": "string", "home": "string", "change": "string", "before": "string", "after": "string",
    "bytes_before": "int64", "bytes_after": "int64",
}  # fmt: skip
_DEVICES: _Types = {
    "device": "string", "tensors_before": "int64", "tensors_after": "int64", "storages_before": "int64",
    "storages_after": "int64", "bytes_before": "int64", "bytes_after": "int64",
}  # fmt: skip
_LINES: _Types = {"group": "string", "count": "int64", "what": "string", "bytes": "Int64", "holders": "string"}


def object_change_table(difference: Difference) -> pd.DataFrame:
    """Return the types of which objects were born or died, indexed by the type's name."""
    rows = [
        (
            row.kind,
            row.n_born,
            row.n_died,
            row.n_before,
            row.n_after,
            row.bytes_delta,
            row.n_aside,
            _joined_holders(row.holders),
        )
        for row in difference.objects
    ]
    return _diff_table(rows, _OBJECTS, "kind")


def tensor_change_table(difference: Difference) -> pd.DataFrame:
    """Return the kinds of tensors that were born or died."""
    rows = [
        (
            row.what.kind, row.what.shape, row.what.dtype, row.what.device, row.what.has_graph, row.n_born, row.n_died,
            row.n_before, row.n_after, row.bytes_born, row.bytes_died, _joined_holders(row.holders),
        )
        for row in difference.tensors
    ]  # fmt: skip
    return _diff_table(rows, _TENSORS)


def array_table(difference: Difference) -> pd.DataFrame:
    """Return the arrays and buffers of a kilobyte or more that were born or died."""
    rows = [
        (row.what, row.n_born, row.n_died, row.bytes_born, row.bytes_died, _joined_holders(row.holders))
        for row in difference.arrays
    ]
    return _diff_table(rows, _ARRAYS, "what")


def container_change_table(difference: Difference) -> pd.DataFrame:
    """Return the containers that live at both moments and have another length."""
    rows = [
        (row.holder, row.kind, row.before, row.after, row.content, row.content_bytes) for row in difference.containers
    ]
    return _diff_table(rows, _CONTAINERS, "holder")


def variable_table(difference: Difference) -> pd.DataFrame:
    """Return the variables and module attributes that changed, indexed by their expression."""
    rows = [
        (row.expression, row.home, row.change, row.before, row.after, row.bytes_before, row.bytes_after)
        for row in difference.places
    ]
    return _diff_table(rows, _VARIABLES, "expression")


def device_table(difference: Difference) -> pd.DataFrame:
    """Return tensors and unique storages by device, indexed by the device."""
    rows = [
        (
            row.device, row.tensors_before, row.tensors_after, row.storages_before, row.storages_after,
            row.bytes_before, row.bytes_after,
        )
        for row in difference.devices
    ]  # fmt: skip
    return _diff_table(rows, _DEVICES, "device")


def changes_csv(difference: Difference) -> str:
    """Return the lines of the report as CSV, one change in each."""
    rows = [
        (line.group, line.count, line.what, line.n_bytes, _joined_holders(line.holders))
        for line in lines_of(difference)
    ]
    return _diff_table(rows, _LINES).to_csv(index=False, lineterminator="\n")


def _joined_holders(holders: tuple[str, ...]) -> str:
    return ", ".join(holders)


def _diff_table(rows: Sequence[tuple[object, ...]], types: _Types, index: str | None = None) -> pd.DataFrame:
    """Return a frame whose columns and types do not depend on how many rows there are."""
    import pandas as pd  # noqa: PLC0415 - pandas costs more than all of leaklab

    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in types]
    data = {
        name: pd.array([cell_text(cell) for cell in column], dtype=dtype)  # type: ignore[call-overload]  # the stubs want each name spelt out
        for (name, dtype), column in zip(types.items(), columns, strict=True)
    }
    frame = pd.DataFrame(data)
    return frame if index is None else frame.set_index(index)


# Turn what a graph keeps into DataFrames with units in the names of their columns.


_PART_TYPES = {
    "n_nodes": "int64",
    "n_saved": "int64",
    "n_freed": "int64",
    "n_packed": "int64",
    "bytes": "int64",
    "own_bytes": "int64",
}
_SAVED_TENSOR_TYPES = {
    "kind": "string",
    "shape": "string",
    "dtype": "string",
    "device": "string",
    "count": "int64",
    "bytes": "Int64",
    "saved_by": "string",
    "sharing": "string",
    "shared_with": "string",
    "is_packed": "bool",
    "lines": "string",
}


def part_table(parts: Sequence[GraphPart], index: str) -> pd.DataFrame:
    """Return operations or lines with their figures, most bytes first.

    ``bytes`` counts a storage at every part that saved it; ``own_bytes`` are those that nobody else holds.
    """
    rows = [
        (part.name, part.n_nodes, part.n_saved, part.n_freed, part.n_packed, part.n_bytes, part.own_bytes)
        for part in parts
    ]
    return _retention_frame(rows, {index: "string", **_PART_TYPES}).set_index(index)


def kept_table(retention: AutogradRecord) -> pd.DataFrame:
    """Return the saved tensors, largest first; those that are alike in everything make one row."""
    rows = [
        (
            row.kind, str(row.shape), row.dtype, row.device, row.count, row.n_bytes, ", ".join(row.saved_by),
            row.sharing.value, row.shared_with, row.is_packed, "; ".join(row.lines),
        )
        for row in retention.tensors
    ]  # fmt: skip
    return _retention_frame(rows, _SAVED_TENSOR_TYPES)


def kept_csv(retention: AutogradRecord) -> str:
    """Return the saved tensors as CSV with a header line."""
    return kept_table(retention).to_csv(index=False, lineterminator="\n")


def _retention_frame(rows: Sequence[tuple[object, ...]], types: dict[str, str]) -> pd.DataFrame:
    """Return a frame whose columns and types do not depend on how many rows there are."""
    import pandas as pd  # noqa: PLC0415 - pandas costs more than all of leaklab

    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * len(types)
    data = {
        name: pd.array([cell_text(cell) for cell in column], dtype=dtype)  # type: ignore[call-overload]  # the stubs want each name spelt out
        for (name, dtype), column in zip(types.items(), columns, strict=True)
    }
    return pd.DataFrame(data)
