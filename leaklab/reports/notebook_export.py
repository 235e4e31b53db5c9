"""Write all checks of a notebook as one page, or as Markdown that reads well on GitHub.

The page has the contents, verdicts at a glance, every check folded, and the record inside.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from leaklab.model import Check, Leak, Outcome
from leaklab.model.check import KeptCheck, KeptView, NotebookChecks
from leaklab.model.sentences import growth_sentence
from leaklab.render.advice import advice_of, headline, line_groups, shown_in_full
from leaklab.render.json import as_notebook_checks, embedded, heading, notebook_to_json, tally_words
from leaklab.render.templates import FONT, page, read, render, unfolding
from leaklab.render.words import (
    STATEMENT_COLUMNS,
    STATEMENTS_NOTE,
    STATEMENTS_TITLE,
    code_parts,
    effort_words,
    failure_words,
    leak_facts,
    projection_words,
    render_path,
    statement_rows,
)
from leaklab.reports.check_html import Extent, render_body
from leaklab.reports.check_text import render_text
from leaklab.reports.comparison import Comparison, compare_checks
from leaklab.reports.plots import plot_png
from leaklab.text import clipped, fenced, format_bytes, shorten, visible

SCRIPT = f"\nconst copyCell = {read('copy.js').strip()};\n{read('notebook.js')}{unfolding()}"
"""The page is complete without it: it makes all buttons, so where no script runs there are none that do nothing."""
_STYLE_SHEET = f"\n{read('notebook.css')}"
_BODY_STYLE = (
    f"{FONT};font-size:14px;line-height:1.45;overflow-wrap:break-word;margin:24px auto;max-width:1000px;padding:0 16px"
)
_NAME_LIMIT = 80
# Measured on 60 checks of 5 leaks each: 5 KB of HTML and 2 KB of JSON for each leak told in full, 15 to 30 KB for a
# graph, 35 KB for a plot. With these limits the page has 2.5 MB, and one check of 300 leaks 0.7 MB.
_N_CARDS = 150
_N_CARDS_OF_ONE = 40
_DRAWING_SECONDS = 15.0  # for all pictures
_PLOT_BYTES = 300_000
_VIEW_CHARACTERS = 500_000  # of the HTML of other reports, pictures included
_TOOLTIP_CHARACTERS = 1_500_000  # beyond, the bars lose theirs: the same figures stand beside them
# Only leaklab writes quotes into markup: in a user's text they are escaped, so what matches is a real attribute.
_STYLE = re.compile(r' style="([^"]*)"')
_TOOLTIP = re.compile(r'<span title="[^"]*"')
_N_LEAST = 5  # of fewer the rule is as long as what it saves
_PREFIX = "s"
_SIGNS = {Outcome.LEAK: "🔴", Outcome.CLEAN: "🟢", Outcome.BOUNDED: "🔵", Outcome.INCONCLUSIVE: "🟡"}
_REASON_LIMIT = 300
_N_LEAKS = 20
_N_TABLE_ROWS = 300
_FACT_WIDTH = 100
# As numbers of characters these signs mean themselves: no emphasis, no link, no column of a table.
_SIGNIFICANT = re.compile(r"[\\`*_{}\[\]()#+!|~$@:&<>\"'-]")


class _Budget:
    """What a page may still spend on pictures, in seconds and in bytes."""

    def __init__(self, plot: Callable[[Check], bytes]) -> None:
        self._plot = plot
        self._deadline = time.monotonic() + _DRAWING_SECONDS
        self._view_characters, self._plot_bytes, self._cards = _VIEW_CHARACTERS, _PLOT_BYTES, _N_CARDS

    def plot(self, check: Check) -> bytes | None:
        """Return the image of a check's runs while there is time and room; a clean check has its table."""
        is_dull = check.verdict.outcome is Outcome.CLEAN and not check.failure
        if is_dull or self._plot_bytes <= 0 or time.monotonic() > self._deadline:
            return None
        image = self._plot(check)
        self._plot_bytes -= len(image)
        return image

    def markup(self, view: KeptView) -> Markup:
        """Return the markup of *view* while there is room; empty afterwards."""
        self._view_characters -= len(view.markup)
        return Markup(view.markup if self._view_characters >= 0 else "")  # noqa: S704 - a report of leaklab's own

    def n_leaks(self, check: Check) -> int:
        """Return how many leaks of *check* are told in full."""
        n_leaks = max(min(len(check.leaks), _N_CARDS_OF_ONE, self._cards), 1)
        self._cards -= n_leaks
        return n_leaks


