"""Write a check as HTML: a fragment for a notebook's output, or a page of its own."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leaklab.model import Check, Leak, Outcome, Run
from leaklab.model.check import ContainerGrowth
from leaklab.model.sentences import growth_sentence
from leaklab.render.advice import (
    LeakRow,
    advice_of,
    cell_to_copy,
    cure_of,
    headline,
    line_groups,
    patch_text,
    shown_in_full,
)
from leaklab.render.document import (
    Bars,
    Cell,
    CellToCopy,
    Chapter,
    Diff,
    Document,
    DocumentBlock,
    Fact,
    FactTable,
    Flame,
    Headline,
    Image,
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
from leaklab.render.json import embedded, to_json
from leaklab.render.templates import handler, page
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
    share_words,
    statement_rows,
    undecided_words,
)
from leaklab.render.writers import html_of
from leaklab.reports.check_text import bounded_places, bounded_points
from leaklab.reports.plots import plot_alt, plot_png
from leaklab.reports.stacks import STACKS_NOTE, STACKS_TITLE, check_tree, visible_frames
from leaklab.text import SHOWN_LIMIT, clipped, format_bytes, format_rate, format_seconds, shorten, unit_words

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
_N_LINES = 8  # lines of code that leak, each with its bar; the others are folded together


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of a check is shown.

    Attributes:
        n_leaks: Leaks that are told in full; a cell with more has one cause too many to read on.
        is_open: Whether everything is unfolded, as for printing; else the first leak alone is.
        is_page: Whether the verdict is the heading of a page of its own.
        has_handlers: Whether elements may carry JavaScript of their own, which some pages forbid.
        is_printed: Whether folds say what part of the report they are, for what prints a page; notebooks keep no such
            attributes.
    """

    n_leaks: int = 10
    is_open: bool = False
    is_page: bool = False
    has_handlers: bool = True
    is_printed: bool = False

    def part(self, name: str) -> str:
        """Return *name*, of a part, where it is said."""
        return name if self.is_printed else ""


FRAGMENT = Extent()
_PAGE = Extent(is_page=True, is_printed=True)
_HANDLER = handler("copy.js", "this")
"""Copies the text behind a title."""


def render_html(check: Check, before: Sequence[DocumentBlock] = ()) -> str:
    """Return the report as a fragment that survives the sanitizers of notebooks, *before* it what else is said."""
    return str(render_body(check, before=before))


def render_page(*checks: Check, title: str = "", has_record: bool = False, before: Sequence[DocumentBlock] = ()) -> str:
    """Return one or more reports as a page of its own that asks nothing of any server.

    Args:
        checks: In the order in which they are shown.
        title: Of the page; empty for the name and the outcome of the first check.
        has_record: Whether the page of one check carries its record within itself, to be read back.
        before: What stands above each of them.
    """
    for check in checks[:1]:
        title = title or f"{check.settings.name or 'leaklab'}: {check.verdict.outcome.value}"
    body = Markup("\n<hr>\n").join(render_body(check, _PAGE, before=before) for check in checks)
    if has_record:
        body += Markup(embedded(to_json(*map(clipped, checks))))  # noqa: S704 - a script element of its own
    return page(title, body)


def render_body(
    check: Check, extent: Extent = FRAGMENT, *, plot: Plot = plot_png, before: Sequence[DocumentBlock] = ()
) -> Markup:
    """Return the report on *check* as a part of a page, without a title: the answer, and one fold with the evidence.

    Args:
        check: What was found.
        extent: How much of it is shown, and what is unfolded.
        plot: Makes the image of the runs.
        before: What stands above the answer.
    """
    cells = {number: _copied(check.leaks[number], extent) for number in shown_in_full(check.leaks, extent.n_leaks)}
    check = clipped(check, SHOWN_LIMIT)
    if len(check.leaks) == 1:
        (leak,) = check.leaks
        answer: tuple[DocumentBlock, ...] = (_answer(leak, cells[0]),)
        evidence: tuple[DocumentBlock, ...] = tuple(_evidence(leak))
    else:
        answer, evidence = tuple(_leaks(check, cells, extent)), ()
    notes = Chapter("Notes", (Points(check.notes),))
    below: tuple[DocumentBlock, ...] = (*evidence, *_figures(check, extent, plot))
    if is_leak(check):
        blocks = (*answer, _folded(check, (*below, _bounded(check, extent), notes), extent))
    else:
        blocks = (*answer, _bounded(check, extent), notes, _folded(check, below, extent))
    return html_of(
        Document((*before, _banner(check), *blocks)), is_page=extent.is_page, style="overflow-wrap:break-word"
    )


def _folded(check: Check, blocks: tuple[DocumentBlock, ...], extent: Extent) -> Chapter:
    """Return the one fold below the answer: what it rests on."""
    title = "Evidence" if len(check.leaks) < 2 else "The runs and all figures"  # noqa: PLR2004 - each has its own
    return Chapter(title, (*blocks, *environment_of(check.environment)), extent.is_open, part=extent.part("figures"))


def _figures(check: Check, extent: Extent, plot: Plot) -> Iterator[DocumentBlock]:
    """Yield how much is explained, what the runs left, what each statement left, and the tables."""
    for share in check.shares if is_leak(check) else ():
        sure = min(share.known_bytes, share.grown_bytes)
        yield ShareBar(sure / share.grown_bytes, (share.explained_bytes - sure) / share.grown_bytes)
        yield Remark(f"explained: {share_words(share)}")
    image = plot(check) if check.runs else None
    if image is not None:
        yield Image(image, plot_alt(check))
    if check.stacks:
        flame = Flame(visible_frames(check_tree(check, whole=False)))
        yield Chapter(STACKS_TITLE, (Remark(faint(STACKS_NOTE)), flame), extent.is_open)
    yield Chapter(STATEMENTS_TITLE, tuple(_statements(check)))
    yield from _tables(check, extent)
    yield Chapter(f"Runs ({len(check.runs):,})", tuple(_runs(check.runs)) if check.runs else (), extent.is_open)


