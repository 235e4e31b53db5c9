"""Which objects of a heap fit a condition: what is said of them, and what the user holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from leaklab.model.heap import FOUND_SCHEMA, FoundObject, FoundRecord
from leaklab.render.base import Forms, Report
from leaklab.render.document import (
    Document,
    DocumentBlock,
    Gap,
    Headline,
    Remark,
    RowLine,
    Table,
    code,
    faint,
    notes_of,
)
from leaklab.reports.tables import csv_of, frame_of
from leaklab.text import clipped, format_bytes, shorten, unit_words

if TYPE_CHECKING:
    import pandas as pd

_N_ROWS = 30
_HOLDER_LIMIT = 160
_WHERE_LIMIT = 300
_WORDS_LIMIT = 100
_COLUMNS = {
    "type": "string", "holder": "string", "bytes": "int64", "exclusive_bytes": "int64", "shape": "string",
    "dtype": "string", "device": "string", "requires_grad": "boolean", "place": "string", "number": "int64",
}  # fmt: skip


def document_of(record: FoundRecord) -> Document:
    """Return what is said of the objects that fit."""
    record = clipped(record)
    blocks: list[DocumentBlock] = [Headline(found_words(record))]
    if record.rows:
        rows = tuple(
            (format_bytes(row.n_bytes), format_bytes(row.exclusive_bytes), code(_holder_words(row)), _what_words(row))
            for row in record.rows[:_N_ROWS]
        )
        lines = (RowLine("{0:>9}  {1:>9}  {2}", hang=24), RowLine("{3}", 26, 28))
        blocks += [Gap(), Table((">bytes", ">exclusive", "object", "what it is"), rows, lines, has_head=True)]
    if rest := _rest_words(record):
        blocks.append(Remark(faint(rest), indent=2))
    return Document((*blocks, *notes_of(record.notes)))


def found_words(record: FoundRecord) -> str:
    """Return the answer in one sentence."""
    asked = ", ".join(filter(None, (record.kind, shorten(record.where, _WHERE_LIMIT))))
    fit = f"match{'es' * (record.n_found == 1)} ({asked})" if asked else "are known"
    size = f": {format_bytes(record.n_bytes)} together" if record.n_found else ""
    return f"{record.n_found:,} of {unit_words(record.n_objects, 'objects')} {fit}{size}"


def _what_words(row: FoundObject) -> str:
    """Return type, shape, dtype and device of an object."""
    grad = "requires_grad" if row.requires_grad else ""
    return " ".join(filter(None, (row.kind, row.shape, row.dtype, row.device, grad)))


def _holder_words(row: FoundObject) -> str:
    """Return Python for an object, where it begins if there is none."""
    return shorten(row.holder, _HOLDER_LIMIT) or f"({row.place})"


def _rest_words(record: FoundRecord) -> str:
    """Return how many objects are not shown; empty if all are."""
    n_shown = min(len(record.rows), _N_ROWS)
    if record.n_found <= n_shown:
        return ""
    in_table = f" (.to_frame() has {len(record.rows) - n_shown:,} of them)" if len(record.rows) > n_shown else ""
    return f"and {record.n_found - n_shown:,} more{in_table}"


def _table(record: FoundRecord) -> pd.DataFrame:
    computed = {"type": lambda row: row.kind, "bytes": lambda row: row.n_bytes}
    return frame_of(record.rows, _COLUMNS, computed=computed)


@dataclass(frozen=True, slots=True, repr=False)
class FoundObjects(Report[FoundRecord]):
    """The objects that fit a condition, made by `leaklab.find`.

    It holds records: no object of the user, and nothing that keeps one alive.

    Attributes:
        record: Every figure.
    """

    _forms: ClassVar = Forms(
        kind=FoundRecord,
        format="leaklab found",
        schema=FOUND_SCHEMA,
        document=document_of,
        more={".csv": lambda record: csv_of(_table(record), index=False)},
    )
    record: FoundRecord

    @property
    def n_found(self) -> int:
        """How many objects fit, also where not all of them have a row."""
        return self.record.n_found

    @property
    def n_bytes(self) -> int:
        """Bytes of all that fit, storages counted once."""
        return self.record.n_bytes

    @property
    def holders(self) -> tuple[str, ...]:
        """For each row the expression for the object; empty where Python has none."""
        return tuple(row.holder for row in self.record.rows)

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each object, the largest first; not more than were asked for.

        ``bytes`` are the object's own with the storages it uses, ``exclusive_bytes`` what comes back if it goes.
        """
        return _table(self.record)

    def __len__(self) -> int:
        return self.record.n_found

    def __repr__(self) -> str:
        return f"<FoundObjects {shorten(found_words(self.record), _WORDS_LIMIT)}>"
