"""Write all checks of a notebook as one page: contents, verdicts at a glance, every check folded, the record inside."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from leaklab.model import Check, Leak, Outcome
from leaklab.model.collection import Collection, NotedCheck, NotedView
from leaklab.render.collection_record import collection_to_json, heading, tally_words
from leaklab.render.collection_script import SCRIPT, STYLE, security_policy
from leaklab.render.draw import draw_svg
from leaklab.render.embedding import embedded
from leaklab.render.html import Extent, render_body
from leaklab.render.html_leak import Draw
from leaklab.render.html_tables import COLOURS
from leaklab.render.page import page
from leaklab.render.parts import ACCENT, bullets, code, escaped, faint, fold, panel, pill, table, text_block
from leaklab.render.plot import plot_png
from leaklab.render.style_classes import with_classes, without_tooltips
from leaklab.render.texts import clipped
from leaklab.render.wording import shorten
from leaklab.words import format_bytes

_FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:14px"
_BODY = f"{_FONT};line-height:1.45;overflow-wrap:break-word;margin:24px auto;max-width:1000px;padding:0 16px"
_NAMES = ("no.", "check", "verdict", "runs", "leaks", "bytes per run", "largest leak is held by")
_RIGHT = frozenset({"no.", "runs", "leaks", "bytes per run"})
_NAME_LIMIT = 80
_REASON_LIMIT = 160
_N_OPEN_CHECKS = 5  # more than that, all unfolded, are scrolled through in search of the one that matters
# Measured on 60 checks of 5 leaks each: 5 KB of HTML and 2 KB of JSON for each leak told in full, 15 to 30 KB for a
# graph, 35 KB for a plot. With these limits the page has 2.5 MB, and one check of 300 leaks 0.7 MB.
_N_CARDS = 150
_N_CARDS_OF_ONE = 40
_DRAWING_SECONDS = 15.0  # for all pictures; afterwards paths are told as text
_SVG_CHARACTERS = 300_000
_PLOT_BYTES = 300_000
_VIEW_CHARACTERS = 500_000  # of the HTML of other reports, pictures included
_TOOLTIP_CHARACTERS = 1_500_000  # beyond, the bars lose theirs: the same figures stand beside them
_N_FAILURES = 3


class _Budget:
    """What a page may still spend on pictures, in seconds and in bytes."""

    def __init__(self, draw: Draw, plot: Callable[[Check], bytes]) -> None:
        self._draw, self._plot = draw, plot
        self._deadline = time.monotonic() + _DRAWING_SECONDS
        self._characters, self._view_characters, self._plot_bytes = _SVG_CHARACTERS, _VIEW_CHARACTERS, _PLOT_BYTES
        self._cards, self._failures = _N_CARDS, 0

    def draw(self, source: str, *, seconds: float) -> str | None:
        """Return an ``<svg>`` while there is time and room; None afterwards, and where nothing here draws."""
        left = min(seconds, self._deadline - time.monotonic())
        if left <= 0 or self._characters <= 0 or self._failures >= _N_FAILURES:
            return None
        svg = self._draw(source, seconds=left)
        self._failures += svg is None
        self._characters -= len(svg or "")
        return svg

    def plot(self, check: Check) -> bytes | None:
        """Return the image of a check's runs while there is time and room; a clean check has its table."""
        is_dull = check.verdict.outcome is Outcome.CLEAN and not check.failure
        if is_dull or self._plot_bytes <= 0 or time.monotonic() > self._deadline:
            return None
        image = self._plot(check)
        self._plot_bytes -= len(image)
        return image

    def markup(self, view: NotedView) -> str:
        """Return the markup of *view* while there is room; empty afterwards."""
        self._view_characters -= len(view.markup)
        return view.markup if self._view_characters >= 0 else ""

    def n_leaks(self, check: Check) -> int:
        """Return how many leaks of *check* are told in full."""
        n_leaks = max(min(len(check.leaks), _N_CARDS_OF_ONE, self._cards), 1)
        self._cards -= n_leaks
        return n_leaks


