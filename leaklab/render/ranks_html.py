"""Write what many processes found as HTML: the answer, a row for those that are alike, the report of each folded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from leaklab.model.ranks import RankRecord, RanksRecord
from leaklab.render.check_html import Extent, render_body
from leaklab.render.json import embedded
from leaklab.render.monitor import monitor_html
from leaklab.render.ranks import RanksView
from leaklab.render.ranks_rows import named
from leaklab.render.templates import page, render

_N_REPORTS = 64
"""Reports of single processes on a page; a report takes some ten kilobytes, with its pictures ten times as much."""
_WITHOUT_GRAPHS = Extent(n_leaks=5, n_open=1)


@dataclass(frozen=True, slots=True)
class RankSection:
    """The own report of one process.

    Attributes:
        record: Its record.
        name: What people call it.
        body: The report.
    """

    record: RankRecord
    name: str
    body: Markup


def ranks_html(record: RanksRecord) -> str:
    """Return *record* as HTML that survives the sanitizers of notebooks, with the report of one process of each row."""
    return str(_body(RanksView(record), heading="div", is_whole=False))


def ranks_page(record: RanksRecord, json: str) -> str:
    """Return *record* as a page of its own, with the reports of all processes, that carries *json* within itself."""
    view = RanksView(record)
    body = _body(view, heading="h1", is_whole=True) + Markup(embedded(json))  # noqa: S704 - a script element of its own
    return page(f"leaklab: {view.badge} {view.headline}", body)


def _body(view: RanksView, *, heading: str, is_whole: bool) -> Markup:
    sections = list(_sections(view, is_whole=is_whole))
    n_left_out = sum(answer.record.check is not None or answer.record.monitor is not None for answer in view.answers)
    return render("ranks.html.j2", view=view, heading=heading, sections=sections, n_left_out=n_left_out - len(sections))


def _sections(view: RanksView, *, is_whole: bool) -> Iterator[RankSection]:
    """Yield the reports in the order of the rows: the first of each row with its pictures, the others without."""
    firsts = [row.answers[0].record for row in view.rows]
    others = [answer.record for row in view.rows for answer in row.answers[1:]] if is_whole else []
    for number, record in enumerate([*firsts, *others][:_N_REPORTS]):
        body = _of_one(record, has_pictures=is_whole and number < len(firsts))
        if body:
            yield RankSection(record, named([record], view.noun), body)


def _of_one(record: RankRecord, *, has_pictures: bool) -> Markup:
    parts = []
    if record.check is not None and has_pictures:
        parts.append(render_body(record.check))
    elif record.check is not None:
        parts.append(render_body(record.check, _WITHOUT_GRAPHS, draw=_no_drawing, plot=_no_plot))
    if record.monitor is not None:
        parts.append(Markup(monitor_html(record.monitor)))  # noqa: S704 - a template's
    return Markup("").join(parts)


def _no_drawing(_source: str, **_options: float) -> None:
    """Draw nothing: the path stands there as text."""


def _no_plot(_check: object) -> None:
    """Draw nothing: the figures stand in the table."""
