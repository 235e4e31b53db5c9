"""What the user holds of a question to the heap: the objects that fit, as records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from leaklab.model.found import FOUND_SCHEMA, FoundRecord
from leaklab.render.base import Forms, Report
from leaklab.render.found import found_words, render_found, render_found_html
from leaklab.render.tables import found_csv, found_table
from leaklab.text import shorten

if TYPE_CHECKING:
    import pandas as pd

_WORDS_LIMIT = 100


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
        text=render_found,
        html=render_found_html,
        more={".csv": found_csv},
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
        """Return one row for each object, the largest first; not more than were asked for."""
        return found_table(self.record)

    def __len__(self) -> int:
        return self.record.n_found

    def __repr__(self) -> str:
        return f"<FoundObjects {shorten(found_words(self.record), _WORDS_LIMIT)}>"
