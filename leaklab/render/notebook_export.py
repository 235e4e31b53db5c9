"""Write all checks of a notebook as one page: contents, verdicts at a glance, every check folded, the record inside."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from leaklab.model import Check, Leak, Outcome
from leaklab.model.check import KeptCheck, KeptView, NotebookChecks
from leaklab.render.check_html import Draw, Extent, render_body
from leaklab.render.check_text import render_text
from leaklab.render.drawing import draw_svg
from leaklab.render.html_parts import (
    ACCENT,
    bullets,
    code,
    escaped,
    faint,
    fold,
    page,
    panel,
    pill,
    table,
    text_block,
    with_classes,
    without_tooltips,
)
from leaklab.render.json import as_notebook_checks, embedded, heading, notebook_to_json, tally_words
from leaklab.render.plots import plot_png
from leaklab.render.templates import OUTCOME_COLOURS as COLOURS
from leaklab.render.words import (
    amount_words,
    cause_words,
    effort_words,
    failure_words,
    projection_words,
    rate_words,
    render_path,
    retained_words,
)
from leaklab.text import clipped, format_bytes, shorten, visible

# The few lines of script of an exported page: tables sort, graphs zoom and pan, links open what they lead to.
#
# The page is complete without them: all buttons are made here, so where no script runs there are none that do nothing.


SCRIPT = """
"use strict";
const UNITS = {B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4, PiB: 1024 ** 5,
               us: 1e-6, ms: 1e-3, s: 1};
const button = (text, name, act) => {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.title = name;
  made.setAttribute("aria-label", name);
  made.addEventListener("click", act);
  return made;
};
const number = text => {
  const found = /^\\s*([-+]?[\\d,]*\\.?\\d+(?:e[-+]?\\d+)?)\\s*(\\w*)/i.exec(text);
  return found ? parseFloat(found[1].replaceAll(",", "")) * (UNITS[found[2]] ?? 1) : NaN;
};
const compare = (a, b) => {
  const x = number(a), y = number(b);
  if (isNaN(x) && isNaN(y)) return a.localeCompare(b);
  return isNaN(x) ? 1 : isNaN(y) ? -1 : x - y;
};
const sort = (head, column) => {
  const body = head.closest("table").tBodies[0];
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const text = row => row.cells[column].textContent.trim();
  const rows = [...body.rows].sort((a, b) => compare(text(a), text(b)));
  body.append(...(up ? rows : rows.reverse()));
};
for (const head of document.querySelectorAll("thead th")) {
  const column = head.cellIndex;
  head.classList.add("sorts");
  head.tabIndex = 0;
  head.title = "sort by this column";
  head.addEventListener("click", () => sort(head, column));
  head.addEventListener("keydown", event => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    sort(head, column);
  });
}
const zoomable = image => {
  const frame = document.createElement("div"), tools = document.createElement("div");
  let width = 0, from = null;
  frame.className = "graph";
  frame.tabIndex = 0;
  tools.className = "tools";
  const zoom = factor => {
    width = factor ? Math.min(Math.max((width || image.clientWidth) * factor, 40), 12000) : 0;
    image.style.maxWidth = width ? "none" : "100%";
    image.style.width = width ? width + "px" : "";
  };
  tools.append(button("+", "zoom in", () => zoom(1.4)), button("\\u2212", "zoom out", () => zoom(1 / 1.4)),
               button("fit", "fit the graph to the page", () => zoom(0)));
  image.replaceWith(frame);
  frame.before(tools);
  frame.append(image);
  image.draggable = false;
  frame.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15);
  }, {passive: false});
  frame.addEventListener("pointerdown", event => {
    if (event.button) return;
    from = {x: event.clientX + frame.scrollLeft, y: event.clientY + frame.scrollTop};
    frame.setPointerCapture(event.pointerId);
  });
  frame.addEventListener("pointermove", event => {
    if (from) frame.scrollTo(from.x - event.clientX, from.y - event.clientY);
  });
  for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, () => { from = null; });
};
document.querySelectorAll('img[src^="data:image/svg+xml"]').forEach(zoomable);
const openAll = open => document.querySelectorAll("details").forEach(part => { part.open = open; });
const bar = document.createElement("div");
bar.className = "tools";
bar.append(button("open all", "unfold every part", () => openAll(true)),
           button("close all", "fold every part", () => openAll(false)));