def render_collection(
    collection: Collection,
    *,
    draw: Draw = draw_svg,
    plot: Callable[[Check], bytes] = plot_png,
    is_open: bool = False,
) -> str:
    """Return the checks as a page of its own that asks nothing of any server and carries its record within itself.

    Args:
        collection: The checks and the other reports.
        draw: Makes an ``<svg>`` of DOT text, or None.
        plot: Makes a PNG image of a check's runs.
        is_open: Whether everything is unfolded, as for printing.
    """
    views, collection = collection.views, clipped(replace(collection, views=()))
    budget = _Budget(draw, plot)
    title = shorten(collection.title, _NAME_LIMIT) or "leaklab: the checks of a notebook"
    body = "\n".join(
        [f'<h1 style="font-size:22px;margin:0 0 4px">{escaped(title)}</h1>', *_head(collection)]
        + [_check(number, noted, budget, is_open=is_open) for number, noted in enumerate(collection.checks, 1)]
        + [_view(view, budget, is_open=is_open) for view in views]
    )
    body, rules = with_classes(body)
    if len(body) > _TOOLTIP_CHARACTERS:
        body = without_tooltips(body)
    record = embedded(collection_to_json(replace(collection, views=views)))
    head = f"<style>{STYLE}{rules}</style>\n"
    whole = f"{body}\n{record}\n<script>{SCRIPT}</script>"
    return page(title, whole, head=head, policy=security_policy(), style=_BODY)


def _head(collection: Collection) -> Iterator[str]:
    yield f"<div>{escaped(tally_words(collection))}</div>"
    if collection.failure:
        yield panel(f"<b>The notebook ended early</b>: {escaped(collection.failure)}", ACCENT)
    if collection.notes:
        yield bullets([faint(escaped(note)) for note in collection.notes])
    if collection.checks:
        rows = [_row(number, noted) for number, noted in enumerate(collection.checks, 1)]
        yield f'<nav aria-label="contents">{table(_NAMES, rows, right=_RIGHT)}</nav>'


def _row(number: int, noted: NotedCheck) -> tuple[str, ...]:
    check = noted.check
    place = f"<br>{faint(escaped(shorten(noted.place, _NAME_LIMIT)))}" if noted.place else ""
    link = f'<a href="#check-{number}" style="color:inherit">{escaped(_title(check, number))}</a>'
    n_bytes = check.verdict.bytes_per_run
    return (
        str(number), link + place, _pill(check), f"{check.verdict.n_runs:,}", f"{len(check.leaks):,}",
        escaped(format_bytes(n_bytes)) if n_bytes else "", _holder(check.leaks),
    )  # fmt: skip


def _check(number: int, noted: NotedCheck, budget: _Budget, *, is_open: bool) -> str:
    check = noted.check
    extent = Extent(n_leaks=budget.n_leaks(check), n_open=len(check.leaks) if is_open else 3, is_open=is_open,
                    has_table=True)  # fmt: skip
    markup = render_body(check, extent, draw=budget.draw, plot=budget.plot)
    place = f" &nbsp;{faint(escaped(shorten(noted.place, _NAME_LIMIT)))}" if noted.place else ""
    title = (
        f"{number}. {escaped(_title(check, number))} &nbsp;{_pill(check)}{place}"
        f"<br>{faint(escaped(shorten(check.verdict.reason, _REASON_LIMIT)))}"
    )
    part = fold(title, markup, is_open=is_open or number <= _N_OPEN_CHECKS)
    return f'<section id="check-{number}" style="margin-top:14px">{part}</section>'


def _view(view: NotedView, budget: _Budget, *, is_open: bool) -> str:
    place = f" &nbsp;{faint(escaped(shorten(view.place, _NAME_LIMIT)))}" if view.place else ""
    title = f"{escaped(shorten(view.title, _REASON_LIMIT))}{place}"
    part = fold(title, budget.markup(view) or text_block(view.text), is_open=is_open)
    return f'<section style="margin-top:14px">{part}</section>'


def _title(check: Check, number: int) -> str:
    return shorten(heading(check, number), _NAME_LIMIT)


def _pill(check: Check) -> str:
    word = f"{check.verdict.outcome.value}, failed" if check.failure else check.verdict.outcome.value
    return pill(word, COLOURS[check.verdict.outcome])


def _holder(leaks: tuple[Leak, ...]) -> str:
    return code(shorten(leaks[0].holder, _NAME_LIMIT)) if leaks else ""
