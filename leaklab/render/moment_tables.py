"""Turn a difference between two moments into DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from leaklab.model.differences import Difference
from leaklab.render.moment_wording import lines_of
from leaklab.render.texts import cell_text

if TYPE_CHECKING:
    import pandas as pd

_Types = Mapping[str, str]

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


def object_table(difference: Difference) -> pd.DataFrame:
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
            _joined(row.holders),
        )
        for row in difference.objects
    ]
    return _table(rows, _OBJECTS, "kind")


def tensor_table(difference: Difference) -> pd.DataFrame:
    """Return the kinds of tensors that were born or died."""
    rows = [
        (
            row.what.kind, row.what.shape, row.what.dtype, row.what.device, row.what.has_graph, row.n_born, row.n_died,
            row.n_before, row.n_after, row.bytes_born, row.bytes_died, _joined(row.holders),
        )
        for row in difference.tensors
    ]  # fmt: skip
    return _table(rows, _TENSORS)


def array_table(difference: Difference) -> pd.DataFrame:
    """Return the arrays and buffers of a kilobyte or more that were born or died."""
    rows = [
        (row.what, row.n_born, row.n_died, row.bytes_born, row.bytes_died, _joined(row.holders))
        for row in difference.arrays
    ]
    return _table(rows, _ARRAYS, "what")


def container_table(difference: Difference) -> pd.DataFrame:
    """Return the containers that live at both moments and have another length."""
    rows = [
        (row.holder, row.kind, row.before, row.after, row.content, row.content_bytes) for row in difference.containers
    ]
    return _table(rows, _CONTAINERS, "holder")


def variable_table(difference: Difference) -> pd.DataFrame:
    """Return the variables and module attributes that changed, indexed by their expression."""
    rows = [
        (row.expression, row.home, row.change, row.before, row.after, row.bytes_before, row.bytes_after)
        for row in difference.places
    ]
    return _table(rows, _VARIABLES, "expression")


def device_table(difference: Difference) -> pd.DataFrame:
    """Return tensors and unique storages by device, indexed by the device."""
    rows = [
        (
            row.device, row.tensors_before, row.tensors_after, row.storages_before, row.storages_after,
            row.bytes_before, row.bytes_after,
        )
        for row in difference.devices
    ]  # fmt: skip
    return _table(rows, _DEVICES, "device")


def to_csv(difference: Difference) -> str:
    """Return the lines of the report as CSV, one change in each."""
    rows = [(line.group, line.count, line.what, line.n_bytes, _joined(line.holders)) for line in lines_of(difference)]
    return _table(rows, _LINES).to_csv(index=False, lineterminator="\n")


def _joined(holders: tuple[str, ...]) -> str:
    return ", ".join(holders)


def _table(rows: Sequence[tuple[object, ...]], types: _Types, index: str | None = None) -> pd.DataFrame:
    """Return a frame whose columns and types do not depend on how many rows there are."""
    import pandas as pd  # noqa: PLC0415 - pandas costs more than all of leaklab

    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in types]
    data = {
        name: pd.array([cell_text(cell) for cell in column], dtype=dtype)  # type: ignore[call-overload]  # the stubs want each name spelt out
        for (name, dtype), column in zip(types.items(), columns, strict=True)
    }
    frame = pd.DataFrame(data)
    return frame if index is None else frame.set_index(index)