document.querySelector("h1").after(bar);
const follow = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", follow);
addEventListener("beforeprint", () => openAll(true));
follow();
"""

STYLE = """
.tools button {font: inherit; font-size: 12px; margin: 2px 6px 2px 0; padding: 1px 9px; cursor: pointer}
.graph {overflow: auto; max-height: 85vh; cursor: grab; touch-action: pan-x pan-y}
.graph img {margin: 0 !important; vertical-align: top}
th.sorts {cursor: pointer}
th[aria-sort=ascending]::after {content: " \\2191"}
th[aria-sort=descending]::after {content: " \\2193"}
summary:focus-visible, th:focus-visible, .graph:focus-visible {outline: 2px solid #4a90d9; outline-offset: 2px}
@media print {.tools {display: none} .graph {max-height: none; overflow: visible}}
"""


def security_policy() -> str:
    """Return the policy that lets this one script run, shows pictures that the page carries, and forbids all else.

    What a page asks of a server, and any script that a user's text might smuggle in, is refused by the browser itself.
    """
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}';"
        " base-uri 'none'; form-action 'none'"
    )


_FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:14px"
_BODY = f"{_FONT};line-height:1.45;overflow-wrap:break-word;margin:24px auto;max-width:1000px;padding:0 16px"
_NAMES = ("no.", "check", "verdict", "runs", "leaks", "bytes per run", "largest leak is held by")
_RIGHT = frozenset({"no.", "runs", "leaks", "bytes per run"})
_NAME_LIMIT = 80
_TITLE_LIMIT = 160
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

    def markup(self, view: KeptView) -> str:
        """Return the markup of *view* while there is room; empty afterwards."""
        self._view_characters -= len(view.markup)
        return view.markup if self._view_characters >= 0 else ""

    def n_leaks(self, check: Check) -> int:
        """Return how many leaks of *check* are told in full."""
        n_leaks = max(min(len(check.leaks), _N_CARDS_OF_ONE, self._cards), 1)
        self._cards -= n_leaks
        return n_leaks


def render_collection(
    collection: NotebookChecks,
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
        + [_check_section(number, noted, budget, is_open=is_open) for number, noted in enumerate(collection.checks, 1)]
        + [_view_section(view, budget, is_open=is_open) for view in views]
    )
    body, rules = with_classes(body)
    if len(body) > _TOOLTIP_CHARACTERS:
        body = without_tooltips(body)
    record = embedded(notebook_to_json(replace(collection, views=views)))
    head = f"<style>{STYLE}{rules}</style>\n"
    whole = f"{body}\n{record}\n<script>{SCRIPT}</script>"
    return page(title, whole, head=head, policy=security_policy(), style=_BODY)


def _head(collection: NotebookChecks) -> Iterator[str]:
    yield f"<div>{escaped(tally_words(collection))}</div>"
    if collection.failure:
        yield panel(f"<b>The notebook ended early</b>: {escaped(collection.failure)}", ACCENT)
    if collection.notes:
        yield bullets([faint(escaped(note)) for note in collection.notes])
    if collection.checks:
        rows = [_row(number, noted) for number, noted in enumerate(collection.checks, 1)]
        yield f'<nav aria-label="contents">{table(_NAMES, rows, right=_RIGHT)}</nav>'


def _row(number: int, noted: KeptCheck) -> tuple[str, ...]:
    check = noted.check
    place = f"<br>{faint(escaped(shorten(noted.place, _NAME_LIMIT)))}" if noted.place else ""
    link = f'<a href="#check-{number}" style="color:inherit">{escaped(_title(check, number))}</a>'
    n_bytes = check.verdict.bytes_per_run
    return (
        str(number), link + place, _pill(check), f"{check.verdict.n_runs:,}", f"{len(check.leaks):,}",
        escaped(format_bytes(n_bytes)) if n_bytes else "", _holder(check.leaks),
    )  # fmt: skip


def _check_section(number: int, noted: KeptCheck, budget: _Budget, *, is_open: bool) -> str:
    check = noted.check
    extent = Extent(n_leaks=budget.n_leaks(check), n_open=len(check.leaks) if is_open else 3, is_open=is_open,
                    has_table=True)  # fmt: skip
    markup = render_body(check, extent, draw=budget.draw, plot=budget.plot)
    place = f" &nbsp;{faint(escaped(shorten(noted.place, _NAME_LIMIT)))}" if noted.place else ""
    title = (
        f"{number}. {escaped(_title(check, number))} &nbsp;{_pill(check)}{place}"
        f"<br>{faint(escaped(shorten(check.verdict.reason, _TITLE_LIMIT)))}"
    )
    part = fold(title, markup, is_open=is_open or number <= _N_OPEN_CHECKS)
    return f'<section id="check-{number}" style="margin-top:14px">{part}</section>'


def _view_section(view: KeptView, budget: _Budget, *, is_open: bool) -> str:
    place = f" &nbsp;{faint(escaped(shorten(view.place, _NAME_LIMIT)))}" if view.place else ""
    title = f"{escaped(shorten(view.title, _TITLE_LIMIT))}{place}"
    part = fold(title, budget.markup(view) or text_block(view.text), is_open=is_open)
    return f'<section style="margin-top:14px">{part}</section>'


def _title(check: Check, number: int) -> str:
    return shorten(heading(check, number), _NAME_LIMIT)


def _pill(check: Check) -> str:
    word = f"{check.verdict.outcome.value}, failed" if check.failure else check.verdict.outcome.value
    return pill(word, COLOURS[check.verdict.outcome])


def _holder(leaks: tuple[Leak, ...]) -> str:
    return code(shorten(leaks[0].holder, _NAME_LIMIT)) if leaks else ""


# Write checks as Markdown that reads well on GitHub, where no style and no script survives.


_SIGNS = {Outcome.LEAK: "🔴", Outcome.CLEAN: "🟢", Outcome.BOUNDED: "🔵", Outcome.INCONCLUSIVE: "🟡"}
_NAME_LIMIT = 80
_REASON_LIMIT = 300
_N_LEAKS = 20
# As numbers of characters these signs mean themselves: no emphasis, no link, no column of a table.
_SIGNIFICANT = re.compile(r"[\\`*_{}\[\]()#+!|~$@:&<>\"'-]")


def render_markdown(record: Check | NotebookChecks) -> str:
    """Return a check, or all checks of a notebook, as Markdown: a table of contents, then each check folded."""
    whole = as_notebook_checks(record)
    collection = clipped(replace(whole, views=()))  # those are texts of many lines
    title = shorten(collection.title, _NAME_LIMIT) or "leaklab: the checks of a notebook"
    lines = [f"# {_plain(title)}", "", _plain(tally_words(collection)), ""]
    if collection.failure:
        lines += [f"**The notebook ended early**: {_plain(shorten(collection.failure, _REASON_LIMIT))}", ""]
    lines += [f"- {_plain(note)}" for note in collection.notes]
    lines += ["", *_contents(collection.checks)]
    for number, noted in enumerate(collection.checks, 1):
        lines += ["", *_check_lines(number, noted)]
    for view in whole.views:
        lines += ["", *_view_lines(view)]
    return "\n".join(lines) + "\n"


def _contents(checks: tuple[KeptCheck, ...]) -> Iterator[str]:
    if not checks:
        return
    yield "| no. | check | verdict | runs | leaks | bytes per run | largest leak is held by |"
    yield "| ---: | --- | --- | ---: | ---: | ---: | --- |"
    for number, noted in enumerate(checks, 1):
        check, verdict = noted.check, noted.check.verdict
        n_bytes = _plain(format_bytes(verdict.bytes_per_run)) if verdict.bytes_per_run else ""
        holder = _code(check.leaks[0].holder) if check.leaks else ""
        outcome = f"{_SIGNS[verdict.outcome]} {verdict.outcome.value}"
        cells = (str(number), _name(check, number), outcome, f"{verdict.n_runs:,}", f"{len(check.leaks):,}", n_bytes)
        yield f"| {' | '.join((*cells, holder))} |"


def _check_lines(number: int, noted: KeptCheck) -> Iterator[str]:
    check, verdict = noted.check, noted.check.verdict
    yield f"## {number}. {_name(check, number)} {_SIGNS[verdict.outcome]}"
    yield ""
    yield f"**{verdict.outcome.value.upper()}** {_plain(shorten(verdict.reason, _REASON_LIMIT))}"
    yield ""
    details = [noted.place, effort_words(check), projection_words(check)]
    details.append(failure_words(check) if check.failure else "")
    yield from (f"- {_plain(shorten(detail, _REASON_LIMIT))}" for detail in details if detail)
    for position, leak in enumerate(check.leaks[:_N_LEAKS], 1):
        yield ""
        yield from _leak(leak, position)
    yield ""
    yield from _folded("The whole report as text", _fenced(render_text(check)))


def _leak(leak: Leak, number: int) -> Iterator[str]:
    yield f"### Leak {number}: {_code(leak.what)}, {_plain(amount_words(leak))} per run"
    yield ""
    holders = dict.fromkeys(filter(None, (leak.holder, *leak.holders)))
    yield f"- held by {', '.join(map(_code, holders)) or 'nothing that has a name'}"
    yield f"- grows: {_plain(rate_words(leak))}"
    if frees := retained_words(leak):
        yield f"- {_plain(frees)}"
    yield from (f"- line {_code(site)}" for site in leak.sites)
    yield f"- cause: {_plain(shorten(cause_words(leak.cause), _REASON_LIMIT))}"
    yield f"- id: {_code(leak.fingerprint)}"
    yield ""
    yield from _fenced(render_path(leak.path))
    if leak.advice:
        yield ""
        yield "What to change:"
        yield ""
        yield from _fenced("\n".join(map(visible, leak.advice.splitlines())))


def _view_lines(view: KeptView) -> Iterator[str]:
    yield f"## {_plain(shorten(view.title, _REASON_LIMIT))}"
    yield ""
    if view.place:
        yield f"- {_plain(view.place)}"
        yield ""
    yield from _folded("The report as text", _fenced(view.text))


def _folded(title: str, lines: Iterator[str]) -> Iterator[str]:
    # The empty lines let Markdown begin again within the element.
    yield from ("<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>")


def _fenced(text: str) -> Iterator[str]:
    """Yield *text* between fences that are longer than any row of backticks in it."""
    longest = max((len(row) for row in re.findall("`+", text)), default=0)
    fence = "`" * max(longest + 1, 3)
    yield f"{fence}text"
    yield from map(visible, text.splitlines())
    yield fence


def _name(check: Check, number: int) -> str:
    return _plain(shorten(heading(check, number), _NAME_LIMIT))


def _plain(text: str) -> str:
    """Return *text* so that neither Markdown nor HTML finds a meaning in it."""
    return _SIGNIFICANT.sub(lambda match: f"&#{ord(match[0])};", visible(text))


def _code(text: str) -> str:
    return f"<code>{_plain(shorten(text, _REASON_LIMIT))}</code>"
