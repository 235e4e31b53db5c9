"""Turn the records of a check into DataFrames with units in the names of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from leaklab.model import Check
from leaklab.render.texts import cell_text

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
