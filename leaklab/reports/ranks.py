"""What the user holds of many processes that checked one program: one answer, and the report of each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from leaklab.errors import ReportError
from leaklab.model import SCHEMA_VERSION, Outcome
from leaklab.model.monitor import MONITOR_SCHEMA
from leaklab.model.ranks import RANKS_SCHEMA, RankRecord, RanksRecord, SharedLeak
from leaklab.render.base import Forms, Report
from leaklab.render.json import check_fields
from leaklab.render.ranks import ranks_headline, ranks_text
from leaklab.render.ranks_html import ranks_html, ranks_page
from leaklab.render.ranks_rows import answers_of, rows_of, shared_leaks
from leaklab.render.tables import rank_table
from leaklab.reports.check import LeakReport
from leaklab.reports.monitor import MonitorReport
from leaklab.text import shorten

if TYPE_CHECKING:
    import pandas as pd

_HEADLINE_LIMIT = 100


def _fields(record: RanksRecord) -> Mapping[str, object]:
    ranks = []
    for one in record.ranks:
        check = None if one.check is None else check_fields(one.check)
        ranks.append({**asdict(replace(one, check=None)), "check": check})
    return {"schema": record.schema, "notes": record.notes, "ranks": ranks}


def _restored(fields: Any) -> Any:
    """Return *fields*; refuse them where a report within is of another version than this one reads."""
    for one in fields["ranks"]:
        for name, schema in (("check", SCHEMA_VERSION), ("monitor", MONITOR_SCHEMA)):
            found = one[name]
            if found is not None and found["schema"] != schema:
                msg = f"the {name} of rank {one['rank']} was made by another version of leaklab: use one for all ranks"
                raise ReportError(msg)
    return fields


def _page(record: RanksRecord) -> str:
    return ranks_page(record, RanksReport(record).to_json())


@dataclass(frozen=True, slots=True, repr=False)
class RanksReport(Report[RanksRecord]):
    """What many processes found that checked one program, made by `leaklab.merge` or ``leaklab merge``.

    Attributes:
        record: The records of all of them, with every figure.
    """

    _forms: ClassVar = Forms(
        kind=RanksRecord,
        format="leaklab ranks",
        schema=RANKS_SCHEMA,
        text=ranks_text,
        html=ranks_html,
        page=_page,
        fields=_fields,
        restored=_restored,
    )
    record: RanksRecord

    @property
    def leaked(self) -> bool:
        """Whether one of them leaks."""
        return any(answer.outcome is Outcome.LEAK for answer in answers_of(self.record))

    @property
    def is_proven(self) -> bool:
        """Whether each of them came to a verdict: without that, ``not leaked`` proves nothing."""
        return all(answer.is_proof for answer in answers_of(self.record))

    @property
    def leaks(self) -> tuple[SharedLeak, ...]:
        """Each leak once, with the ranks that have it; what fewest of them have comes first."""
        return shared_leaks(answers_of(self.record))

    @property
    def odd(self) -> tuple[int, ...]:
        """The ranks that say something else than more than half of all; empty where no answer has that majority."""
        rows = rows_of(answers_of(self.record))
        return tuple(sorted(answer.record.rank for row in rows if row.is_odd for answer in row.answers))

    @property
    def reports(self) -> dict[int, LeakReport | MonitorReport]:
        """The report of each rank that has one; of two answers of one rank the later."""
        found: dict[int, LeakReport | MonitorReport] = {}
        for one in self.record.ranks:
            if one.check is not None:
                found[one.rank] = LeakReport(one.check)
            elif one.monitor is not None:
                found[one.rank] = MonitorReport(one.monitor)
        return found

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each rank, indexed by its number: verdict, rate, worst place, fingerprints."""
        return rank_table(answers_of(self.record))

    def __repr__(self) -> str:
        return f"<RanksReport {shorten(ranks_headline(self.record), _HEADLINE_LIMIT)}>"


def rank_to_json(record: RankRecord) -> str:
    """Return *record* as one line of JSON: a `RanksReport` of one.

    Raises:
        ReportError: if a figure is NaN or infinite, which JSON cannot say.
    """
    return RanksReport(RanksRecord((record,))).to_json()