@dataclass(frozen=True, slots=True)
class _Section:
    """One check with its number, title, place in the notebook and report; what changed since an earlier check."""

    number: int
    check: Check
    title: str
    place: str
    body: Markup
    change: Comparison | None = None
    changed_since: int = 0


def render_collection(
    collection: NotebookChecks,
    *,
    plot: Callable[[Check], bytes] = plot_png,
    is_open: bool = False,
) -> str:
    """Return the checks as a page of its own that asks nothing of any server and carries its record within itself.

    Args:
        collection: The checks and the other reports.
        plot: Makes a PNG image of a check's runs.
        is_open: Whether everything is unfolded, as for printing.
    """
    views, collection = collection.views, clipped(replace(collection, views=()))
    budget = _Budget(plot)
    title = _page_title(collection)
    body = render(
        "notebook.html.j2",
        title=title,
        tally=tally_words(collection),
        failure=collection.failure,
        notes=collection.notes,
        sections=_sections(collection.checks, budget, is_open=is_open),
        views=[(view, budget.markup(view)) for view in views],
        is_open=is_open,
    )
    smaller, rules = with_classes(body)
    if len(smaller) > _TOOLTIP_CHARACTERS:
        smaller = without_tooltips(smaller)
    record = embedded(notebook_to_json(replace(collection, views=views)))
    whole = Markup(f"{smaller}\n{record}")  # noqa: S704 - from templates; the record is coded
    head = Markup(f"<style>{_STYLE_SHEET}{rules}</style>\n")  # noqa: S704 - leaklab's own
    return page(title, whole, head=head, script=SCRIPT, style=_BODY_STYLE)


def _sections(checks: Sequence[KeptCheck], budget: _Budget, *, is_open: bool) -> list[_Section]:
    """Return a section for each check; those of one name stand together, with what changed since the one before."""
    by_name: dict[str, list[tuple[int, KeptCheck]]] = {}
    for number, kept in enumerate(checks, 1):
        by_name.setdefault(kept.check.settings.name or f"check {number} without a name", []).append((number, kept))
    sections = []
    for alike in by_name.values():
        for place, (number, kept) in enumerate(alike):
            section = _section(number, kept, budget, is_open=is_open)
            if place:
                since, before = alike[place - 1]
                section = replace(section, change=compare_checks(before.check, kept.check), changed_since=since)
            sections.append(section)
    return sections


def _section(number: int, kept: KeptCheck, budget: _Budget, *, is_open: bool) -> _Section:
    check = kept.check
    extent = Extent(n_leaks=budget.n_leaks(check), is_open=is_open, has_handlers=False, is_printed=True)
    body = render_body(check, extent, plot=budget.plot)
    return _Section(number, check, shorten(heading(check, number), _NAME_LIMIT), kept.place, body)


def _page_title(collection: NotebookChecks) -> str:
    return shorten(collection.title, _NAME_LIMIT) or "leaklab: the checks of a notebook"


def with_classes(markup: str) -> tuple[str, str]:
    """Return *markup* with a class in the place of each frequent ``style``, and the rules of these classes.

    A page of 60 checks becomes half as large. For pages of their own only: notebooks drop style sheets.

    Args:
        markup: In which no element with a ``style`` has a ``class``.
    """
    counts = Counter(_STYLE.findall(markup))
    names = {
        style: f"{_PREFIX}{number}"
        for number, (style, count) in enumerate(counts.most_common())
        if count >= _N_LEAST and style
    }
    shorter = _STYLE.sub(lambda found: f" class={names[found[1]]}" if found[1] in names else found[0], markup)
    return shorter, "\n".join(f".{name} {{{style}}}" for style, name in names.items())


def without_tooltips(markup: str) -> str:
    """Return *markup* without the ``title`` of its spans."""
    return _TOOLTIP.sub("<span", markup)


