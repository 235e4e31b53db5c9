"""Write a check as HTML: a fragment for a notebook's output, or a page of its own."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leaklab.model import Check, Leak, Outcome, Run
from leaklab.model.check import ContainerGrowth
from leaklab.model.sentences import growth_sentence
from leaklab.render.advice import LeakRow, advice_of, cell_to_copy, cure_of, headline, line_groups, shown_in_full
from leaklab.render.document import (
    Bars,
    Beside,
    Cell,
    CellToCopy,
    Chapter,
    Diff,
    Document,
    DocumentBlock,
    Fact,
    FactTable,
    Headline,
    Image,
    Lines,
    Panel,
    PathSteps,
    Points,
    Prose,
    Remark,
    ShareBar,
    Styled,
    Table,
    Tone,
    Tree,
    Typeface,
    Words,
    bold,
    code,
    environment_of,
    faint,
    marked,
)
from leaklab.render.drawing import draw_svg
from leaklab.render.json import embedded, to_json
from leaklab.render.templates import page, read
from leaklab.render.words import (
    STATEMENT_COLUMNS,
    STATEMENTS_NOTE,
    STATEMENTS_TITLE,
    effort_words,
    failure_words,
    is_leak,
    leak_facts,
    numbers_words,
    object_lines,
    projection_words,
    render_path,
    share_words,
    statement_rows,
    undecided_words,
)
from leaklab.render.writers import html_of
from leaklab.reports.check_text import bounded_points
from leaklab.reports.graphs import path_graph
from leaklab.reports.plots import plot_alt, plot_png
from leaklab.text import SHOWN_LIMIT, clipped, format_bytes, format_rate, format_seconds, shorten

Draw = Callable[..., "str | None"]
"""Makes an ``<svg>`` of DOT text within ``seconds``, or returns None."""
Plot = Callable[[Check], "bytes | None"]
"""Makes a PNG image of a check's runs, or returns None: then the report shows no image."""

