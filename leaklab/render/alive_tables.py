"""Turn the records of an `Alive` into DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from leaklab.model.alive import Alive
from leaklab.render.texts import cell_text

if TYPE_CHECKING:
    import pandas as pd

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


def path_table(alive: Alive) -> pd.DataFrame:
    """Return one row for each step of each path; ``path`` and ``step`` are numbered from 0."""
    rows = (
        (number, one.path.root, position, step.reference, step.kind, step.summary, step.status.value,
         position in one.cut_at, step.note)
        for number, one in enumerate(alive.paths)
        for position, step in enumerate(one.path.steps)
    )  # fmt: skip
    return _frame(rows, _PATH_TYPES)


def reference_table(alive: Alive) -> pd.DataFrame:
    """Return one row for each direct reference to the object."""
    rows = ((r.holder, r.reference, r.kind, r.count, r.from_cpp, r.is_reached) for r in alive.references)
    return _frame(rows, _REFERENCE_TYPES)


def _frame(rows: Iterable[Sequence[object]], types: Mapping[str, str]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - paid by those who look at a table

    clean = [[cell_text(cell) for cell in row] for row in rows]
    return pd.DataFrame(clean, columns=list(types)).astype(dict(types))
