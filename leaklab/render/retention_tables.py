"""Turn what a graph keeps into DataFrames with units in the names of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from leaklab.model.retention import GraphPart, Retention
from leaklab.render.texts import cell_text

if TYPE_CHECKING:
    import pandas as pd

_PART_TYPES = {
    "n_nodes": "int64",
    "n_saved": "int64",
    "n_freed": "int64",
    "n_packed": "int64",
    "bytes": "int64",
    "own_bytes": "int64",
}
_TENSOR_TYPES = {
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
    return _frame(rows, {index: "string", **_PART_TYPES}).set_index(index)


def kept_table(retention: Retention) -> pd.DataFrame:
    """Return the saved tensors, largest first; those that are alike in everything make one row."""
    rows = [
        (
            row.kind, str(row.shape), row.dtype, row.device, row.count, row.n_bytes, ", ".join(row.saved_by),
            row.sharing.value, row.shared_with, row.is_packed, "; ".join(row.lines),
        )
        for row in retention.tensors
    ]  # fmt: skip
    return _frame(rows, _TENSOR_TYPES)


def kept_csv(retention: Retention) -> str:
    """Return the saved tensors as CSV with a header line."""
    return kept_table(retention).to_csv(index=False, lineterminator="\n")


def _frame(rows: Sequence[tuple[object, ...]], types: dict[str, str]) -> pd.DataFrame:
    """Return a frame whose columns and types do not depend on how many rows there are."""
    import pandas as pd  # noqa: PLC0415 - pandas costs more than all of leaklab

    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * len(types)
    data = {
        name: pd.array([cell_text(cell) for cell in column], dtype=dtype)  # type: ignore[call-overload]  # the stubs want each name spelt out
        for (name, dtype), column in zip(types.items(), columns, strict=True)
    }
    return pd.DataFrame(data)