OUTCOME_TONES = {
    Outcome.LEAK: Tone.BAD, Outcome.CLEAN: Tone.GOOD, Outcome.BOUNDED: Tone.CALM, Outcome.INCONCLUSIVE: Tone.DOUBTFUL,
}  # fmt: skip
"""The colours of verdicts."""
_N_ROWS, _N_TABLE_ROWS = 20, 300
_NAME_LIMIT, _WORD_LIMIT = 120, 300
_SERIES_WIDTH, _FACT_WIDTH = 40, 100  # characters of figures
_N_BOUNDED = 3  # places that are shown unfolded
_LONG_PATH = 12  # steps: a graph of more has no place beside them
_N_DRAWN = 3  # graphs: with more of them the output would swell the notebook
_DRAWING_SECONDS = 8.0  # for all graphs of a report together
_MAX_SVG_CHARACTERS = 30_000


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of a check is shown.

    Attributes:
        n_leaks: Leaks that are told in full; a cell with more has one cause too many to read on.
        n_open: Leaks that are unfolded.
        is_open: Whether everything else is unfolded.
        is_page: Whether the verdict is the heading of a page of its own.
        has_handlers: Whether elements may carry JavaScript of their own, which some pages forbid.
    """

    n_leaks: int = 10
    n_open: int = 1
    is_open: bool = False
    is_page: bool = False
    has_handlers: bool = True


FRAGMENT = Extent()
_PAGE = Extent(n_open=10, is_open=True, is_page=True)
COPY = read("copy.js").strip()
"""A function that copies the text behind a title."""
_ON_ONE_LINE = re.sub(r"\n *", "", COPY)
_HANDLER = Markup(html.escape(f"({_ON_ONE_LINE})(this)"))  # noqa: S704 - leaklab's own


def render_html(check: Check, *, draw: Draw = draw_svg) -> str:
    """Return the report as a fragment that survives the sanitizers of notebooks.

    Args:
        check: What was found.
        draw: Makes an ``<svg>`` of DOT text, or None; then the path stands there as text.
    """
    return str(render_body(check, draw=draw))


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
    body = Markup("\n<hr>\n").join(render_body(check, _PAGE, draw=draw) for check in checks)
    if has_record:
        body += Markup(embedded(to_json(*map(clipped, checks))))  # noqa: S704 - a script element of its own
    return page(title, body)


def render_body(check: Check, extent: Extent = FRAGMENT, *, draw: Draw = draw_svg, plot: Plot = plot_png) -> Markup:
    """Return the report on *check* as a part of a page, without a title.

    Args:
        check: What was found.
        extent: How much of it is shown, and what is unfolded.
        draw: As in `render_html`.
        plot: Makes the image of the runs.
    """
    positions = shown_in_full(check.leaks, extent.n_leaks)
    cells = [Markup(html.escape(cell_to_copy(check.leaks[position]))) for position in positions]  # noqa: S704 - escaped
    check = clipped(check, SHOWN_LIMIT)
    image = plot(check) if check.runs else None
    picture = () if image is None else (Image(image, plot_alt(check)),)
    graphs = draw_graphs([check.leaks[position] for position in positions], draw)
    is_calm = check.verdict.outcome in (Outcome.CLEAN, Outcome.BOUNDED) and not check.failure
    chapters: list[Chapter] = []
    for position, svg, cell in zip(positions, graphs, cells, strict=True):
        leak = check.leaks[position]
        blocks = (_answer(leak, cell, extent), *_evidence(leak, svg))
        title = (f"Leak {position + 1}: ", marked(shorten(growth_sentence(leak), 2 * _WORD_LIMIT)))
        chapters.append(Chapter(title, blocks, len(chapters) < extent.n_open))
    if len(check.leaks) == 1:
        answer, *evidence = chapters[0].blocks
        chapters = [Chapter("", (answer, Chapter("Evidence", tuple(evidence))), is_open=None)]
    blocks = (
        _banner(check),
        *(_leak_table(check) if len(check.leaks) > 1 else ()),
        *chapters,
        Chapter("What the runs left", () if is_calm else picture, extent.is_open),
        Chapter(STATEMENTS_TITLE, tuple(_statements(check))),
        _bounded(check, extent),
        Chapter("Notes", (Points(check.notes),)),
        *_tables(check, extent),
        Chapter(
            f"Runs ({len(check.runs):,})",
            (*(picture if is_calm else ()), *_runs(check.runs)) if check.runs else (),
            extent.is_open,
        ),
        *environment_of(check.environment),
    )
    return html_of(Document(blocks), is_page=extent.is_page, style="overflow-wrap:break-word")


def _banner(check: Check) -> Headline:
    verdict = check.verdict
    below = "; ".join(filter(None, (effort_words(check), projection_words(check))))
    blocks: list[DocumentBlock] = []
    for share in check.shares if is_leak(check) else ():
        sure = min(share.known_bytes, share.grown_bytes)
        blocks.append(ShareBar(sure / share.grown_bytes, (share.explained_bytes - sure) / share.grown_bytes))
        blocks.append(Remark(f"explained: {share_words(share)}"))
    blocks += [Remark(bold(words)) for words in [failure_words(check)] if words]
    blocks += [Remark(faint(words)) for words in [undecided_words(check, 120)] if words]
    return Headline(
        marked(headline(check)), OUTCOME_TONES[verdict.outcome], (faint(below),), verdict.outcome.value.upper(),
        blocks=tuple(blocks),
    )  # fmt: skip


def _leak_table(check: Check) -> Iterator[DocumentBlock]:
    """Yield the leaks in short, those of one line under it."""
    for group in line_groups(check.leaks):
        line = code(shorten(group.line, _WORD_LIMIT)) if group.line else "by an unknown line"
        yield Remark((line, " ", faint(group.total)))
        yield Tree(tuple(group.place_lines))
        yield _leak_rows(group.rows[: group.n_shown])
        if rest := group.rows[group.n_shown : _N_TABLE_ROWS]:
            yield Chapter(f"{len(rest):,} more of this line", (_leak_rows(rest),), is_open=False)
        yield from more_rows(len(group.rows) - _N_TABLE_ROWS, "report.leaks")


def _leak_rows(rows: Sequence[LeakRow]) -> Table:
    cells = tuple(
        (
            f"{row.number:,}",
            marked(shorten(row.place, _NAME_LIMIT)),
            row.rate,
            (bold("tried:") if row.is_tried else "", " ", marked(shorten(row.change, _WORD_LIMIT))),
        )
        for row in rows
    )
    return Table((">no.", "place", "each run adds", "tried change, or cause"), cells)


def answer_of(leak: Leak) -> Iterator[DocumentBlock]:
    """Yield what a person acts on: the line, the change with what it changes, its proof."""
    advice = advice_of(leak)
    if advice.line:
        yield Remark((bold("Line"), " ", code(shorten(advice.line, _WORD_LIMIT))))
    if advice.words:
        yield from (Remark((bold("Change"), " ", marked(advice.words))), Diff(advice.diff))
        yield Remark((bold("Tried"), " ", advice.proof))
    elif advice.text:
        yield from (Remark(bold("What to change")), Prose(advice.text))


def _answer(leak: Leak, cell: Markup, extent: Extent) -> Panel:
    """Return the answer, and the whole cell to copy."""
    blocks = tuple(answer_of(leak)) or (Remark("No change is known for this cause."),)
    copy = (CellToCopy(cell, _HANDLER if extent.has_handlers else ""),) if cell else ()
    return Panel("", Tone.GOOD if cure_of(leak) else Tone.NONE, blocks=(*blocks, *copy), is_filled=False)


def _evidence(leak: Leak, svg: str | None) -> Iterator[DocumentBlock]:
    """Yield what the answer rests on: the path and its graph, then the figures."""
    path = (PathSteps(leak.path, title="Path"), FactTable(tuple(_facts(leak))))
    if svg is None:
        text = Lines(tuple(render_path(leak.path).splitlines()))
        yield from (*path, Chapter("Path as text", (text,), is_open=False))
        return
    graph = Image(svg, f"Graph of the path: {shorten(str(leak.path), 3 * _WORD_LIMIT)}")
    if len(leak.path.steps) > _LONG_PATH:
        yield from (*path, Chapter("Graph", (graph,), is_open=False))
    else:
        yield Beside(path, (graph,))


def _facts(leak: Leak) -> Iterator[Fact]:
    for label, words, is_code in leak_facts(leak, _FACT_WIDTH):
        if label == "kept":
            bars = Bars(leak.kept, Tone.BAD)
            yield Fact(label, (*((bars,) if bars.is_shown else ()), faint(words[0])))
        elif label == "all paths":
            yield Fact(label, (Tree(tuple(object_lines(leak))),))
        else:
            yield Fact(label, tuple(map(code, words)) if is_code else words)


def _bounded(check: Check, extent: Extent) -> Chapter:
    """Return the places that grew and stopped: they are no leaks, and the report says so."""
    places = check.bounded
    title = f"Not counted as leaks, because they stop growing ({len(places):,})"
    is_open = extent.is_open or len(places) <= _N_BOUNDED
    return Chapter(title, (bounded_points(places),), is_open)


def _statements(check: Check) -> Iterator[DocumentBlock]:
    """Yield the cell, with what each statement left behind beside its source."""
    rows = []
    for row in statement_rows(check.statements[:_N_TABLE_ROWS]):
        source = Styled(shorten(row.source, _WORD_LIMIT), Typeface.SOURCE)
        keeps = (Remark(marked(shorten(row.keeps, _WORD_LIMIT))),) if row.keeps else ()
        rows.append((*row.cells, Chapter("", (Remark(source), *keeps), is_open=None)))
    if rows:
        yield Remark(faint(STATEMENTS_NOTE))
        yield Table((*(f">{name}" for name in STATEMENT_COLUMNS), "statement"), tuple(rows))
        yield from more_rows(len(check.statements) - _N_TABLE_ROWS, "report.record.statements")


def _tables(check: Check, extent: Extent) -> Iterator[Chapter]:
    """Yield what grew, by type, by shape, by container."""
    objects = tuple(
        (
            _name(row.kind), format_rate(row.count_per_run), format_bytes(row.bytes_per_run), _series(row.kept),
            f"{row.n_before:,}", f"{row.n_after:,}", _outcome(row.outcome),
        )
        for row in check.objects
    )  # fmt: skip
    tensors = tuple(
        (
            _name(f"{row.kind} {row.shape} {row.dtype} {row.device}"), "yes" if row.has_graph else "no",
            format_rate(row.count_per_run), format_bytes(row.bytes_per_run), format_bytes(row.bytes_kept),
            _series(row.kept), _outcome(row.outcome),
        )
        for row in check.tensors
    )  # fmt: skip
    containers = tuple(
        (
            _name(row.holder), shorten(row.kind + (f" of {row.content}" if row.content else ""), _NAME_LIMIT),
            format_rate(row.per_run), format_bytes(row.bytes_per_run), _lengths(row), _outcome(row.outcome),
        )
        for row in check.containers
    )  # fmt: skip
    rates = (">per run", ">bytes per run")
    for name, titles, rows in (
        ("objects", ("type", *rates, "kept of each run", ">before", ">after", "outcome"), objects),
        ("tensors", ("tensor", "graph", *rates, ">bytes kept", "kept of each run", "outcome"), tensors),
        ("containers", ("holder", "container", *rates, "length", "outcome"), containers),
    ):
        table = Table(titles, rows, n_shown=_N_ROWS, place=f"report.{name}")
        yield Chapter(f"{name.capitalize()} ({len(rows):,})", (table,) if rows else (), extent.is_open)


def _name(text: str) -> Styled:
    return code(shorten(text, _NAME_LIMIT))


def _outcome(outcome: Outcome) -> Styled:
    return Styled(outcome.value, Typeface.PILL, OUTCOME_TONES[outcome])


def _series(numbers: Sequence[int]) -> Cell:
    bars = Bars(tuple(numbers), Tone.CALM)
    return bars if bars.is_shown else faint(numbers_words(numbers, _SERIES_WIDTH))


def _lengths(row: ContainerGrowth) -> Chapter:
    """Return how long a container was, and after which runs."""
    lengths, at_runs = (numbers_words(numbers, _SERIES_WIDTH) for numbers in (row.lengths, row.at_runs))
    lines = (Remark(f"{lengths} {shorten(row.unit, _NAME_LIMIT)}"), Remark(faint(f"after runs {at_runs}")))
    return Chapter("", lines, is_open=None)


def _runs(runs: Sequence[Run]) -> Iterator[DocumentBlock]:
    """Yield the runs; of many the first and the last."""
    shown = runs if len(runs) <= _N_ROWS else (*runs[: _N_ROWS // 2], *runs[-(_N_ROWS // 2) :])
    rows = tuple(
        (
            f"{run.number}", format_seconds(run.seconds), f"{run.n_born:,}", f"{run.n_kept:,}",
            f"{run.n_tensors_kept:,}", format_bytes(run.tensor_bytes_kept), _level(run.heap_bytes),
            _level(run.accelerator_bytes), format_bytes(run.rss_bytes),
        )
        for run in shown
    )  # fmt: skip
    names = ("run", "time", "born", "kept", "tensors kept", "tensor bytes", "native heap", "accelerator", "process")
    yield Table(tuple(f">{name}" for name in names), rows)
    yield from more_rows(len(runs) - len(shown), "report.runs")


def _level(n_bytes: int | None) -> Words:
    return faint("unknown") if n_bytes is None else format_bytes(n_bytes)


def more_rows(n_rows: int, place: str, what: str = "rows") -> tuple[Remark, ...]:
    """Return that so many more rows are in *place*; nothing where none are."""
    return (Remark(faint(f"{n_rows:,} more {what} are in {place}")),) if n_rows > 0 else ()


def draw_graphs(leaks: Sequence[Leak], draw: Draw) -> list[str | None]:
    """Return an ``<svg>`` for each of the first leaks, None for the others and where nothing can draw it.

    After one failure no other is tried: where no Graphviz is installed, asking again costs time and brings nothing.
    """
    deadline = time.monotonic() + _DRAWING_SECONDS
    graphs: list[str | None] = [None] * len(leaks)
    for index, leak in enumerate(leaks[:_N_DRAWN]):
        svg = draw(path_graph(leak).source, seconds=deadline - time.monotonic())
        if svg is None:
            break
        graphs[index] = svg if len(svg) <= _MAX_SVG_CHARACTERS else None
    return graphs