def _banner(check: Check) -> Headline:
    verdict = check.verdict
    below = "; ".join(filter(None, (effort_words(check), projection_words(check))))
    blocks = [Remark(bold(words)) for words in [failure_words(check)] if words]
    blocks += [Remark(faint(words)) for words in [undecided_words(check, 120)] if words]
    return Headline(
        marked(headline(check)), OUTCOME_TONES[verdict.outcome], (faint(below),), verdict.outcome.value.upper(),
        blocks=tuple(blocks),
    )  # fmt: skip


def _leaks(check: Check, cells: Mapping[int, CellToCopy | None], extent: Extent) -> Iterator[DocumentBlock]:
    """Yield the lines of code that leak, the worst first, each with a bar: its share; the first is unfolded."""
    groups = line_groups(check.leaks)
    total = sum(leak.bytes_per_run for leak in check.leaks)
    chapters: list[DocumentBlock] = []
    for group in groups:
        leaks = {row.number - 1: check.leaks[row.number - 1] for row in group.rows}
        share = sum(leak.bytes_per_run for leak in leaks.values()) / total if total else None
        if len(leaks) == 1:
            title: Words = marked(shorten(growth_sentence(next(iter(leaks.values()))), 2 * _WORD_LIMIT))
        else:
            title = (code(group.line.partition(": ")[0]) if group.line else "Unknown line", f": {group.total}")
        told = [number for number in leaks if number in cells]
        blocks: list[DocumentBlock] = []
        for number in told:
            leak = leaks[number]
            card = (
                _answer(leak, cells[number]),
                Chapter("Evidence", tuple(_evidence(leak)), extent.is_open, part=extent.part("evidence")),
            )
            sentence = marked(shorten(growth_sentence(leak), 2 * _WORD_LIMIT))
            is_first = number == told[0]
            blocks.append(Chapter(sentence, card, None if len(told) == 1 else is_first or extent.is_open))
        if len(leaks) > 1:
            rows = (Tree(tuple(group.place_lines)), _leak_rows(group.rows[:_N_TABLE_ROWS]))
            blocks.append(Chapter(f"All {len(leaks):,} places", rows, extent.is_open))
            blocks += more_rows(len(leaks) - _N_TABLE_ROWS, "report.leaks")
        elif not told:
            blocks.append(_leak_rows(group.rows))
        chapters.append(Chapter(title, tuple(blocks), not chapters or extent.is_open, share=share))
    yield from chapters[:_N_LINES]
    if rest := chapters[_N_LINES:]:
        yield Chapter(unit_words(len(rest), "more lines"), tuple(rest), extent.is_open)


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


def answer_of(leak: Leak, copy: CellToCopy | None = None) -> Iterator[DocumentBlock]:
    """Yield what a person acts on: the line, the change with what it changes, its proof.

    Args:
        leak: What leaks.
        copy: What copies the change.
    """
    advice = advice_of(leak)
    if advice.line:
        yield Remark((bold("Line"), " ", code(shorten(advice.line, _WORD_LIMIT))))
    if advice.words:
        yield from (Remark((bold("Change"), " ", marked(advice.words))), Diff(advice.diff))
        yield from (copy,) if copy is not None else ()
        yield Remark((bold("Proof"), " ", advice.proof.replace(" -> ", " \u2192 ")))
    elif advice.text:
        first, _, rest = advice.text.partition("\n")
        yield Remark((bold("Change"), " ", marked(first)))
        yield from (Prose(rest),) if rest else ()


def _answer(leak: Leak, copy: CellToCopy | None) -> Panel:
    blocks = tuple(answer_of(leak, copy)) or (Remark("No change is known for this cause."),)
    return Panel("", Tone.GOOD if cure_of(leak) else Tone.NONE, blocks=blocks, is_filled=False)


def _copied(leak: Leak, extent: Extent) -> CellToCopy | None:
    """Return the change to copy, every character as it is: a whole cell, or a patch; None where no change held."""
    act = _HANDLER if extent.has_handlers else ""
    if cell := cell_to_copy(leak):
        return CellToCopy(Markup(html.escape(cell)), act)  # noqa: S704 - escaped
    patch = "" if cure_of(leak) is None else patch_text(leak)
    if not patch or not patch.replace("\n", "").replace("\t", "").isprintable():
        return None
    return CellToCopy(Markup(html.escape(patch)), act, "Copy the patch")  # noqa: S704 - escaped


def _evidence(leak: Leak) -> Iterator[DocumentBlock]:
    """Yield what the answer rests on: the path, then the figures."""
    yield from (PathSteps(leak.path), FactTable(tuple(_facts(leak))))


def _facts(leak: Leak) -> Iterator[Fact]:
    for label, words, is_code in leak_facts(leak, _FACT_WIDTH):
        bars = Bars(leak.kept, Tone.BAD)
        if label == "evidence" and bars.is_shown:
            yield Fact(label, (bars, faint(words[0])))
        elif label == "all paths":
            yield Fact(label, (Tree(tuple(object_lines(leak))),))
        else:
            yield Fact(label, tuple(map(code, words)) if is_code else words)
    if tried := advice_of(leak).tried:
        yield Fact("tried", tuple(map(marked, tried)))


def _bounded(check: Check, extent: Extent) -> Chapter:
    """Return the places that grew and stopped: they are no leaks, and the report says so."""
    places = bounded_places(check)
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
