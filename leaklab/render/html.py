"""Write a check as HTML: a fragment for a notebook's output, or a page of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from leaklab.model import Check, Leak, Outcome
from leaklab.render.draw import draw_svg
from leaklab.render.embedding import embedded
from leaklab.render.html_leak import Draw, draw_graphs, leak_card
from leaklab.render.html_tables import COLOURS, growth_tables, leak_table, run_table
from leaklab.render.json import to_json
from leaklab.render.page import page
from leaklab.render.parts import bars, bullets, code, escaped, faint, fold, panel, picture
from leaklab.render.plot import plot_alt, plot_png
from leaklab.render.texts import SHOWN_LIMIT, clipped
from leaklab.render.wording import (
    amount_words,
    effort_words,
    failure_words,
    kept_words,
    projection_words,
)

_FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"
_FRAGMENT = f"{_FONT};font-size:14px;line-height:1.45;color:inherit;max-width:1000px;overflow-wrap:break-word"
_N_OPEN = 3
_KEPT_WIDTH = 120


Plot = Callable[[Check], "bytes | None"]
"""What makes a PNG image of a check's runs, or returns None: then there is none."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of a check is shown.

    Attributes:
        n_leaks: Leaks that are told in full; a cell with more has one cause too many to read on.
        n_open: Leaks that are unfolded.
        is_open: Whether everything else is unfolded.
        has_table: Whether leaks that are not told in full stand in a table; else they are counted.
    """

    n_leaks: int = 10
    n_open: int = _N_OPEN
    is_open: bool = False
    has_table: bool = False


FRAGMENT = Extent()
_PAGE = Extent(n_open=10, is_open=True)


def render_html(check: Check, *, draw: Draw = draw_svg) -> str:
    """Return the report as a fragment that survives the sanitizers of notebooks.

    Args:
        check: What was found.
        draw: Makes an ``<svg>`` of DOT text, or None; then the path stands there as text.
    """
    return render_body(check, draw=draw)


def render_page(*checks: Check, title: str = "", draw: Draw = draw_svg, has_record: bool = False) -> str:
    """Return one or more reports as a page of its own, all unfolded, that asks nothing of any server.

    Args:
        checks: In the order in which they are shown.
        title: Of the page; empty for the name and the outcome of the first check.
        draw: As in `render_html`.
        has_record: Whether the page of one check carries its record within itself, to be read back.
    """
    for check in checks[:1]:
        title = title or f"{check.settings.name or 'leaklab'}: {check.verdict.outcome.value}"
    body = "\n<hr>\n".join(render_body(check, _PAGE, draw=draw) for check in checks)
    if has_record:
        body += embedded(to_json(*map(clipped, checks)))
    return page(title, body)


def render_body(check: Check, extent: Extent = FRAGMENT, *, draw: Draw = draw_svg, plot: Plot = plot_png) -> str:
    """Return the report on *check* as a part of a page, without a title.

    Args:
        check: What was found.
        extent: How much of it is shown, and what is unfolded.
        draw: As in `render_html`.
        plot: Makes the image of the runs.
    """
    check = clipped(check, SHOWN_LIMIT)
    parts = [_banner(check)]
    is_clean = check.verdict.outcome is Outcome.CLEAN and not check.failure
    image = _plot(check, plot) if check.runs else ""
    if not is_clean:
        parts.append(image)
    leaks = check.leaks[: extent.n_leaks]
    for number, (leak, svg) in enumerate(zip(leaks, draw_graphs(leaks, draw), strict=True), 1):
        parts.append(leak_card(leak, number, svg, is_open=number <= extent.n_open))
    parts += _smaller_leaks(check.leaks[extent.n_leaks :], extent)
    parts += _bounded(check.bounded, is_page=extent.is_open)
    parts += _notes(check.notes)
    parts += growth_tables(check, is_open=extent.is_open)
    if check.runs:
        runs = (image if is_clean else "") + run_table(check.runs)
        parts.append(fold(f"Runs ({len(check.runs):,})", runs, is_open=extent.is_open))
    parts.append(faint(escaped(", ".join(f"{name} {version}" for name, version in check.environment))))
    return f'<div style="{_FRAGMENT}">{"".join(parts)}</div>'


def _smaller_leaks(leaks: tuple[Leak, ...], extent: Extent) -> Iterator[str]:
    if leaks and extent.has_table:
        title = f"Smaller leaks ({len(leaks):,})"
        yield fold(title, leak_table(leaks, extent.n_leaks + 1), is_open=extent.is_open)
    elif leaks:
        yield faint(f"{len(leaks):,} smaller leaks are in report.leaks")


def _banner(check: Check) -> str:
    """Return the verdict, what was run, and what the verdict comes to."""
    verdict = check.verdict
    colour = COLOURS[verdict.outcome]
    word = f'<b style="color:{colour}">{verdict.outcome.value.upper()}</b>'
    lines = [f'<div style="font-size:17px">{word}&nbsp; {escaped(verdict.reason)}</div>']
    if projection := projection_words(check):
        lines.append(f"<div>{escaped(projection)}</div>")
    lines.append(f"<div>{faint(escaped(effort_words(check)))}</div>")
    if check.failure:
        lines.append(f"<div><b>{escaped(failure_words(check))}</b></div>")
    if check.runs and verdict.outcome is not Outcome.LEAK:
        kept = [run.n_kept for run in check.runs]
        words = faint(escaped(kept_words(kept, "objects", _KEPT_WIDTH)))
        lines.append(f'<div style="margin-top:6px">{bars(kept, colour)}</div><div>{words}</div>')
    return panel("".join(lines), colour)


def _plot(check: Check, plot: Plot) -> str:
    image = plot(check)
    return "" if image is None else picture(image, "image/png", plot_alt(check))


def _bounded(places: tuple[Leak, ...], *, is_page: bool) -> Iterator[str]:
    """Yield the places that grew and stopped: no leaks, and said so."""
    if places:
        items = []
        for place in places:
            grew = f" ({amount_words(place)} per run while it grew)" if place.count_per_run else ""
            items.append(f"{code(place.holder or place.what)}: {escaped(place.reason + grew)}")
        title = f"Not counted as leaks, because they stop growing ({len(places):,})"
        yield fold(title, bullets(items), is_open=is_page or len(places) <= _N_OPEN)


def _notes(notes: tuple[str, ...]) -> Iterator[str]:
    if notes:
        yield fold("Notes", bullets([escaped(note) for note in notes]), is_open=True)