def render_markdown(record: Check | NotebookChecks) -> str:
    """Return a check, or all checks of a notebook, as Markdown: a table of contents, then each check folded.

    GitHub drops every style and script.
    """
    whole = as_notebook_checks(record)
    collection = clipped(replace(whole, views=()))  # those are texts of many lines
    lines = [f"# {_plain(_page_title(collection))}", "", _plain(tally_words(collection)), ""]
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
    yield f"**{verdict.outcome.value.upper()}** {_marked(headline(check))}"
    yield ""
    if len(check.leaks) == 1:
        yield from _answer(check.leaks[0])
    elif check.leaks:
        yield from _leak_table(check.leaks)
    details = [noted.place, effort_words(check), projection_words(check)]
    details.append(failure_words(check) if check.failure else "")
    yield from (f"- {_plain(shorten(detail, _REASON_LIMIT))}" for detail in details if detail)
    shown = shown_in_full(check.leaks, _N_LEAKS)
    for position in shown:
        leak = check.leaks[position]
        yield ""
        if len(check.leaks) > 1:
            yield f"### Leak {position + 1}: {_marked(growth_sentence(leak))}"
            yield ""
            yield from _answer(leak)
        yield from _folded("Evidence", _evidence(leak))
    if check.statements:
        yield ""
        yield from _folded(STATEMENTS_TITLE, _statement_table(check))
    yield ""
    yield from _folded("The whole report as text", fenced(render_text(check)))


def _answer(leak: Leak) -> Iterator[str]:
    """Yield what a person acts on: the line, the change, its proof."""
    advice = advice_of(leak)
    if advice.line:
        yield f"- line {_code(advice.line)}"
    if advice.words:
        yield f"- change: {_marked(advice.words)}"
        yield ""
        lines = (f"{'@@' if sign == '@' else sign} {visible(text)}" for sign, text, _ in advice.diff)
        yield from fenced("\n".join(lines), "diff")
        yield ""
        yield f"- proof: {_plain(shorten(advice.proof, _REASON_LIMIT))}"
    elif advice.text:
        yield ""
        yield "What to change:"
        yield ""
        yield from fenced("\n".join(map(visible, advice.text.splitlines())))
    yield ""


def _leak_table(leaks: tuple[Leak, ...]) -> Iterator[str]:
    yield "| no. | place | each run adds | line | change |"
    yield "| ---: | --- | --- | --- | --- |"
    n_left = _N_TABLE_ROWS
    for group in line_groups(leaks):
        for row in group.rows[:n_left]:
            change = _marked(("tried: " if row.is_tried else "") + row.change)
            yield f"| {row.number} | {_marked(row.place)} | {_plain(row.rate)} | {_code(group.line)} | {change} |"
        n_left = max(n_left - len(group.rows), 0)
    yield ""


def _statement_table(check: Check) -> Iterator[str]:
    yield STATEMENTS_NOTE
    yield ""
    yield f"| {' | '.join(STATEMENT_COLUMNS)} | statement |"
    yield "| ---: | ---: | ---: | ---: | --- |"
    for row in statement_rows(check.statements[:_N_TABLE_ROWS]):
        yield f"| {' | '.join(row.cells)} | {_code(row.source)} {_marked(row.keeps)} |"


def _evidence(leak: Leak) -> Iterator[str]:
    for label, words, is_code in leak_facts(leak, _FACT_WIDTH):
        look = _code if is_code else _marked
        if label == "all paths":
            yield f"- {label}:"
            for line in words:
                own = line.lstrip()
                yield f"  {line[: len(line) - len(own)]}- {look(own)}"
        else:
            yield f"- {label}: {', '.join(map(look, words))}"
    yield ""
    yield from fenced(render_path(leak.path))


def _view_lines(view: KeptView) -> Iterator[str]:
    yield f"## {_plain(shorten(view.title, _REASON_LIMIT))}"
    yield ""
    if view.place:
        yield f"- {_plain(view.place)}"
        yield ""
    yield from _folded("The report as text", fenced(view.text))


def _folded(title: str, lines: Iterable[str]) -> Iterator[str]:
    # The empty lines let Markdown begin again within the element.
    yield from ("<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>")


def _name(check: Check, number: int) -> str:
    return _plain(shorten(heading(check, number), _NAME_LIMIT))


def _plain(text: str) -> str:
    """Return *text* so that neither Markdown nor HTML finds a meaning in it."""
    return _SIGNIFICANT.sub(lambda match: f"&#{ord(match[0])};", visible(text))


def _marked(text: str) -> str:
    """Return *text* with what stands between backticks as code."""
    parts = code_parts(shorten(text, _REASON_LIMIT))
    return "".join(f"<code>{_plain(part)}</code>" if is_code else _plain(part) for is_code, part in parts)


def _code(text: str) -> str:
    return f"<code>{_plain(shorten(text, _REASON_LIMIT))}</code>"
